"""The decision: from the facts of a restic run to the outcome of the task. First match wins; nothing else decides."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from agentstore_runner.backup import causes
from agentstore_runner.backup.causes import Cause
from agentstore_runner.backup.output import Output, whole

_SIGKILL_CODES = frozenset({-9, 137})
_INTERRUPTED = 130
_PARTIAL = 3

Status = Literal["succeeded", "partial_failure", "failed", "cancelled"]

STOPPED: dict[str, tuple[Status, Cause | None, str]] = {
    "cancel": ("cancelled", None, "cancelled_by_admin"),
    "shutdown": ("failed", Cause("interrupted", "agent_shutdown"), "agent_shutdown"),
    "lease": ("failed", Cause("interrupted", "heartbeat_lost"), "heartbeat_lost"),
    "deadline": ("failed", Cause("timeout", "max_runtime"), "max_runtime"),
    "stalled": ("failed", Cause("timeout", "stalled"), "stalled"),
}
_SENTENCES = {
    "source_unreadable": "the source cannot be read",
    "empty_source": "the source holds no files: is its file system mounted?",
    "source_missing": "paths of the source do not exist",
    "no_summary": "restic ended without a summary, and no snapshot carries the tag of this task",
    "killed": "restic was ended by a signal that the runner did not send",
    "agent_shutdown": "the runner was told to stop before the work was done",
    "heartbeat_lost": "the work was stopped because its lease was about to end unrenewed",
    "max_runtime": "the work took longer than it may",
    "stalled": "restic made no progress for longer than it may",
    "nothing_matched": "nothing in the snapshot matches what was asked for",
    "restore_incomplete": "some files were not restored",
}


@dataclass(frozen=True)
class Facts:
    """One ended run: `stopped` is why the runner sent a signal, if it did.

    `found` is the snapshot that carries the task's tag, looked up when there was no summary. `missing` are source
    paths that did not exist before the start. `planned` are the files that a restore has to bring.
    """

    code: int
    output: Output
    stopped: str | None = None
    allow_empty: bool = False
    found: str | None = None
    missing: Collection[str] = ()
    planned: int = 0
    planned_bytes: int = 0


@dataclass(frozen=True)
class Outcome:
    """How the task ended; `counters` are the server's columns, and a cause is missing on success and cancel."""

    status: Status
    cause: Cause | None = None
    code: str | None = None
    message: str | None = None
    snapshot: str | None = None
    counters: dict[str, int] = field(default_factory=dict)
    unchanged: bool = False
    exact: bool = True


def refused(failure_class: str, code: str, message: str) -> Outcome:
    """Return the outcome of a task that ended before restic had work to do."""
    return Outcome("failed", Cause(failure_class, code), code, message[:2000])


# --- backup -----------------------------------------------------------------------------------------------------
def of_backup(facts: Facts) -> Outcome:
    """Decide about a backup, by the rows of the decision table in their order."""
    output = facts.output
    snapshot = output.snapshot
    if facts.stopped is not None and snapshot is None:
        return _stopped(facts, backup_counters(facts))
    if snapshot is not None and (facts.code in (0, _PARTIAL, _INTERRUPTED) or facts.stopped is not None):
        return _saved(facts, snapshot)
    if facts.code == 0 and output.summary is not None and snapshot is None:
        return _outcome(facts, "succeeded", unchanged=True)
    if facts.code == 0:
        if facts.found is not None:
            return _saved(facts, facts.found)
        return _outcome(facts, "failed", Cause("internal", "no_summary"))
    return _outcome(facts, "failed", _unexplained(facts), snapshot=snapshot)


def backup_counters(facts: Facts) -> dict[str, int]:
    """Return the columns: from the summary, or the last status values of a run that has none."""
    output = facts.output
    summary = output.summary
    counted = {"files_skipped": skipped(facts)}
    if summary is None:
        status = output.status
        return {
            **counted,
            **_counts(bytes_processed=status.get("bytes_done"), files_processed=status.get("files_done")),
        }
    return {
        **counted,
        **_counts(
            bytes_processed=summary.get("total_bytes_processed"),
            bytes_written=summary.get("data_added_packed", summary.get("data_added")),
            files_processed=summary.get("total_files_processed"),
        ),
    }


def skipped(facts: Facts) -> int:
    """Count what is not in the snapshot: distinct items and missing paths; exit code 3 means at least one."""
    count = len(facts.output.items) + len(facts.output.missing | set(facts.missing))
    return max(count, 1) if facts.code == _PARTIAL else count


def _saved(facts: Facts, snapshot: str) -> Outcome:
    """Judge a run that left a snapshot."""
    output = facts.output
    files = output.count("total_files_processed")
    if files == 0 and (facts.code == _PARTIAL or output.items):
        return _outcome(facts, "failed", Cause("source", "source_unreadable"), snapshot=snapshot)
    if files == 0 and not facts.allow_empty:
        return _outcome(facts, "failed", Cause("source", "empty_source"), snapshot=snapshot)
    if skipped(facts) > 0:
        only_missing = not output.items and bool(output.missing or facts.missing)
        cause = causes.damage_of(output) or Cause("source", "source_missing" if only_missing else "source_unreadable")
        return _outcome(facts, "partial_failure", cause, snapshot=snapshot)
    return _outcome(facts, "succeeded", snapshot=snapshot)


# --- restore ----------------------------------------------------------------------------------------------------
def of_restore(facts: Facts) -> Outcome:
    """Decide about a restore, by the rows of the decision table in their order."""
    output, counters = facts.output, restore_counters(facts)
    failed, arrived = len(output.items), counters.get("files_processed", 0)
    if facts.stopped is not None and facts.code != 0:
        return _stopped(facts, counters)
    if facts.code == 0 and not failed:
        if arrived:
            return _outcome(facts, "succeeded", counters=counters)
        return _outcome(facts, "failed", Cause("configuration", "nothing_matched"), counters=counters)
    if failed:
        status: Status = "partial_failure" if arrived else "failed"
        return _outcome(facts, status, causes.of_items(output), counters=counters)
    return _outcome(facts, "failed", _unexplained(facts), counters=counters)


def restore_counters(facts: Facts) -> dict[str, int]:
    """Return the columns: from the summary, or, for an engine that prints none, from the plan and the failed items.

    With a full target the summary counts failed files as restored, with a missing pack it has left them out already;
    the smaller of the two sums is right for both. restic's own `files_skipped` means "already up to date".
    """
    summary, failed = facts.output.summary, len(facts.output.items)
    counted = {"files_skipped": failed}
    if summary is None:
        went_through = facts.code == 0 or failed > 0
        arrived = max(facts.planned - _failed_files(facts.output), 0) if went_through else 0
        size = facts.planned_bytes if arrived else 0
        return {**counted, "files_processed": arrived, "bytes_processed": size, "bytes_written": size}
    number = facts.output.count
    restored, kept, total = (number(name) or 0 for name in ("files_restored", "files_skipped", "total_files"))
    return {
        **counted,
        "files_processed": max(min(restored + kept, total + kept - failed), 0),
        "bytes_processed": (number("bytes_restored") or 0) + (number("bytes_skipped") or 0),
        "bytes_written": number("bytes_restored") or 0,
    }


def _failed_files(output: Output) -> int:
    """Count the failed items that are files of the plan: restic complains about folders as well."""
    return sum(item in output.paths for item in output.items) if output.paths else len(output.items)


# --- both -------------------------------------------------------------------------------------------------------
def _unexplained(facts: Facts) -> Cause:
    """Explain an end that left nothing usable."""
    if facts.code in _SIGKILL_CODES:
        return Cause("resource", "killed")
    if facts.code < 0 or facts.code == _INTERRUPTED or "context canceled" in facts.output.final:
        return Cause("interrupted", "killed")
    return causes.of_end(facts.code, facts.output)


def _stopped(facts: Facts, counters: dict[str, int]) -> Outcome:
    status, cause, code = STOPPED[facts.stopped or "shutdown"]
    return Outcome(status, cause, code, _SENTENCES.get(code), counters=counters)


def _outcome(
    facts: Facts,
    status: Status,
    cause: Cause | None = None,
    *,
    snapshot: str | None = None,
    counters: dict[str, int] | None = None,
    unchanged: bool = False,
) -> Outcome:
    output = facts.output
    said = None
    if cause is not None:
        said = output.message or _SENTENCES.get(cause.code) or f"restic ended with exit code {facts.code}"
    return Outcome(
        status,
        cause,
        None if cause is None else cause.code,
        said,
        snapshot=snapshot,
        counters=backup_counters(facts) if counters is None else counters,
        unchanged=unchanged,
        exact=output.summary is None or counters is not None or "data_added_packed" in output.summary,
    )


def _counts(**values: object) -> dict[str, int]:
    return {name: whole(value) for name, value in values.items() if value is not None}
