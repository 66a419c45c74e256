"""Specs in files: read, validated and tried on this machine, without a server."""

import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentstore_runner import letters
from agentstore_runner.contract import grants, probe, uat
from agentstore_runner.handlers import Handler, Report, Work
from agentstore_runner.shutdown import Shutdown

log = logging.getLogger(__name__)

AS_CHECKS: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    uat.KIND: lambda spec: spec,
    probe.KIND: probe.as_checks,
}
"""Kinds that open addresses, and what a spec of theirs asks for as a UAT spec."""


class SpecError(Exception):
    """The file holds no spec; the text says why."""


def read(path: Path) -> dict[str, Any]:
    """Read a spec; SpecError if the file is not JSON or not an object."""
    try:
        spec = json.loads(path.read_bytes())
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not JSON: {error}") from None
    if not isinstance(spec, dict):
        raise SpecError(f"{path} holds no JSON object")
    return spec


def tried(
    handler: Handler, kind: str, spec: dict[str, Any], *, seconds: float, out: Path, shutdown: Shutdown
) -> Report:
    """Run a spec here and now, keep its files in `out`, and return what would have been reported."""
    out.mkdir(parents=True, exist_ok=True)
    scratch = out / ".scratch"
    scratch.mkdir()
    job_id = str(uuid.uuid4())
    try:
        desk = LocalDesk(out, seconds)
        as_checks = AS_CHECKS.get(kind)
        target = own_grant(as_checks(spec)).document() if as_checks else None
        work = Work(job_id, job_id, kind, spec, 1, seconds, scratch, target)
        with shutdown.telling(lambda: desk.stop("shutdown")):
            return handler.run(work, desk)
    except Exception as error:  # noqa: BLE001 - whatever a handler does, its author gets what a server would
        return letters.crashed(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def own_grant(spec: Mapping[str, Any]) -> grants.Grant:
    """Return a grant of all that valid checks ask for: their author runs them, and no server has a target to ask."""
    target = spec["target"]
    return grants.Grant(
        name="this machine",
        origins=(grants.origin(target["base_url"]),),
        hosts=tuple(target.get("allow_hosts", ())),
        secrets=tuple(source["env"] for source in spec.get("secrets", {}).values()),
        allow_local=True,
        allow_traces=True,
    )


class LocalDesk:
    """A desk without a server: files are copied into a folder."""

    def __init__(self, out: Path, seconds: float) -> None:
        self._out = out
        self._deadline = time.monotonic() + seconds
        self._changed = threading.Condition()
        self._reason: str | None = None

    def stopped(self) -> str | None:
        """Return None, or why to stop."""
        if self._reason is None and time.monotonic() >= self._deadline:
            self._reason = "deadline"
        return self._reason

    def wait(self, seconds: float) -> str | None:
        """Sleep at most so many seconds; return early with the reason to stop."""
        until = min(time.monotonic() + seconds, self._deadline)
        with self._changed:
            self._changed.wait_for(lambda: self._reason is not None, timeout=max(until - time.monotonic(), 0.0))
        return self.stopped()

    def stop(self, reason: str) -> None:
        """Tell the handler to stop."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def progress(self, done: int, total: int, title: str) -> None:
        """Write a line."""
        log.info("%d of %d: %s", done, total, title)

    def measure(self, progress: Mapping[str, int | str], counters: Mapping[str, int]) -> None:
        """Write a line."""
        log.info("%s", {**progress, **counters})

    def attach(self, path: Path, *, name: str, content_type: str) -> None:
        """Copy the file under the last part of its name."""
        shutil.copyfile(path, self._out / Path(name).name)

    def log(self, message: str) -> None:
        """Write a line."""
        log.info("%s", message)
