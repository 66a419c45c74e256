"""Legal holds: while one lies on a job, neither the clock nor anybody else deletes it or its files."""

from uuid import UUID

from django.db import IntegrityError, transaction

from jobs import audit
from jobs.models import AgentJob, LegalHold

from .errors import AlreadyHeld, NotFound, NotHeld
from .governance import check_reason


@transaction.atomic
def place_hold(*, job_id: UUID, by: str, reason: str) -> None:
    """Hold all attempts of a job, those to come too. Raises NotFound, AlreadyHeld, or Invalid for the reason."""
    check_reason(reason)
    job = _job(job_id)
    try:
        with transaction.atomic():
            LegalHold.objects.create(root_id=job.chain_id, placed_by=by, reason=reason)
    except IntegrityError:
        raise AlreadyHeld from None
    audit.record(audit.Tag.HOLD_PLACED, job, actor=by, reason=reason)


@transaction.atomic
def release_hold(*, job_id: UUID, by: str, reason: str) -> None:
    """Let the retention of its kind decide about a job again. Raises NotFound, NotHeld, or Invalid for the reason."""
    check_reason(reason)
    job = _job(job_id)
    released, _ = LegalHold.objects.filter(root_id=job.chain_id).delete()
    if not released:
        raise NotHeld
    audit.record(audit.Tag.HOLD_RELEASED, job, actor=by, reason=reason)


def _job(job_id: UUID) -> AgentJob:
    # Locked against the purge: a hold that is placed lies on a job that is there.
    job = AgentJob.objects.select_for_update(no_key=True).filter(pk=job_id).first()
    if job is None:
        raise NotFound
    return job
