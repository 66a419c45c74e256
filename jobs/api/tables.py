"""The two leased tables as runners see them: what their calls name, and what a result of each may say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.engine.leases import LeaseQuerySet
from jobs.models import AgentJob, AgentTask
from jobs.services.capabilities import Able
from jobs.services.reports import COUNTERS, Report

from .fields import Fields
from .limits import MAX_NAME, MAX_RUN_REF, MAX_WORDS


@dataclass(frozen=True, kw_only=True)
class Table:
    """One leased table; the callables read what only its own bodies have."""

    rows: Callable[[], LeaseQuerySet[Any]]
    kinds: str  # member of a claim that lists what the runner can do
    row_id: str  # member of a claim that asks for one row
    columns: Callable[[Fields], Mapping[str, object]]
    able: Callable[[Fields], Able | None]
    counters: Callable[[Fields], Mapping[str, int]]
    report: Callable[[Fields, str], Report]


def _job_columns(fields: Fields) -> Mapping[str, object]:
    return {"run_ref": fields.optional_text("run_ref", longest=MAX_RUN_REF)}


def _job_able(fields: Fields) -> None:
    """Jobs require nothing; a runner may say the same in both of its claims."""
    fields.optional_texts("capabilities", longest=MAX_NAME, most=MAX_WORDS)


def _task_able(fields: Fields) -> Able:
    names = fields.optional_texts("capabilities", longest=MAX_NAME, most=MAX_WORDS)
    return Able(names=names or (), engine=fields.optional_text("engine", longest=MAX_NAME) or "")


def _job_report(fields: Fields, digest: str) -> Report:
    return Report(
        digest=digest,
        status=fields.one_of("status", AgentJob.lifecycle.finished),
        verdict=fields.optional_one_of("verdict", AgentJob.Verdict.values),
        results=fields.optional_object("results"),
        error=fields.any_text("error"),
        failure_class=fields.any_text("failure_class"),
        details=fields.optional_object("details"),
    )


def _task_report(fields: Fields, digest: str) -> Report:
    return Report(
        digest=digest,
        status=fields.one_of("status", AgentTask.lifecycle.finished),
        error=fields.any_text("error"),
        error_code=fields.any_text("error_code"),
        failure_class=fields.any_text("failure_class"),
        snapshot=fields.any_text("backup_id_in_repository"),
        counters=_counters(fields),
        details=fields.optional_object("details"),
    )


def _counters(fields: Fields) -> dict[str, int]:
    """The counters that a body names; those it leaves out stay as they are."""
    if (inner := fields.optional_inner("counters")) is None:
        return {}
    found = {name: inner.optional_count(name) for name in COUNTERS}
    return {name: count for name, count in found.items() if count is not None}


JOBS = Table(
    rows=AgentJob.objects.all,
    kinds="kinds",
    row_id="job_id",
    columns=_job_columns,
    able=_job_able,
    counters=lambda _: {},
    report=_job_report,
)
TASKS = Table(
    rows=AgentTask.objects.all,
    kinds="task_types",
    row_id="task_id",
    columns=lambda _: {},
    able=_task_able,
    counters=_counters,
    report=_task_report,
)
