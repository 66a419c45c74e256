"""The task `restore`: files of one snapshot, to a place that was chosen, and an honest word about what is there now."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from agentstore_runner.backup import configuration, drills, outcome, plan, task
from agentstore_runner.backup.backing_up import engine_capabilities, engine_name
from agentstore_runner.backup.outcome import Facts, Outcome
from agentstore_runner.backup.output import Output
from agentstore_runner.backup.plan import Plan
from agentstore_runner.backup.progress import Progress
from agentstore_runner.backup.session import NO_LIMIT_S, Ended, SettledError
from agentstore_runner.backup.task import Task
from agentstore_runner.contract.backup import RESTORE, Restore
from agentstore_runner.handlers import Desk, Report, Work

_SPECIAL = re.compile(r"[*?\[\]\\]")
# Before 0.16 a restore prints nothing until it has ended.
_TELLS_PROGRESS = (0, 16, 0)
_UNTOUCHED = "nothing was written"
_UNUSABLE = "do not use: a file of full size may hold wrong content"


class RestoreHandler:
    """Restores files with restic; credentials, hooks and the engine are this machine's own."""

    kinds: tuple[str, ...] = (RESTORE,)

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
        """Do the restore."""
        return task.done(work, desk, self._environ, _restore)


def _restore(task: Task[Restore]) -> Outcome:
    payload = task.payload
    if payload.path is not None:
        return _into(task, payload.path)
    if payload.sample is None and task.configured.drill_folder is None:
        return _into(task, str(task.work.scratch / "restored"))
    with drills.place(task.configured, task.warn) as folder:
        return _into(task, str(folder))


def _into(task: Task[Restore], target: str) -> Outcome:
    payload = task.payload
    place = {"path": target, "overwrite": payload.overwrite, "state": _UNTOUCHED}
    task.details["target"] = place
    planned = plan.read(task.session, payload.snapshot, payload.include)
    if payload.sample is not None:
        task.details["sampled_from"] = {"files": len(planned.files), "bytes": planned.size}
        planned = planned.sampled(payload.sample)
        drills.check_space(Path(target), planned.size)
    conflicts = planned.conflicts(target)
    task.details["plan"] = planned.document(conflicts)
    _refuse_conflicts(task, conflicts)
    if payload.dry_run:
        task.details["dry_run"] = True
        counters = {"files_processed": len(planned.files), "bytes_processed": planned.size, "files_skipped": 0}
        return Outcome("succeeded", counters=counters)
    ended = task.session.patiently(lambda: _run(task, target, planned), payload.limits.lock_wait_s)
    if ended.code == 0:
        # An old engine may say that all is well when files are missing, so the target itself is asked.
        for path in planned.absent(target, sizes=not conflicts):
            ended.output.items.setdefault(path, "is not in the target")
    facts = Facts(
        ended.code, ended.output, ended.stopped, planned=len(planned.files), planned_bytes=planned.size
    )  # fmt: skip
    decided = outcome.of_restore(facts)
    task.note(ended.output, ended.code)
    place["state"] = _state(payload, decided)
    return replace(decided, snapshot=payload.snapshot)


def _refuse_conflicts(task: Task[Restore], conflicts: list[str]) -> None:
    """End the task where keeping files that are there cannot be done, or would not be verified."""
    payload, engine = task.payload, task.session.engine
    if payload.overwrite == "always" and not payload.delete_extra:
        return
    if not engine.chooses_overwrite and (payload.overwrite == "if_changed" or payload.delete_extra):
        said = f"restic {engine.release} cannot choose what to overwrite or remove: 0.17 or later can"
        raise SettledError(outcome.refused("configuration", "engine_too_old", said))
    if conflicts and payload.overwrite != "always" and (payload.verify or not engine.chooses_overwrite):
        why = "would not be verified" if engine.chooses_overwrite else f"restic {engine.release} would overwrite them"
        said = f"{len(conflicts)} files are in the target already ({conflicts[0]}, …), and {why}"
        raise SettledError(outcome.refused("configuration", "target_conflict", said))


def _run(task: Task[Restore], target: str, planned: Plan) -> Ended:
    payload, engine = task.payload, task.session.engine
    arguments = ["restore", "--json", f"--target={target}"]
    arguments += [f"--include={_pattern(path)}" for path in planned.include]
    if engine.chooses_overwrite:
        arguments += [f"--overwrite={payload.overwrite.replace('_', '-')}"]
        arguments += ["--delete"] if payload.delete_extra else []
    arguments += ["--verify"] if payload.verify else []
    progress = Progress(task.desk, payload.reporting, task.redactor, "restoring")
    stall_s = payload.limits.stall_s if engine.version >= _TELLS_PROGRESS else NO_LIMIT_S
    task.desk.measure({"phase": "restoring", "title": "restoring", "total": planned.size}, {})
    output = Output(paths=planned.files)
    return task.session.call([*arguments, "--", payload.snapshot], output, stall_s=stall_s, tell=progress.restore)


def _pattern(path: str) -> str:
    """Return a pattern that matches this path and no other."""
    return _SPECIAL.sub(lambda special: "\\" + special[0], path)


def _state(payload: Restore, decided: Outcome) -> str:
    """Say what the target is worth."""
    counters = decided.counters
    if decided.status == "succeeded":
        return "complete, content verified" if payload.verify else "complete, content not verified"
    if decided.status == "partial_failure":
        return f"incomplete: {counters.get('files_skipped', 0)} items failed; the others are there"
    if decided.code in ("repository_locked", "snapshot_not_found", "wrong_password", "nothing_matched"):
        return _UNTOUCHED
    return _UNUSABLE
