"""What comes of backups: runs, and the catalogue of snapshots."""

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow

from .backups import BackupJob, BackupJobSource, BackupRepository

OPEN = ("pending", "running")


class BackupJobRun(models.Model):
    """One launch of a backup job, or one restore; its tasks hang on it. A row without a job is a SQL client's own."""

    class Kind(models.TextChoices):
        BACKUP = "backup", _("backup")
        RESTORE = "restore", _("restore")

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule", _("schedule")
        MANUAL = "manual", _("by hand")
        CATCH_UP = "catch_up", _("caught up")
        API = "api", _("API")
        DRILL = "drill", _("restore drill")

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        SUCCEEDED = "succeeded", _("succeeded")
        PARTIAL_FAILURE = "partial_failure", _("partial failure")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")
        MISSED = "missed", _("missed")  # no agent began before its deadline

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    job = models.ForeignKey(
        BackupJob,
        verbose_name=_("backup job"),
        null=True,
        on_delete=models.PROTECT,
        related_name="runs",
        db_constraint=False,
        db_index=False,
    )
    # The one that it was launched into, whatever its job uses by now; none of a SQL client's own run.
    repository = models.ForeignKey(
        BackupRepository,
        verbose_name=_("repository"),
        null=True,
        on_delete=models.PROTECT,
        related_name="runs",
        db_constraint=False,
        db_index=False,
    )
    kind = models.TextField(_("kind"), choices=Kind, db_default=Kind.BACKUP.value)
    trigger = models.TextField(_("launched"), choices=Trigger, db_default=Trigger.MANUAL.value)
    scheduled_for = models.DateTimeField(_("due"), null=True)
    # Job, repository and sources as they were at the launch; what is changed later changes no run.
    definition = models.JSONField(_("definition"), db_default={})
    status = models.TextField(_("status"), choices=Status, db_default=Status.PENDING.value)
    sources_total = models.IntegerField(_("sources"), db_default=0)
    sources_succeeded = models.IntegerField(_("succeeded"), db_default=0)
    sources_partial = models.IntegerField(_("partial"), db_default=0)
    sources_failed = models.IntegerField(_("failed"), db_default=0)
    sources_cancelled = models.IntegerField(_("cancelled"), db_default=0)
    bytes_processed = models.BigIntegerField(_("bytes processed"), db_default=0)
    bytes_written = models.BigIntegerField(_("bytes written"), db_default=0)
    files_processed = models.BigIntegerField(_("files processed"), db_default=0)
    files_skipped = models.BigIntegerField(_("files skipped"), db_default=0)
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True)
    cancel_requested_by = models.TextField(_("cancel requested by"), null=True)
    cancel_reason = models.TextField(_("reason of the cancel"), null=True)
    slots_collapsed = models.IntegerField(_("times that fell into it"), db_default=0)
    created_by = models.TextField(_("launched by"), null=True)
    reason = models.TextField(_("reason"), db_default="")
    created_at = models.DateTimeField(_("launched at"), db_default=SqlNow())
    started_at = models.DateTimeField(_("started"), null=True)
    completed_at = models.DateTimeField(_("completed"), null=True)

    class Meta:
        db_table = "backup_job_runs"
        db_table_comment = "One launch of a backup job, or one restore."
        verbose_name = _("backup run")
        verbose_name_plural = _("backup runs")
        permissions = [("cancel_backupjobrun", "Can cancel backup runs"), ("retry_backupjobrun", "Can retry sources")]
        constraints = [
            models.CheckConstraint(
                name="backup_job_runs_status_valid",
                condition=Q(
                    status__in=[
                        "pending",
                        "running",
                        "succeeded",
                        "partial_failure",
                        "failed",
                        "cancelled",
                        "missed",
                    ]
                ),
            ),
            models.CheckConstraint(name="backup_job_runs_kind_valid", condition=Q(kind__in=["backup", "restore"])),
            models.CheckConstraint(
                name="backup_job_runs_trigger_valid",
                condition=Q(trigger__in=["schedule", "manual", "catch_up", "api", "drill"]),
            ),
            # A run that is over since nobody knows when, or is both open and over.
            models.CheckConstraint(
                name="backup_job_runs_completed_when_done",
                condition=Q(status__in=OPEN, completed_at__isnull=True)
                | (~Q(status__in=OPEN) & Q(completed_at__isnull=False)),
            ),
            # Without the time it was due for, the same time could be run twice.
            models.CheckConstraint(
                name="backup_job_runs_schedule_has_slot",
                condition=~Q(trigger__in=["schedule", "catch_up"]) | Q(scheduled_for__isnull=False),
            ),
            # A success that left out a source or a file.
            models.CheckConstraint(
                name="backup_job_runs_success_is_total",
                condition=~Q(status="succeeded")
                | Q(sources_total__gt=0, sources_succeeded=F("sources_total"), files_skipped=0),
            ),
            models.CheckConstraint(
                name="backup_job_runs_cancel_has_author",
                condition=Q(cancel_requested_at__isnull=True) | Q(cancel_requested_by__isnull=False),
            ),
            models.UniqueConstraint(
                name="backup_job_runs_one_per_slot",
                fields=["job", "scheduled_for"],
                condition=Q(trigger__in=["schedule", "catch_up"]),
            ),
            # Two runs of one job would read the same folders twice and tear up each other's limits.
            models.UniqueConstraint(
                name="backup_job_runs_one_active_backup",
                fields=["job"],
                condition=Q(kind="backup", status__in=OPEN),
            ),
        ]
        indexes = [
            models.Index("job", F("created_at").desc(), name="backup_job_runs_of_job_idx"),
            models.Index(F("created_at").desc(), F("id").desc(), name="backup_job_runs_newest_idx"),
            # The latest drill of a source, behind however many backups.
            models.Index(
                name="backup_job_runs_drills_idx", fields=["job", "-created_at"], condition=Q(trigger="drill")
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.kind} {str(self.id)[:8]}"


class BackupSnapshot(models.Model):
    """One snapshot, as the runner that made it reported it. restic itself does not record that one is partial."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    repository = models.ForeignKey(
        BackupRepository,
        verbose_name=_("repository"),
        on_delete=models.PROTECT,
        related_name="snapshots",
        db_index=False,
    )
    engine_id = models.TextField(_("snapshot"))
    source = models.ForeignKey(
        BackupJobSource, verbose_name=_("source"), on_delete=models.PROTECT, related_name="snapshots", db_index=False
    )
    task = models.ForeignKey(
        "jobs.AgentTask",
        verbose_name=_("task"),
        null=True,
        related_name="snapshots",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,  # made by SQL: a purge of the task leaves the snapshot, SET NULL
    )
    complete = models.BooleanField(_("complete"))
    files = models.BigIntegerField(_("files"), db_default=0)
    bytes = models.BigIntegerField(_("bytes"), db_default=0)
    taken_at = models.DateTimeField(_("taken"), db_default=SqlNow())
    verified_at = models.DateTimeField(_("verified"), null=True)
    verified_ok = models.BooleanField(_("verified well"), null=True)
    forgotten_at = models.DateTimeField(_("forgotten"), null=True)

    class Meta:
        db_table = "backup_snapshots"
        db_table_comment = "The catalogue of snapshots: which are complete, which were forgotten."
        verbose_name = _("snapshot")
        verbose_name_plural = _("snapshots")
        permissions = [("list_backupsnapshot", "Can list files of snapshots")]
        ordering = ["-taken_at"]
        constraints = [
            models.UniqueConstraint(name="backup_snapshots_engine_key", fields=["repository", "engine_id"]),
            # Short ids and words such as "latest" mean another snapshot tomorrow.
            models.CheckConstraint(name="backup_snapshots_id_whole", condition=Q(engine_id__regex="^[0-9a-f]{64}$")),
            models.CheckConstraint(
                name="backup_snapshots_verified_pair",
                condition=Q(verified_at__isnull=True, verified_ok__isnull=True)
                | Q(verified_at__isnull=False, verified_ok__isnull=False),
            ),
        ]
        indexes = [
            # The last good one of a source, and its list.
            models.Index("source", F("taken_at").desc(), name="backup_snapshots_source_idx"),
            # The catalogue, newest first.
            models.Index(F("taken_at").desc(), F("id").desc(), name="backup_snapshots_newest_idx"),
            # When a source was last verified.
            models.Index(
                name="backup_snapshots_verified_idx", fields=["source", "-verified_at"],
                condition=Q(verified_at__isnull=False),
            ),
            models.Index(name="backup_snapshots_task_idx", fields=["task"], condition=Q(task__isnull=False)),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.engine_id[:8]
