"""Maintenance of repositories by the clock: each one when it is due, never two of one at once."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from agentstore_runner.contract import backup_jobs
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import DurationField, F, Func, QuerySet
from django.db.models.functions import Now

from jobs.models import AgentJob, BackupRepository
from jobs.services.errors import Duplicate, Invalid

from .maintaining import Plan, dedupe_key, enqueue_maintenance

BY = "maintenance"  # who acts, in the audit trail

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Upkept:
    """How many repositories got a maintenance that was due."""

    enqueued: int


def due_at(repository: BackupRepository) -> datetime | None:
    """When its next maintenance is due; None for never."""
    if repository.maintenance_from is None or repository.maintenance_every_days is None:
        return None
    return repository.maintenance_from + timedelta(days=repository.maintenance_every_days)


def enqueue_due() -> Upkept:
    """Queue the maintenance of every repository that is due: retention and a check, on a damaged one the check alone.

    While a maintenance of it waits or runs, also one that a person queued, none is added. A repository that fails stops
    no other; raises an ExceptionGroup in the end.
    """
    enqueued, failures = 0, []
    for repository_id in _due().order_by("maintenance_from", "pk").values_list("pk", flat=True):
        try:
            enqueued += _enqueue(repository_id)
        except (OperationalError, InterfaceError):
            raise  # the database, not the repository
        except Exception as error:  # one repository must never stop another
            log.error("A repository could not be maintained.", repository=str(repository_id), exc_info=error)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} repositories could not be maintained", failures)
    return Upkept(enqueued=enqueued)


@transaction.atomic
def _enqueue(repository_id: UUID) -> bool:
    """Queue one maintenance, unless another loop did or one is open."""
    rows = _due().filter(pk=repository_id).select_related("maintenance_agent")
    repository = rows.select_for_update(no_key=True, skip_locked=True, of=("self",)).first()
    if repository is None or repository.maintenance_agent is None:
        return False
    if AgentJob.objects.unfinished().filter(dedupe_key=dedupe_key(repository)).exists():
        return False
    agent, check = repository.maintenance_agent.principal_key, repository.maintenance_check
    plan = Plan(apply_retention=True, check=check)
    if repository.damaged_at is not None:
        plan = Plan(check=check if check != backup_jobs.CHECKS[0] else backup_jobs.CHECKS[1])
    try:
        enqueue_maintenance(repository_id=repository.pk, agent=agent, plan=plan, by=BY)
    except Duplicate:
        return False
    except Invalid as refusal:
        said = "; ".join(problem.message for problem in refusal.problems)
        raise RuntimeError(f"{repository}: {said}") from None
    BackupRepository.objects.filter(pk=repository.pk).update(maintenance_from=Now())
    return True


def _due() -> QuerySet[BackupRepository]:
    interval = Func(
        F("maintenance_every_days"), template="make_interval(days => %(expressions)s)", output_field=DurationField()
    )
    return BackupRepository.objects.filter(retired_at=None, maintenance_from__lte=Now() - interval)
