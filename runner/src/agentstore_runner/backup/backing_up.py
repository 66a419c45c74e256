"""The task `backup`: one snapshot of one source."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from agentstore_runner.backup import configuration, engine, outcome, task
from agentstore_runner.backup.causes import of_end
from agentstore_runner.backup.configuration import ConfigurationError
from agentstore_runner.backup.engine import EngineError
from agentstore_runner.backup.outcome import Facts, Outcome
from agentstore_runner.backup.output import Output
from agentstore_runner.backup.progress import Progress
from agentstore_runner.backup.session import Ended, SettledError
from agentstore_runner.backup.task import Task
from agentstore_runner.contract.backup import BACKUP, Backup
from agentstore_runner.handlers import Desk, Report, Work

_MOST_PATHS_TOLD = 20


class BackupHandler:
    """Backs up one source with restic; credentials, hooks and the engine are this machine's own."""

    kinds: tuple[str, ...] = (BACKUP,)

    def __init__(self, *, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def prepared(self) -> bool:
        """Say whether somebody has configured backups on this machine."""
        return configuration.present(self._environ)

    def capabilities(self) -> Collection[str]:
        """Return the requirements of payloads that the installed restic meets."""
        return engine_capabilities(self._environ)

    def engine(self) -> str | None:
        """Return the version of the installed restic."""
        return engine_name(self._environ)

    def run(self, work: Work, desk: Desk) -> Report:
        """Do the backup."""
        return task.done(work, desk, self._environ, _back_up)


def engine_capabilities(environ: Mapping[str, str]) -> Collection[str]:
    """Return what the installed restic can do; nothing without one, and what requires something then waits."""
    found = _installed(environ)
    return () if found is None else found.capabilities


def engine_name(environ: Mapping[str, str]) -> str | None:
    """Return the installed restic in words, for people."""
    found = _installed(environ)
    return None if found is None else f"restic {found.release}"


def _installed(environ: Mapping[str, str]) -> engine.Engine | None:
    try:
        return engine.find(configuration.read(environ).restic, environ)
    except (EngineError, ConfigurationError):
        return None


def _back_up(task: Task[Backup]) -> Outcome:
    paths, missing = _sources(task)
    if not paths:
        said = f"no path of the source exists: {', '.join(missing)}"
        return replace(outcome.refused("source", "source_missing", said), counters={"files_skipped": len(missing)})
    ended = task.session.patiently(lambda: _run(task, paths), task.payload.limits.lock_wait_s)
    facts = Facts(
        ended.code,
        ended.output,
        ended.stopped,
        allow_empty=task.payload.allow_empty,
        found=_found(task, ended),
        missing=missing,
    )
    decided = outcome.of_backup(facts)
    task.note(ended.output, ended.code)
    if not decided.exact:
        task.details["bytes_written_exact"] = False
    if decided.unchanged:
        task.details["unchanged_parent"] = task.payload.parent
    _warn_of_shrinking(task, decided)
    return replace(decided, snapshot=_whole_id(task, decided.snapshot))


def _sources(task: Task[Backup]) -> tuple[list[str], list[str]]:
    """Return the paths that exist, links to them followed, and those that do not: restic may overlook them."""
    paths: list[str] = []
    missing: list[str] = []
    for path in task.payload.paths:
        try:
            real = os.path.realpath(path, strict=True) if Path(path).is_symlink() else path
            os.lstat(real)
        except PermissionError:
            paths.append(path)  # it may exist; restic will say that it cannot be read
        except OSError:
            missing.append(os.path.normpath(path))
        else:
            paths.append(real)
            if real != path:
                task.warn(f"{path} is a link, and {real} was backed up")
    if missing:
        task.details["missing"] = missing[:_MOST_PATHS_TOLD]
    return paths, missing


def _run(task: Task[Backup], paths: list[str]) -> Ended:
    payload, session = task.payload, task.session
    excludes = task.work.scratch / "excludes"
    # In such a file a variable would be filled in and a line with a # would be a comment.
    lines = (pattern.replace("$", "$$") for pattern in payload.excludes)
    excludes.write_text("".join(f"\\{line}\n" if line.startswith("#") else f"{line}\n" for line in lines))
    tags = payload.tags if payload.task_tag in payload.tags else (*payload.tags, payload.task_tag)
    arguments = [
        "backup", "--json", f"--host={payload.host}", *(f"--tag={tag}" for tag in tags), f"--exclude-file={excludes}"
    ]  # fmt: skip
    arguments += ["--one-file-system"] if payload.one_file_system else []
    arguments += ["--exclude-caches"] if payload.exclude_caches else []
    arguments += [f"--limit-upload={payload.limits.upload_kib}"] if payload.limits.upload_kib else []
    progress = Progress(task.desk, payload.reporting, task.redactor, "backing up")

    def call(*more: str) -> Ended:
        return session.call(
            [*arguments, *more, "--", *paths], Output(), stall_s=payload.limits.stall_s, tell=progress.backup
        )

    if payload.parent is None:
        return call()
    ended = call(f"--parent={payload.parent}")
    if ended.code != 0 and ended.stopped is None and of_end(ended.code, ended.output).code == "snapshot_not_found":
        task.warn(f"the parent {payload.parent} does not exist; restic chose one")
        return call()
    return ended


def _found(task: Task[Backup], ended: Ended) -> str | None:
    """Return the snapshot of a run that ended well and printed no summary."""
    if ended.code != 0 or ended.stopped is not None or ended.output.summary is not None:
        return None
    found = _of_this_task(task)
    return found[-1] if found else None


def _whole_id(task: Task[Backup], snapshot: str | None) -> str | None:
    """Return the whole id, which restic before 0.15 does not print."""
    if snapshot is None or len(snapshot) == 64:
        return snapshot
    return next((one for one in _of_this_task(task) if one.startswith(snapshot)), snapshot)


def _of_this_task(task: Task[Backup]) -> list[str]:
    """Return the ids of the snapshots that carry the task's tag; a listing that fails spoils no backup."""
    try:
        found = task.session.snapshots(f"--tag={task.payload.task_tag}", obedient=False)
    except SettledError as settled:
        task.warn(f"the snapshots of this task cannot be listed: {settled.outcome.message}")
        return []
    return [str(one.get("id")) for one in found]


def _warn_of_shrinking(task: Task[Backup], decided: Outcome) -> None:
    payload = task.payload
    if payload.previous is None or not payload.shrink_warn_percent or decided.snapshot is None:
        return
    for name, before in zip(("files_processed", "bytes_processed"), payload.previous, strict=True):
        now = decided.counters.get(name, 0)
        if now * 100 < before * (100 - payload.shrink_warn_percent):
            what = name.removesuffix("_processed")
            task.warn(f"the source has shrunk: {now} {what} now, {before} in the last good backup")
