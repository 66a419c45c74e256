"""What each captured run of restic has to be called, written from the decision tables and not from the code.

A line is `case: outcome on 0.14 | outcome on 0.18`, where the second is left out if both are the same. `ok` is
succeeded, `~code` a partial failure, `code` a failure, and the class follows from the code.
"""

CLASSES = {
    "configuration": """repository_missing wrong_password credential_missing snapshot_not_found invalid_invocation
        permission_denied nothing_matched target_conflict target_permission_denied""",
    "source": "source_unreadable source_missing empty_source empty_snapshot source_command_failed",
    "repository": "repository_damaged repository_index_damaged",
    "resource": "no_space target_no_space runner_out_of_memory killed",
    "locked": "repository_locked",
    "transient": "backend_unreachable",
    "interrupted": "agent_shutdown interrupted_by_another",
    "internal": "no_summary restore_incomplete restic_exit_1",
}

TABLE = """
basic.missingrepo: repository_missing
basic.b1: ok
basic.b2: ok
basic.b3: ok
basic.b3q: ok
basic.unreadable: ~source_unreadable
basic.unreadable_verbose: ~source_unreadable
basic.missing_source: ~source_unreadable
basic.all_missing: source_missing
basic.parentunreadable: source_unreadable
basic.wrongpw: wrong_password
basic.nopw: credential_missing
basic.pwfilemissing: credential_missing
basic.badparent: snapshot_not_found
basic.badflag: invalid_invocation
basic.nosources: invalid_invocation
signals.clean_missing: ~source_missing
signals.sigint: cancelled
signals.sigterm: agent_shutdown
signals.sigkill: killed
signals.after_kill_backup: ok
signals.resume_big: ok
storage.enospc_repo: no_space
storage.enospc_again: ok
storage.enospc_cache: ok
storage.enospc_tmpdir: ok
storage.readonly_repo: permission_denied
storage.config_unreadable: permission_denied
storage.nokeys: wrong_password
storage.backup_missingpack: ok
storage.backup_missingpack_force: ok
storage.noindex_backup: ~repository_index_damaged
storage.restore_damaged: ~repository_damaged
storage.restore_missingpack: ~repository_damaged
sources.vanish: ~source_unreadable | ok
sources.growing: ok
sources.tagcomma: ok
sources.skipunch: invalid_invocation | ok
sources.dryrun: no_summary
sources.emptydir: empty_source
sources.unmounted: empty_source
sources.exclall: empty_snapshot
sources.exclbad: invalid_invocation
sources.special: empty_source
sources.oddnames: source_unreadable
sources.stdin_fail: ok
sources.stdin_cmd_fail: invalid_invocation | source_command_failed
sources.stdin_cmd_nobin: invalid_invocation | restic_exit_1
sources.symlink_source: empty_source
sources.relpath: ok
sources.rc_env: backend_unreachable | interrupted_by_another
sources.rc_s3: restic_exit_1 | interrupted_by_another
sources.nohomecache: ok
target.second_backup: ok
target.backup_while_exclusive: repository_locked
target.backup_while_exclusive_retry: invalid_invocation | repository_locked
target.restore_tampered: ok
target.restore_sameSizeMtime: invalid_invocation | ok
target.restore_sameSizeMtime_verify: invalid_invocation | ok
target.restore_overwrite_never: invalid_invocation | ok
target.restore_never_verify: invalid_invocation | ok
target.restore_subpath: snapshot_not_found | ok
target.restore_dir_in_place: ~target_conflict | ok
target.restore_nonemptydir_in_place: ~target_conflict
target.restore_ro_subdir: target_permission_denied | ~restore_incomplete
target.restore_while_exclusive: repository_locked
restore.latest_empty: snapshot_not_found
restore.restore_ok: ok
restore.restore_verify: ok
restore.restore_again: ok
restore.restore_tampered: ok
restore.restore_overwrite_never: invalid_invocation | ok
restore.restore_badid: snapshot_not_found
restore.restore_badid_full: snapshot_not_found
restore.restore_include_nomatch: nothing_matched
restore.restore_subpath: snapshot_not_found
restore.restore_subpath_bad: snapshot_not_found
restore.restore_ro_target: target_permission_denied | permission_denied
restore.restore_target_is_file: target_conflict
restore.restore_enospc: ~target_no_space
restore.restore_notarget: restic_exit_1
restore.restore_hostfilter_nomatch: snapshot_not_found
restore.restore_foreign_owner: ok
restore.restore_dir_in_place: ok
extra.compress: ok
extra.full: ok
extra.partial: ~source_unreadable
extra.memlimit: runner_out_of_memory
extra.oomlike: runner_out_of_memory
extra.host_default_parent: ok
extra.badfps: ok
extra.badpack: ok
extra.restore_prog: ok
"""

# restic 0.14 prints no counts of a restore; these are the files that its plan had.
PLANNED_FILES = {"storage": 30, "restore": 20, "target": 20, "extra": 4}
EMPTY_PLANS = {"restore.restore_include_nomatch"}


def expected() -> dict[tuple[str, str], tuple[str, str | None, str | None]]:
    """Return status, class and code by case and version."""
    found = {}
    for line in TABLE.strip().splitlines():
        case, _, words = line.partition(": ")
        old, _, new = words.partition(" | ")
        found[case, "0.14.0"] = _outcome(old)
        found[case, "0.18.0"] = _outcome(new or old)
    return found


def _outcome(word: str) -> tuple[str, str | None, str | None]:
    if word == "ok":
        return "succeeded", None, None
    if word == "cancelled":
        return "cancelled", None, "cancelled_by_admin"
    code = word.removeprefix("~")
    known = next(name for name, codes in CLASSES.items() if code in codes.split())
    # "killed" is the code of two classes: out of memory, and a signal of somebody else.
    return "partial_failure" if word != code else "failed", known, code.replace("interrupted_by_another", "killed")
