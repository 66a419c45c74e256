"""How backups stand: when each source was last backed up whole, whether that is too long ago, which runs were bad."""

from typing import Any

from django.db.models import BooleanField, DurationField, ExpressionWrapper, F, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now

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
