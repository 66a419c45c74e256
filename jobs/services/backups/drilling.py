"""Restore drills by the clock: whether what was backed up comes back, tried on the machine that it came from."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import DurationField, Exists, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from jobs.models import Agent, AgentTask, BackupJob, BackupJobRun, BackupJobSource, BackupSnapshot
from jobs.models.backup_runs import OPEN
from jobs.services.errors import Invalid

from .launching import Target, launch_restore

BY = "maintenance"  # who acts, in the audit trail
REASON = "Restore drill"
AGAIN_AFTER = timedelta(days=1)  # what failed, or never began, is tried again then

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """How many drills were launched."""

    launched: int


def launch_due() -> Drilled:
    """Launch a drill of the newest complete snapshot of each source whose last good verification is too long ago.

    One of an agent at a time. A source that fails stops no other; raises an ExceptionGroup in the end.
    """
    launched, failures = 0, []
    for source_id in _due().order_by("pk").values_list("pk", flat=True):
        try:
            launched += _launch(source_id)
        except (OperationalError, InterfaceError):
            raise  # the database, not the source
        except Exception as error:  # one source must never stop another
            log.error("A restore drill could not be launched.", source=str(source_id), exc_info=error)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} restore drills could not be launched", failures)
    return Drilled(launched=launched)


@transaction.atomic
def _launch(source_id: UUID) -> bool:
    """Launch one drill, unless another loop did meanwhile: whoever launches holds the row of its job."""
    jobs = BackupJob.objects.filter(sources=source_id).select_for_update(no_key=True, skip_locked=True)
    if jobs.first() is None:
        return False
    source = _due().filter(pk=source_id).select_related("job", "agent").first()
    if source is None:
        return False
    target = Target(
        agent=source.agent.principal_key, mode="scratch", overwrite="always", sample_files=source.job.drill_files
    )
    try:
        launch_restore(snapshot_id=source.newest, target=target, by=BY, reason=REASON, is_drill=True)
    except Invalid as refusal:
        said = "; ".join(problem.message for problem in refusal.problems)
        raise RuntimeError(f"{source.job} / {source}: {said}") from None
    return True


def _due() -> QuerySet[Any]:
    """The sources that are due, with `newest`, the snapshot to restore; an empty one, and damage, rehearse nothing."""
    interval = Func(
        OuterRef("job__drill_every_days"), template="make_interval(days => %(expressions)s)",
        output_field=DurationField(),
    )  # fmt: skip
    snapshots = BackupSnapshot.objects.filter(source=OuterRef("pk"))
    verified = snapshots.filter(verified_ok=True, verified_at__gt=Now() - interval)
    newest = snapshots.filter(
        complete=True, forgotten_at=None, files__gt=0, repository__damaged_at=None, repository__retired_at=None
    )
    drills = BackupJobRun.objects.filter(
        Q(status__in=OPEN) | Q(created_at__gt=Now() - AGAIN_AFTER),
        job=OuterRef("job"), trigger=BackupJobRun.Trigger.DRILL, agenttask__job_source=OuterRef("pk"),
    )  # fmt: skip
    of_agent = AgentTask.objects.unfinished().filter(
        agent=OuterRef("agent"), job_run__trigger=BackupJobRun.Trigger.DRILL
    )
    living = BackupJobSource.objects.filter(
        retired_at=None, job__state=BackupJob.State.ACTIVE, job__drill_every_days__isnull=False
    ).exclude(agent__state=Agent.State.DISABLED)
    found = living.annotate(newest=Subquery(newest.order_by("-taken_at").values("pk")[:1]))
    return found.filter(~Exists(verified), ~Exists(drills), ~Exists(of_agent), newest__isnull=False)
