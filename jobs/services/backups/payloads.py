"""Payloads of tasks, version 1, as runners read them. They hold names and numbers, never a secret."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from agentstore_runner.contract import backup as contract
from agentstore_runner.contract.problem import Problem

from jobs.models import BackupJob, BackupJobRun, BackupJobSource, BackupRepository, BackupSnapshot
from jobs.services.errors import Invalid

REPORT = {"heartbeat_s": 15, "progress_s": 5, "max_error_items": 50, "paths": "full"}
DEFAULTS: Mapping[str, bool | int] = {
    "one_file_system": True, "exclude_caches": True, "stall_s": 3600, "lock_wait_s": 900, "limit_upload_kib": 0,
    "shrink_warn_percent": 50,
}  # fmt: skip


def repository(row: BackupRepository) -> dict[str, Any]:
    """Where the snapshots are, for a payload or a maintenance spec."""
    return {
        "engine": "restic",
        "path": row.location,
        "credential_ref": row.credential_ref,
        "expected_id": row.engine_repository_id,
        "init_if_missing": row.init_if_missing,
    }


def backup(
    *, task_id: UUID, run: BackupJobRun, job: BackupJob, source: BackupJobSource, last_good: Sequence[BackupSnapshot]
) -> dict[str, Any]:
    """The payload of one source's backup. Raises Invalid when no runner would take it.

    `last_good` are the last good snapshots of the source, newest first, in whatever repositories: all tell how large
    it was, but only one that lies where this backup goes can be its parent.
    """
    parents = [one.engine_id for one in last_good if one.repository_id == job.repository_id]
    settings: dict[str, Any] = {
        **DEFAULTS,
        **job.settings,
        "tags": [f"job:{job.pk}", f"source:{source.pk}", f"run:{run.pk}", f"task:{task_id}"],
        "max_runtime_s": job.max_run_seconds,
        "allow_empty": source.allow_empty,
    }
    if last_good:
        settings["previous"] = {"files": last_good[0].files, "bytes": last_good[0].bytes}
    return _checked(
        {
            **_head(contract.BACKUP, task_id, run, job, source),
            "parent_backup": parents[0] if parents else None,
            "hooks": {"before": source.hooks_before, "after": source.hooks_after},
            "settings": settings,
            "report": REPORT,
        }
    )


def restore(
    *,
    task_id: UUID,
    run: BackupJobRun,
    job: BackupJob,
    source: BackupJobSource,
    snapshot: BackupSnapshot,
    asked: Mapping[str, Any],
    most_seconds: int,
) -> dict[str, Any]:
    """The payload of a restore of one snapshot; `asked` are the members of its `restore`. Raises Invalid.

    It may take `most_seconds`, and no longer than its job allows.
    """
    limits = DEFAULTS | job.settings
    return _checked(
        {
            **_head(contract.RESTORE, task_id, run, job, source),
            "settings": {
                "max_runtime_s": min(most_seconds, job.max_run_seconds),
                **{name: limits[name] for name in ("stall_s", "lock_wait_s")},
            },
            "report": REPORT,
            "restore": {"backup_id_in_repository": snapshot.engine_id, **asked},
        }
    )


def _head(kind: str, task_id: UUID, run: BackupJobRun, job: BackupJob, source: BackupJobSource) -> dict[str, Any]:
    return {
        "version": contract.VERSION,
        "type": kind,
        "task_id": str(task_id),
        "run_id": str(run.pk),
        "job": {"id": str(job.pk), "name": job.name},
        "attempt": 1,
        "source": {
            "id": str(source.pk),
            "name": source.name,
            "host": source.host,
            "paths": source.paths,
            "excludes": source.excludes,
        },
        "repository": repository(job.repository),
        "backup_id": f"as-run-{run.pk}-src-{source.pk}-a1",
        "chain": f"job:{job.pk}/source:{source.pk}",
    }


def _checked(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with what it requires of its agent, read as a runner reads it."""
    payload["requires"] = list(contract.required(payload))
    try:
        contract.read(payload, payload["type"])
    except contract.UnsupportedError as error:
        raise Invalid([Problem("", f"No runner would take this task: {error}")]) from None
    return payload
