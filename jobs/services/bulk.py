"""Cancel and retry many jobs: each is an act of its own, with its own line in the audit trail and its own outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from agentstore_runner.contract.problem import Problem

from jobs.engine.answers import Cancel
from jobs.engine.errors import EngineRefusal
from jobs.models import AgentJob

from . import governance
from .errors import Invalid, Refusal

AT_MOST = 1_000  # jobs in one go


class Came(StrEnum):
    """What became of one job."""

    CANCELLED = "cancelled"
    ASKED = "asked"
    RETRIED = "retried"
    LEFT = "left"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one job, where to see it, and why it was left as it was."""

    asked_for: UUID
    row_id: UUID
    came: Came
    why: str = ""


def cancel_many(*, job_ids: Sequence[UUID], by: str, reason: str) -> list[Outcome]:
    """Cancel each job as `governance.cancel` does, in the order given; one that is refused stops no other.

    Raises Invalid for the reason, or for more than AT_MOST jobs; nothing was done then.
    """

    def act(job_id: UUID) -> Outcome:
        done = governance.cancel(AgentJob.objects.all(), job_id, by=by, reason=reason)
        match done.outcome:
            case Cancel.CLOSED:
                return Outcome(asked_for=job_id, row_id=done.row_id, came=Came.CANCELLED)
            case Cancel.ASKED:
                return Outcome(asked_for=job_id, row_id=done.row_id, came=Came.ASKED)
        return Outcome(asked_for=job_id, row_id=done.row_id, came=Came.LEFT, why="A cancel was requested before.")

    return _each(job_ids, reason, act)


def retry_many(*, job_ids: Sequence[UUID], by: str, reason: str) -> list[Outcome]:
    """Queue the next attempt of each job as `governance.retry` does; otherwise like `cancel_many`."""

    def act(job_id: UUID) -> Outcome:
        again = governance.retry(AgentJob.objects.all(), job_id, by=by, reason=reason)
        return Outcome(asked_for=job_id, row_id=again, came=Came.RETRIED)

    return _each(job_ids, reason, act)


def _each(job_ids: Sequence[UUID], reason: str, act: Callable[[UUID], Outcome]) -> list[Outcome]:
    governance.check_reason(reason)
    wanted = list(dict.fromkeys(job_ids))
    if not wanted or len(wanted) > AT_MOST:
        raise Invalid([Problem("/chosen", f"From 1 to {AT_MOST} jobs.")])
    outcomes = []
    for job_id in wanted:
        try:
            outcomes.append(act(job_id))
        except (Refusal, EngineRefusal) as refusal:
            problems = refusal.problems if isinstance(refusal, Invalid) else ()
            why = " ".join(problem.message for problem in problems) or str(refusal)
            outcomes.append(Outcome(asked_for=job_id, row_id=job_id, came=Came.LEFT, why=why))
    return outcomes
