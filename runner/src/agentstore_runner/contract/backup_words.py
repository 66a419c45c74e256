"""The closed vocabularies of backups and restores: classes, error codes and what a payload may require of an agent."""

import re
from typing import Final

_CLASSES: Final = "transient locked interrupted lost timeout resource source configuration repository internal"
FAILURE_CLASSES: Final = frozenset(_CLASSES.split())

_CODES: Final = """
    repository_missing repository_locked repository_damaged repository_index_damaged repository_changed
    wrong_password credential_missing permission_denied no_space target_no_space target_permission_denied
    target_conflict runner_out_of_memory backend_unreachable source_missing source_unreadable source_command_failed
    empty_source empty_snapshot snapshot_not_found nothing_matched restore_incomplete verify_mismatch
    invalid_invocation engine_missing engine_too_old payload_unsupported heartbeat_lost max_runtime stalled
    agent_shutdown killed cancelled_by_admin superseded job_disabled no_summary drill_folder_unusable
"""
ERROR_CODES: Final = frozenset(_CODES.split())
"""Every error code but those of an exit code that nothing explains, `restic_exit_N`."""

_EXIT_CODE: Final = re.compile(r"restic_exit_-?[0-9]{1,10}")

HOOKS: Final = "backup.hooks"
SCRATCH: Final = "restore.target.scratch"
DRY_RUN: Final = "restore.dry_run"
NEVER: Final = "restore.overwrite.never"
IF_CHANGED: Final = "restore.overwrite.if_changed"
DELETE_EXTRA: Final = "restore.delete_extra"
VERIFY: Final = "restore.verify.content"
SAMPLE: Final = "restore.sample"
REQUIREMENTS: Final = frozenset({HOOKS, SCRATCH, DRY_RUN, NEVER, IF_CHANGED, DELETE_EXTRA, VERIFY, SAMPLE})
"""What a payload may require: an agent that does not know the name must not start, because ignoring it does harm."""


def error_code_known(code: str) -> bool:
    """Say whether a code belongs to the closed list."""
    return code in ERROR_CODES or _EXIT_CODE.fullmatch(code) is not None
