"""What people say about failures: known, whose it is, no news until a date."""

from datetime import datetime
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Coalesce, Now

from jobs import audit
from jobs.models import Acknowledgement, AgentJob

from .database_clock import database_now
from .documents import UNSTORABLE
from .errors import Invalid, NotFound
from .governance import check_reason


def is_wrong() -> Q:
    """Which jobs may be acknowledged: those that failed, or whose verdict is not pass."""
    return Q(status=AgentJob.Status.FAILED) | Q(verdict__in=[AgentJob.Verdict.FAIL, AgentJob.Verdict.RISK])


def is_known() -> Exists:
    """Whether a failure is acknowledged, by itself and not only until a date that has passed, or muted by its kind."""
    said = Acknowledgement.objects.filter(Q(muted_until=None) | Q(muted_until__gt=Now()))
    own = Q(root_id=Coalesce(OuterRef("root_id"), OuterRef("id")))
    muted = Q(agent=OuterRef("agent_id"), kind=OuterRef("kind"), muted_until__gt=Now())
    return Exists(said.filter(own | muted))


def is_assigned_to(person: str) -> Q:
    """Which jobs somebody looks after."""
    roots = Acknowledgement.objects.filter(assignee=person).values("root_id")
    return is_wrong() & Q(root_id__in=roots)


@transaction.atomic
def acknowledge(*, job_id: UUID, by: str, reason: str, assignee: str = "", muted_until: datetime | None = None) -> UUID:
    """Say that a failed chain is known; saying so again replaces what was said. Returns its latest attempt's id.

    Muted, it and further failures of its kind on its agent are no news until then, and news again after it.
    Raises NotFound or Invalid.
    """
    check_reason(reason)
    job, problems = _latest(job_id), []
    if not AgentJob.objects.filter(is_wrong(), pk=job.pk).exists():
        problems.append(Problem("/status", "Only a failure, or a verdict of fail or risk, is acknowledged."))
    if muted_until and muted_until <= database_now():
        problems.append(Problem("/muted_until", "Must lie ahead."))
    if assignee and (
        UNSTORABLE.search(assignee) or not User.objects.filter(username=assignee, is_active=True).exists()
    ):
        problems.append(Problem("/assignee", "There is nobody of that name."))
    if problems:
        raise Invalid(problems)
    said = {
        "agent": job.agent_id, "kind": job.kind, "reason": reason, "assignee": assignee, "muted_until": muted_until,
        "by": by, "at": Now(),
    }  # fmt: skip
    Acknowledgement.objects.update_or_create(root_id=job.chain_id, defaults=said)
    until = muted_until.isoformat() if muted_until else None
    details = {"assignee": assignee, "muted_until": until}
    audit.record(audit.Tag.ACKNOWLEDGED, job, actor=by, reason=reason, details=details)
    return job.pk


@transaction.atomic
def reopen(*, job_id: UUID, by: str, reason: str) -> UUID:
    """Take an acknowledgement back: the failure is news again. Raises NotFound or Invalid."""
    check_reason(reason)
    job = _latest(job_id)
    if not Acknowledgement.objects.filter(root_id=job.chain_id).delete()[0]:
        raise Invalid([Problem("/status", "It is not acknowledged.")])
    audit.record(audit.Tag.REOPENED, job, actor=by, reason=reason)
    return job.pk


def holding(job: AgentJob) -> Acknowledgement | None:
    """What is said about a job's own chain, else the mute of its kind on its agent that holds longest; None if neither.

    Its own is given also after its mute is over.
    """
    own = Acknowledgement.objects.filter(root_id=job.chain_id).first()
    muted = Acknowledgement.objects.filter(agent=job.agent_id, kind=job.kind, muted_until__gt=Now())
    return own or muted.order_by("-muted_until").first()


def _latest(job_id: UUID) -> AgentJob:
    job = AgentJob.objects.filter(pk=job_id).only("root_id").first()
    latest = AgentJob.objects.chain(job.chain_id).defer("spec", "results").last() if job else None
    if latest is None:
        raise NotFound
    return latest
