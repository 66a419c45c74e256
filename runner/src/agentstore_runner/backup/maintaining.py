"""The job kinds `backup.maintenance` and `backup.list`: care of a repository, and a look into a snapshot."""

import json
import os
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentstore_runner.backup import configuration
from agentstore_runner.backup.causes import of_end
from agentstore_runner.backup.configuration import ConfigurationError
from agentstore_runner.backup.engine import EngineError
from agentstore_runner.backup.outcome import refused
from agentstore_runner.backup.output import Output, whole
from agentstore_runner.backup.session import Ended, Session, SettledError
from agentstore_runner.backup.task import opened
from agentstore_runner.contract import backup_jobs as jobs
from agentstore_runner.contract.backup import Repository, UnsupportedError
from agentstore_runner.contract.backup_jobs import Listing, Maintenance
from agentstore_runner.contract.problem import Problem
from agentstore_runner.handlers import Desk, Report, Work
from agentstore_runner.redaction import Redactor

# As many ids of 64 characters fit into one command line with room to spare.
_AT_ONCE = 500
_DAMAGED = re.compile(r"repository contains errors|the repository (may be|is) damaged", re.IGNORECASE)


class MaintenanceHandler:
    """Checks a repository, forgets snapshots by their ids, prunes and unlocks it."""

    kinds: tuple[str, ...] = (jobs.MAINTENANCE,)

    def __init__(self, *, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def prepared(self) -> bool:
        """Say whether somebody has configured backups on this machine."""
        return configuration.present(self._environ)

    def problems(self, spec: Mapping[str, Any]) -> list[Problem]:
        """Return what is wrong with a spec."""
        return _problems(lambda: jobs.maintenance(spec))

    def run(self, work: Work, desk: Desk) -> Report:
        """Do what the spec asks for; the results tell what was really done, also when something failed."""
        results: dict[str, Any] = {"version": 1, "forgotten": [], "kept": [], "absent": [], "pruned": False}

        def work_on(session: Session) -> None:
            results["engine_repository_id"] = session.identify()
            _maintain(session, jobs.maintenance(work.spec), desk, results)

        return _done(work, desk, self._environ, lambda: jobs.maintenance(work.spec).repository, work_on, results)


class ListingHandler:
    """Lists one folder of one snapshot, so that people can choose what to restore."""

    kinds: tuple[str, ...] = (jobs.LISTING,)

    def __init__(self, *, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def prepared(self) -> bool:
        """Say whether somebody has configured backups on this machine."""
        return configuration.present(self._environ)

    def problems(self, spec: Mapping[str, Any]) -> list[Problem]:
        """Return what is wrong with a spec."""
        return _problems(lambda: jobs.listing(spec))

    def run(self, work: Work, desk: Desk) -> Report:
        """List the folder."""
        results: dict[str, Any] = {"version": 1, "entries": [], "truncated": False}

        def work_on(session: Session) -> None:
            _list(session, jobs.listing(work.spec), results)

        return _done(work, desk, self._environ, lambda: jobs.listing(work.spec).repository, work_on, results)


def _done(
    work: Work,
    desk: Desk,
    environ: Mapping[str, str],
    repository: Callable[[], Repository],
    action: Callable[[Session], None],
    results: dict[str, Any],
) -> Report:
    """Open the repository and act; every way in which that can end becomes a report."""
    redactor = Redactor([])
    try:
        asked = repository()
        session, redactor = opened(asked, configuration.read(environ), work, desk, environ)
        results["engine"] = {"name": "restic", "version": session.engine.release}
        action(session)
        return Report("done", verdict="pass", results=results, redactor=redactor)
    except SettledError as settled:
        outcome = settled.outcome
    except UnsupportedError as error:
        outcome = refused("configuration", "payload_unsupported", str(error))
    except EngineError as error:
        outcome = refused("configuration", error.code, str(error))
    except ConfigurationError as error:
        outcome = refused("configuration", "credential_missing", str(error))
    return Report(
        "cancelled" if outcome.status == "cancelled" else "failed",
        results=results,
        error=outcome.message,
        failure_class=None if outcome.cause is None else outcome.cause.failure_class,
        details={"code": outcome.code},
        redactor=redactor,
    )


def _maintain(session: Session, spec: Maintenance, desk: Desk, results: dict[str, Any]) -> None:
    """Unlock, check, forget, prune, in this order: from a damaged repository nothing is removed."""

    def step(title: str, *arguments: str) -> Ended:
        desk.progress(0, 0, title)
        ended = session.patiently(lambda: session.ask(*arguments), spec.lock_wait_s)
        desk.log(f"{title}: exit code {ended.code}")
        return ended

    if spec.unlock:
        _well(step("remove stale locks", "unlock"))
        results["unlocked"] = True
    if spec.check != "none":
        depth = {"read_data": ["--read-data"], "read_data_subset": [f"--read-data-subset={spec.subset}"]}
        _judge(step("check", "check", *depth.get(spec.check, [])), spec, results)
    if spec.forget:
        _forget(session, spec, step, results)
    if spec.prune:
        _well(step("prune", "prune"))
        results["pruned"] = True


def _judge(ended: Ended, spec: Maintenance, results: dict[str, Any]) -> None:
    """Store what a check has found; SettledError if it found damage or could not be done."""
    if ended.stopped is not None:
        raise SettledError(ended.failure)
    words = "\n".join((*ended.lines, ended.output.everything))
    damaged = ended.code != 0 and (
        _DAMAGED.search(words) is not None or of_end(ended.code, ended.output).failure_class == "repository"
    )
    depth = f"{spec.check} {spec.subset}" if spec.check == "read_data_subset" else spec.check
    if ended.code == 0 or damaged:
        results["check"] = {"ok": not damaged, "depth": depth, "message": ended.output.message}
    if damaged:
        message = f"the check found damage, and nothing was removed: {ended.output.message}"
        raise SettledError(refused("repository", "repository_damaged", message))
    _well(ended)


def _forget(session: Session, spec: Maintenance, step: Callable[..., Ended], results: dict[str, Any]) -> None:
    """Forget the snapshots, and tell by listing which are gone: the exit code says nothing about it."""
    before = _ids(session)
    wanted = [one for one in dict.fromkeys(spec.forget) if one in before]
    results["absent"] = [one for one in dict.fromkeys(spec.forget) if one not in before]
    try:
        for first in range(0, len(wanted), _AT_ONCE):
            _well(step("forget snapshots", "forget", "--", *wanted[first : first + _AT_ONCE]))
    finally:
        after = _ids(session, obedient=False)
        results["forgotten"] = [one for one in wanted if one not in after]
        results["kept"] = [one for one in wanted if one in after]
    if results["kept"]:
        said = f"{len(results['kept'])} snapshots are still there although restic was told to forget them"
        raise SettledError(refused("internal", "restic_exit_0", said))


def _ids(session: Session, *, obedient: bool = True) -> set[str]:
    return {str(one.get("id")) for one in session.snapshots(obedient=obedient)}


def _well(ended: Ended) -> None:
    """Go on only if the call ended well."""
    if ended.code != 0 or ended.stopped is not None:
        raise SettledError(ended.failure)


def _list(session: Session, spec: Listing, results: dict[str, Any]) -> None:
    folder = posixpath.normpath(spec.path)
    results.update(snapshot=spec.snapshot, path=folder)
    seen = False

    def take(line: str) -> None:
        nonlocal seen
        try:
            node = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(node, dict):
            return
        if "snapshot" in (node.get("struct_type"), node.get("message_type")):
            seen = True
        path = node.get("path")
        if not isinstance(path, str) or posixpath.dirname(path) != folder or path == folder:
            return
        if len(results["entries"]) == jobs.MOST_ENTRIES:
            results["truncated"] = True
            return
        results["entries"].append(
            {
                "name": posixpath.basename(path),
                "type": str(node.get("type"))[:20],
                "size": whole(node.get("size")),
                "mtime": str(node.get("mtime") or "")[:40],
            }
        )

    ended = session.call(["ls", "--json", "--no-lock", "--", spec.snapshot, folder], Output(), stdout=take)
    _well(ended)
    if not seen:
        raise SettledError(refused("configuration", "snapshot_not_found", f"there is no snapshot {spec.snapshot}"))


def _problems(read: Callable[[], object]) -> list[Problem]:
    try:
        read()
    except UnsupportedError as error:
        place, _, message = str(error).partition(": ")
        return [Problem(place, message)]
    return []
