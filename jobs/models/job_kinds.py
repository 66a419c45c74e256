"""Kinds of jobs: what a spec of that kind must look like, and how long its work may take."""

import pghistory
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    exclude=["schema"],
    append_only=True,
    model_name="JobKindEvent",
    meta={"db_table": "job_kind_events", "triggers": [never_emptied()]},
)
class JobKind(models.Model):
    """A registered kind. `agent_jobs.kind` stays free text: a kind without a row here is shown as unknown."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"), unique=True)
    title = models.TextField(_("title"), blank=True, db_default="")
    description = models.TextField(_("description"), blank=True, db_default="")
    schema = models.JSONField(_("JSON Schema of the spec"), db_default={}, blank=True)
    enabled = models.BooleanField(_("enabled"), db_default=True)
    max_attempts = models.IntegerField(_("attempts at most"), db_default=3)
    lease_seconds = models.IntegerField(_("lease (seconds)"), null=True, blank=True)
    max_run_seconds = models.IntegerField(_("maximum run time (seconds)"), db_default=86400)
    # Limits below the installation's own, and days until the clock deletes what ended; NULL: none of this kind's own.
    max_file_bytes = models.IntegerField(_("bytes of a file at most"), null=True, blank=True)
    max_files = models.IntegerField(_("files of a job at most"), null=True, blank=True)
    max_job_bytes = models.BigIntegerField(_("bytes of a job's files at most"), null=True, blank=True)
    keep_files_days = models.IntegerField(_("keep files (days)"), null=True, blank=True)
    keep_jobs_days = models.IntegerField(_("keep jobs (days)"), null=True, blank=True)
    expire_after_seconds = models.IntegerField(_("waits at most (seconds)"), null=True, blank=True)
    retry_rules = models.JSONField(_("retry rules"), db_default={}, blank=True)  # by class; what it lacks is as shipped
    retry_jitter_percent = models.IntegerField(_("retry jitter (percent)"), db_default=10)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "job_kinds"
        db_table_comment = "Registered kinds of jobs, with the JSON Schema of their spec."
        verbose_name = _("job kind")
        verbose_name_plural = _("job kinds")
        ordering = ["name"]
        constraints = [
            # A lease below this leaves no room for three heartbeats (a reap of healthy work).
            models.CheckConstraint(name="job_kinds_lease_bounds", condition=Q(lease_seconds__range=(15, 86400))),
            models.CheckConstraint(name="job_kinds_attempts_bounds", condition=Q(max_attempts__range=(1, 10))),
            models.CheckConstraint(name="job_kinds_run_positive", condition=Q(max_run_seconds__gt=0)),
            # Zero days would delete a result before anybody saw it.
            models.CheckConstraint(
                name="job_kinds_keep_positive", condition=Q(keep_files_days__gt=0) & Q(keep_jobs_days__gt=0)
            ),
            models.CheckConstraint(
                name="job_kinds_files_positive",
                condition=Q(max_file_bytes__gt=0) & Q(max_files__gt=0) & Q(max_job_bytes__gt=0),
            ),
            # A job that expires as it is queued is never worked on.
            models.CheckConstraint(name="job_kinds_expiry_positive", condition=Q(expire_after_seconds__gt=0)),
            # A negative delay retries in the past; one above the double is no spread any more.
            models.CheckConstraint(name="job_kinds_jitter_bounds", condition=Q(retry_jitter_percent__range=(0, 100))),
        ]

    def __str__(self) -> str:
        return self.title or self.name
