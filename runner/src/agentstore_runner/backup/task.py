"""One task from its payload to its report: what is the same for a backup and a restore."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentstore_runner import clock
from agentstore_runner.backup import configuration, credentials, engine
from agentstore_runner.backup.configuration import Configuration, ConfigurationError
from agentstore_runner.backup.engine import EngineError
from agentstore_runner.backup.hooks import Around
from agentstore_runner.backup.outcome import Outcome, refused
from agentstore_runner.backup.output import Output, clean
from agentstore_runner.backup.progress import shown
from agentstore_runner.backup.session import Session, SettledError
from agentstore_runner.contract import backup
from agentstore_runner.contract.backup import Backup, Reporting, Repository, Restore, UnsupportedError
from agentstore_runner.handlers import Desk, Report, Work
from agentstore_runner.redaction import Redactor

Payload = TypeVar("Payload", Backup, Restore)
_LONGEST_TEXT = 500


@dataclass
class Task(Generic[Payload]):
    """A task at work; `details` is what the result tells beyond the columns."""

    payload: Payload
    session: Session
    work: Work
    desk: Desk
    redactor: Redactor
    configured: Configuration
    details: dict[str, Any] = field(default_factory=dict)

    def note(self, output: Output, code: int) -> None:
        """Keep the exit code and the first items that failed."""
        reporting = self.payload.reporting
        self.details["exit_code"] = code
        if output.items:
            self.details["items_total"] = len(output.items)
            self.details["items"] = [
                _item(path, text, reporting) for path, text in list(output.items.items())[: reporting.max_error_items]
            ]

    def warn(self, text: str) -> None:
        """Keep a sentence that people should read although the outcome does not depend on it."""
        self.details.setdefault("warnings", []).append(text)


def opened(
    repository: Repository, configured: Configuration, work: Work, desk: Desk, environ: Mapping[str, str]
) -> tuple[Session, Redactor]:
    """Return a session with the repository, and a redactor that knows its secrets.

    Raises EngineError or ConfigurationError.
    """
    found = engine.find(configured.restic, environ)
    credential = credentials.resolve(repository.credential_ref, configured, environ)
    session = Session(found, repository, credential, scratch=work.scratch, desk=desk, environ=environ)
    return session, Redactor(credential.secrets)


def done(work: Work, desk: Desk, environ: Mapping[str, str], action: Callable[[Task[Any]], Outcome]) -> Report:
    """Do a task by the action of its type; every way in which it can end becomes a report."""
    began = clock.now()
    details: dict[str, Any] = {}
    redactor = Redactor([])
    around: Around | None = None
    try:
        payload = backup.read(work.spec, work.kind)
        configured = configuration.read(environ)
        session, redactor = opened(payload.repository, configured, work, desk, environ)
        details["engine"] = {"name": "restic", "version": session.engine.release}
        backup.read(work.spec, work.kind, session.engine.capabilities)
        around = Around(payload.hooks, configured, work.scratch, desk, environ)
        with around.work():
            details["engine_repository_id"] = session.identify()
            outcome = action(Task(payload, session, work, desk, redactor, configured, details))
    except SettledError as settled:
        outcome = settled.outcome
    except UnsupportedError as error:
        outcome = refused("configuration", "payload_unsupported", str(error))
    except EngineError as error:
        outcome = refused("configuration", error.code, str(error))
    except ConfigurationError as error:
        outcome = refused("configuration", "credential_missing", str(error))
    if around is not None and around.ran:
        details["hooks"] = around.ran
    if around is not None and around.complaints:
        details.setdefault("warnings", []).extend(around.complaints)
    details["seconds"] = round(clock.now() - began, 1)
    return report(outcome, details, redactor)


def report(outcome: Outcome, details: Mapping[str, Any], redactor: Redactor) -> Report:
    """Say an outcome in the words of the protocol."""
    return Report(
        outcome.status,
        error=None if outcome.status == "cancelled" else outcome.message,
        failure_class=None if outcome.cause is None else outcome.cause.failure_class,
        error_code=outcome.code,
        counters=outcome.counters,
        snapshot=outcome.snapshot,
        details=dict(details),
        redactor=redactor,
    )


def _item(path: str, text: str, reporting: Reporting) -> dict[str, str]:
    name = shown(path, reporting)
    return {"path": clean(name), "error": clean(text.replace(path, name) if path else text)[:_LONGEST_TEXT]}
