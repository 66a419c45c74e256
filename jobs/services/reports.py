"""What a runner reports of an ended attempt, and what of it is stored: repaired, redacted, and judged by the server."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentstore_runner.contract.problem import Problem
from agentstore_runner.redaction import Redactor

from jobs.engine.failure_classes import FailureClass, known
from jobs.models import AgentJob, AgentTask

from .documents import sanitise
from .errors import Invalid
from .kinds import CONTRACTS, MAX_PROBLEMS

MAX_ERROR, MAX_WORD, MAX_RESULT_BYTES = 20_000, 200, 1024 * 1024
CUT = " … [cut]"
COUNTERS = ("bytes_processed", "bytes_written", "files_processed", "files_skipped")
NO_REASON = "The runner gave no reason."


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a runner says of an ended attempt, as it said it. `digest` is the SHA-256 of the body as received."""

    digest: str
    status: str
    verdict: str | None = None
    results: dict[str, Any] | None = None
    error: str | None = None
    failure_class: str | None = None
    details: dict[str, Any] | None = None
    # of tasks only
    error_code: str | None = None
    snapshot: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Clean:
    """A report on its way into the row; `columns` are those that only this table has."""

    status: str
    error: str | None
    failure_class: str | None = None
    reported_class: str | None  # the runner's own word, perhaps one that no rule knows
    details: dict[str, Any]
    columns: dict[str, Any]
    redactions: int
    differing_verdict: str | None = None  # the runner's own, where the server came to another

    @property
    def reasons(self) -> Sequence[str]:
        """Why the verdict is what it is."""
        return (self.columns.get("results") or {}).get("reasons") or ()

    def as_evidence(self) -> dict[str, Any]:
        """The report as it is kept when no row takes it."""
        known_class = self.failure_class and str(self.failure_class)
        said = {"status": self.status, "error": self.error, "failure_class": known_class, "details": self.details}
        return said | self.columns


def of_job(report: Report, kind: str, spec: object) -> Clean:
    """What to store of a job's report; the rules of its kind decide the verdict. Raises Invalid."""
    clean = _repaired(report, {"results": report.results})
    results, verdict = clean.columns["results"], report.verdict
    if results is not None and len(json.dumps(results).encode()) > MAX_RESULT_BYTES:
        raise Invalid([Problem("/results", f"At most {MAX_RESULT_BYTES:,} bytes.")])
    if clean.status != AgentJob.Status.DONE:
        verdict = None
    elif contract := CONTRACTS.get(kind):
        if results is None:
            raise Invalid([Problem("/results", "A done job of this kind reports results.")])
        if found := _within("/results", contract.result_problems(results, spec if isinstance(spec, dict) else {})):
            raise Invalid(found[:MAX_PROBLEMS])
        judgement = contract.judge(results)
        verdict = judgement.verdict
        if verdict is None:  # nothing evaluated is a failure, not a verdict
            clean.status, clean.failure_class = AgentJob.Status.FAILED.value, FailureClass.INTERNAL
            reasons = ", ".join(judgement.reasons)
            clean.error = clean.error or _cut(f"Nothing could be evaluated: {reasons}", MAX_ERROR)
        else:
            clean.columns["results"] = results | {"verdict": verdict, "reasons": list(judgement.reasons)}
    clean.columns["verdict"] = verdict
    if report.verdict and verdict and report.verdict != verdict:
        clean.differing_verdict = report.verdict
    return _classified(clean, {AgentJob.Status.FAILED})


def of_task(report: Report, task_type: str) -> Clean:
    """What to store of a task's report: a success leaves nothing out and names its snapshot. Raises Invalid."""
    clean = _repaired(report, {"error_code": report.error_code, "backup_id_in_repository": report.snapshot})
    for name in ("error_code", "backup_id_in_repository"):
        clean.columns[name] = clean.columns[name] and _cut(clean.columns[name], MAX_WORD)
    clean.columns |= report.counters
    if clean.status == AgentTask.Status.SUCCEEDED:
        if report.counters.get("files_skipped"):
            raise Invalid([broken_rule("agent_tasks_skipped_is_not_success")])
        backed_up = clean.columns["backup_id_in_repository"] or clean.details.get("unchanged_parent")
        if task_type == AgentTask.Type.BACKUP and not backed_up:
            raise Invalid([Problem("/backup_id_in_repository", "A backup that succeeded names its snapshot.")])
    return _classified(clean, {AgentTask.Status.FAILED, AgentTask.Status.PARTIAL_FAILURE})


def broken_rule(constraint: str) -> Problem:
    """What is wrong with a report that breaks a rule of the database."""
    if constraint == "agent_tasks_skipped_is_not_success":
        return Problem("/counters/files_skipped", "A task that skipped files has not succeeded.")
    return Problem("", f"The report does not fit its row: {constraint}.")


def _repaired(report: Report, columns: dict[str, Any]) -> Clean:
    redactor = Redactor()
    parts = {
        "error": report.error, "failure_class": report.failure_class, "details": report.details or {},
        "columns": columns,
    }  # fmt: skip
    parts, repaired = sanitise(redactor.document(parts))
    clean = Clean(
        status=report.status, error=parts["error"] and _cut(parts["error"], MAX_ERROR),
        reported_class=parts["failure_class"], details=parts["details"], columns=parts["columns"],
        redactions=redactor.count,
    )  # fmt: skip
    if repaired:
        clean.details["sanitised"] = True
    return clean


def _classified(clean: Clean, failures: set[str]) -> Clean:
    """Give a failure its class and a reason; a class that is not stored as reported is kept in the details."""
    if clean.status not in failures:
        return clean
    clean.failure_class = clean.failure_class or known(clean.reported_class)
    if clean.failure_class == FailureClass.LOST:
        # The server's own word: only silence that the reaper measured is lost.
        clean.failure_class = FailureClass.INTERNAL
    if clean.reported_class and clean.failure_class != clean.reported_class:
        clean.details["reported_class"] = _cut(clean.reported_class, MAX_WORD)
    clean.error = clean.error or NO_REASON
    return clean


def _within(prefix: str, problems: Iterable[Problem]) -> list[Problem]:
    return [Problem(prefix + problem.pointer, problem.message) for problem in problems]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(CUT)] + CUT
