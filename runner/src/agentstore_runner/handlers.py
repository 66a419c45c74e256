"""What a handler of one or more job kinds is given, what it gives back, and how installed handlers are found."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from agentstore_runner.contract.problem import Problem
from agentstore_runner.redaction import Redactor

ENTRY_POINTS = "agentstore.handlers"
TASK_ENTRY_POINTS = "agentstore.task_handlers"


@dataclass(frozen=True)
class Work:
    """One claimed attempt: `seconds_left` until its deadline at the moment of the claim, `scratch` an empty folder.

    `target` is what the server lets a job of this address do (`contract.grants`), for kinds that open addresses.
    """

    id: str
    root_id: str
    kind: str
    spec: dict[str, Any]
    attempt: int
    seconds_left: float
    scratch: Path
    target: Mapping[str, Any] | None = None


class Desk(Protocol):
    """What a handler may ask of the supervisor while it works."""

    def stopped(self) -> str | None:
        """Return None, or why to stop: "cancel", "shutdown", "lease" or "deadline"."""

    def wait(self, seconds: float) -> str | None:
        """Sleep at most so many seconds; return early with the reason to stop."""

    def progress(self, done: int, total: int, title: str) -> None:
        """Remember how far the work is; the next heartbeat carries it."""

    def measure(self, progress: Mapping[str, int | str], counters: Mapping[str, int]) -> None:
        """Remember how far a backup or restore is, in words and in the server's counters, for the next heartbeat."""

    def attach(self, path: Path, *, name: str, content_type: str) -> None:
        """Upload a file now, with retries; a failure becomes a note in the result and never an exception."""

    def log(self, message: str) -> None:
        """Write one redacted line to the runner's log."""


@dataclass(frozen=True)
class Report:
    """How the work ended; `failed` needs an `error` text, and `redactor` knows the secrets that the work used.

    A job is `done`; a task has `succeeded` or is a `partial_failure`, and it alone has counters, a code and a snapshot.
    """

    status: Literal["done", "succeeded", "partial_failure", "failed", "cancelled"]
    verdict: str | None = None
    results: dict[str, Any] | None = None
    error: str | None = None
    failure_class: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    redactor: Redactor | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    error_code: str | None = None
    snapshot: str | None = None


class Handler(Protocol):
    """Does the work of its kinds in the main thread, because parent-death signals follow the thread that spawned."""

    kinds: tuple[str, ...]

    def run(self, work: Work, desk: Desk) -> Report:
        """Do the work and report; an exception is reported as failed / internal."""


@runtime_checkable
class Checking(Protocol):
    """A handler that can say beforehand what is wrong with a spec, for authors who work without a server."""

    def problems(self, spec: Mapping[str, Any]) -> list[Problem]:
        """Return everything that is wrong; nothing if the spec can be run."""


@runtime_checkable
class Prepared(Protocol):
    """A handler whose work depends on what this machine has been given; what is not prepared is not claimed unasked."""

    def prepared(self) -> bool:
        """Say whether somebody has set this machine up for the work."""


@runtime_checkable
class Capable(Protocol):
    """A handler of tasks whose payloads may require something of it."""

    def capabilities(self) -> Collection[str]:
        """Return the requirements of payloads that this machine meets."""

    def engine(self) -> str | None:
        """Return name and version of the program that does the work, for people; None if there is none."""


def installed(group: str = ENTRY_POINTS) -> dict[str, Handler]:
    """Return every installed handler by the kinds it declares; two handlers of one kind are a ValueError."""
    return by_kind(point.load()() for point in sorted(entry_points(group=group), key=lambda point: point.name))


def by_kind(handlers: Iterable[Handler]) -> dict[str, Handler]:
    """Return the handlers by kind; two handlers that declare one kind are a ValueError that names it."""
    found: dict[str, Handler] = {}
    for handler in handlers:
        for kind in handler.kinds:
            if kind in found:
                raise ValueError(f"two installed handlers declare the kind {kind!r}")
            found[kind] = handler
    return found
