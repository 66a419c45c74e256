"""Turning what a handler reports into what the server is told: truthful, redacted and storable."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

from agentstore_runner.contract.backup_words import error_code_known
from agentstore_runner.desk import Note
from agentstore_runner.handlers import Report
from agentstore_runner.redaction import Redactor
from agentstore_runner.spool import Letter
from agentstore_runner.tables import TASKS, Table

# The server refuses deeper documents.
DEEPEST = 60
LONGEST_ERROR = 4000


def stopped(reason: str | None) -> Report:
    """Say for a handler that did not end by itself why it ended."""
    match reason:
        case "cancel":
            return Report("cancelled", details={"code": "cancelled_by_admin"})
        case "deadline":
            error = "the work took longer than its kind may"
            return Report("failed", error=error, failure_class="timeout", details={"code": "max_runtime"})
        case "lease":
            error = "the work was stopped because its lease was about to end unrenewed"
            return Report("failed", error=error, failure_class="interrupted", details={"code": "heartbeat_lost"})
        case _:
            error = "the runner was told to stop before the work was done"
            return Report("failed", error=error, failure_class="interrupted", details={"code": "agent_shutdown"})


def crashed(error: BaseException) -> Report:
    """Report a handler that raised."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Report("failed", error=text, failure_class="internal", details={"code": "handler_crashed"})


def honest(report: Report, reason: str | None) -> Report:
    """Correct what a handler may not say: cancelled without a cancel, failed without an error."""
    if report.status == "cancelled" and reason != "cancel":
        why = stopped(reason)
        return replace(
            report,
            status="failed",
            error=report.error or why.error,
            failure_class=report.failure_class or why.failure_class,
            details={**why.details, **report.details},
        )
    if report.status == "failed" and not report.error:
        return replace(
            report,
            error="the handler reported a failure without saying which",
            failure_class=report.failure_class or "internal",
        )
    return report


def compose(
    table: Table, job_id: str, claim_id: str, report: Report, *, notes: list[Note], redactor: Redactor
) -> Letter:
    """Write the report as the body that is posted, redacted by the work's own secrets and by the runner's."""
    details = dict(report.details)
    if notes:
        details["artifact_notes"] = [asdict(note) for note in notes]
    fields = {
        "status": report.status,
        **(_of_task(report) if table is TASKS else {"verdict": report.verdict, "results": report.results}),
        "error": None if report.error is None else report.error[:LONGEST_ERROR],
        "failure_class": report.failure_class,
        "details": details or None,
    }
    content = storable({name: value for name, value in fields.items() if value is not None})
    if report.redactor is not None:
        content = report.redactor.document(content)
    content = redactor.document(content)
    body = json.dumps({"claim_id": claim_id, **content}, allow_nan=False)
    return Letter(job_id, claim_id, body, table=table.name)


def _of_task(report: Report) -> dict[str, Any]:
    """Return what only the result of a task has; a report that names no code has it in its details."""
    code = report.error_code or str(report.details.get("code", ""))
    return {
        "counters": dict(report.counters) or None,
        "error_code": code if error_code_known(code) else None,
        "backup_id_in_repository": report.snapshot,
    }


def storable(value: Any, depth: int = 0) -> Any:
    """Return the value in the JSON that PostgreSQL can store: no NUL, no lone surrogate, no NaN, not too deep."""
    if depth > DEEPEST:
        return "(nested too deep)"
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {_text(str(name)): storable(member, depth + 1) for name, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [storable(member, depth + 1) for member in value]
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
