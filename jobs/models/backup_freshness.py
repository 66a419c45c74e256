"""How backups stand: when each source was last backed up whole, whether that is too long ago, which runs were bad."""

from typing import Any

from django.db.models import BooleanField, DurationField, ExpressionWrapper, F, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now

from .agent_tasks import AgentTask
from .backup_runs import OPEN, BackupJobRun, BackupSnapshot
from .backups import BackupJob, BackupJobSource


def with_freshness(sources: QuerySet[BackupJobSource]) -> QuerySet[Any]:
    """The sources with `last_good_at` and `is_overdue`.

    Good is a complete snapshot that is still there. A source that never had one counts from its making; one that is
    retired, or whose job rests, is never overdue.
    """
    good = BackupSnapshot.objects.filter(source=OuterRef("pk"), complete=True, forgotten_at=None)
    allowed = Func(
        F("job__overdue_after_seconds"), template="make_interval(secs => %(expressions)s)", output_field=DurationField()
    )
    late = Q(since__lt=Now() - allowed, retired_at=None, job__state=BackupJob.State.ACTIVE)
    return (
        sources.annotate(last_good_at=Subquery(good.order_by("-taken_at").values("taken_at")[:1]))
        .alias(since=Coalesce("last_good_at", "created_at"))
        .annotate(is_overdue=ExpressionWrapper(late, output_field=BooleanField()))
    )


def bad_last_runs() -> QuerySet[Any]:
    """The latest backup run of each active job that is over, where it was anything but a success or cancelled."""
    over = BackupJobRun.objects.filter(job=OuterRef("pk"), kind=BackupJobRun.Kind.BACKUP).exclude(status__in=OPEN)
    asked_for = over.exclude(status=BackupJobRun.Status.CANCELLED)
    jobs = BackupJob.objects.filter(state=BackupJob.State.ACTIVE)
    last = jobs.values(last=Subquery(asked_for.order_by("-created_at").values("pk")[:1]))
    return BackupJobRun.objects.filter(pk__in=last).exclude(status=BackupJobRun.Status.SUCCEEDED)


def with_verification(sources: QuerySet[Any]) -> QuerySet[Any]:
    """The sources with `verified_at` and `verified_ok` of the snapshot that was verified last; None for never."""
    latest = BackupSnapshot.objects.filter(source=OuterRef("pk"), verified_at__isnull=False).order_by("-verified_at")
    found: QuerySet[Any] = sources.annotate(
        verified_at=Subquery(latest.values("verified_at")[:1]), verified_ok=Subquery(latest.values("verified_ok")[:1])
    )
    return found


def failed_drills() -> QuerySet[Any]:
    """The latest attempt at the latest drill of each source that is rehearsed, where it failed.

    One that is open, was cancelled or never began says nothing, so what the one before it said still holds.
    """
    said = ("succeeded", "partial_failure", "failed")
    drills = AgentTask.objects.filter(
        job_source=OuterRef("pk"), job_run__job=OuterRef("job"), job_run__trigger=BackupJobRun.Trigger.DRILL,
        status__in=said, job_run__status__in=said,
    )  # fmt: skip
    sources = BackupJobSource.objects.filter(
        retired_at=None, job__state=BackupJob.State.ACTIVE, job__drill_every_days__isnull=False
    )
    last = sources.values(last=Subquery(drills.order_by("-job_run__created_at", "-attempt").values("pk")[:1]))
    return AgentTask.objects.filter(pk__in=last, status__in=said[1:])
