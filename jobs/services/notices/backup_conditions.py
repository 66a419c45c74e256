"""What can be wrong with backups: sources overdue, runs that were not whole, repositories found damaged."""

from collections.abc import Iterable

from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.models import BackupJobSource, BackupRepository, Event
from jobs.models.backup_freshness import bad_last_runs, failed_drills, with_freshness

from .condition import Condition


def overdue() -> Iterable[Condition]:
    """Sources whose last good backup is older than their job allows."""
    late = with_freshness(BackupJobSource.objects.select_related("job", "agent")).filter(is_overdue=True)
    for source in late.order_by("job__name", "name"):
        named = {"job": source.job.name, "source": source.name}
        last = f"{source.last_good_at:%Y-%m-%d %H:%M} UTC" if source.last_good_at else _("never")
        yield Condition(
            event=Event.BACKUP_OVERDUE, key=str(source.pk), agent=source.agent.principal_key,
            title=_("Backup overdue: %(job)s / %(source)s") % named,
            detail=_("Last good backup: %(when)s.") % {"when": last},
            path=reverse("admin:jobs_backupjob_change", args=[source.job_id]),
        )  # fmt: skip


def bad_runs() -> Iterable[Condition]:
    """Backup jobs whose latest run that is over failed, was only partial, or never began."""
    for run in bad_last_runs().select_related("job").order_by("job__name"):
        named = {"job": run.job.name, "status": run.get_status_display()}
        counts = {"good": run.sources_succeeded, "all": run.sources_total, "skipped": run.files_skipped}
        yield Condition(
            event=Event.BACKUP_RUN_BAD, key=str(run.job_id), agent="",
            title=_("Backup %(job)s: %(status)s") % named,
            detail=_("%(good)d of %(all)d sources are good, %(skipped)d files were skipped.") % counts,
            path=reverse("admin:jobs_backupjobrun_change", args=[run.pk]),
        )  # fmt: skip


def damaged() -> Iterable[Condition]:
    """Repositories that somebody found damaged, until a person trusts them again or retires them."""
    for repository in BackupRepository.objects.filter(damaged_at__isnull=False, retired_at=None).order_by("name"):
        yield Condition(
            event=Event.REPOSITORY_DAMAGED, key=str(repository.pk), agent="",
            title=_("Backup repository damaged: %(name)s") % {"name": repository.name},
            detail=_("Found on %(when)s UTC. Nothing is removed from it until somebody trusts it again.")
            % {"when": f"{repository.damaged_at:%Y-%m-%d %H:%M}"},
            path=reverse("admin:jobs_backuprepository_change", args=[repository.pk]),
        )  # fmt: skip


def drills() -> Iterable[Condition]:
    """Sources whose latest restore drill failed, until one succeeds."""
    failed = failed_drills().select_related("agent", "job_source__job").defer("task_payload")
    for task in failed.order_by("job_source__job__name", "job_source__name"):
        named = {"job": task.job_source.job.name, "source": task.job_source.name}
        yield Condition(
            event=Event.DRILL_FAILED, key=str(task.job_source_id), agent=task.agent.principal_key,
            title=_("Restore drill failed: %(job)s / %(source)s") % named, detail=task.error_message or "",
            path=reverse("admin:jobs_backupjobrun_change", args=[task.job_run_id]),
        )  # fmt: skip
