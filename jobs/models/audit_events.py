"""Acts that change no governed row: who looked, what was refused, what came too late."""

import pgtrigger
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied


class AuditEvent(models.Model):
    """One line of the audit trail. Rows are only ever added; changes of governed rows have their own history."""

    class Tag(models.TextChoices):
        ARTIFACT_OPENED = "artifact_opened", _("evidence opened")
        LATE_RESULT = "late_result", _("result came too late")
        DONE_AFTER_CANCEL = "done_after_cancel", _("finished although a cancel was requested")
        CANCEL_DELIVERED = "cancel_delivered", _("cancel delivered to the runner")
        ENQUEUED = "enqueued", _("enqueued")
        CANCEL_REQUESTED = "cancel_requested", _("cancel requested")
        FORCED = "forced", _("closed by force")
        RETRIED = "retried", _("retried by a person")
        TOKEN_ISSUED = "token_issued", _("token issued")
        TOKEN_REVOKED = "token_revoked", _("token revoked")
        AGENT_STATE = "agent_state", _("agent's state changed")
        CODE_MADE = "code_made", _("enrolment code made")
        CODE_REVOKED = "code_revoked", _("enrolment code revoked")
        ENROLLED = "enrolled", _("host enrolled")
        ENROLMENT_REFUSED = "enrolment_refused", _("enrolment refused")
        SCHEDULE_STATE = "schedule_state", _("schedule's state changed")
        SCHEDULE_RUN = "schedule_run", _("schedule run by hand")
        UNREDACTED = "unredacted", _("runner sent unredacted data")
        VERDICT_DIFFERS = "verdict_differs", _("the runner's verdict differs")
        EVIDENCE_EXPORTED = "evidence_exported", _("evidence exported")
        HOLD_PLACED = "hold_placed", _("legal hold placed")
        HOLD_RELEASED = "hold_released", _("legal hold released")
        FILES_PURGED = "files_purged", _("files deleted, their time was over")
        JOB_PURGED = "job_purged", _("job deleted, its time was over")
        ACKNOWLEDGED = "acknowledged", _("failure acknowledged")
        REOPENED = "reopened", _("failure is news again")
        CHANNEL_SECRET = "channel_secret", _("secret of a notice channel set")
        BACKUP_DEFINED = "backup_defined", _("backups defined anew")
        RUN_LAUNCHED = "run_launched", _("backup or restore launched")
        RUN_CANCELLED = "run_cancelled", _("cancel of a run requested")
        RUN_REOPENED = "run_reopened", _("failed sources tried again")
        REPOSITORY_DAMAGED = "repository_damaged", _("repository found damaged")
        REPOSITORY_TRUSTED = "repository_trusted", _("repository trusted again")
        GITHUB_REFUSED = "github_refused", _("token of GitHub refused")

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("at"), db_default=SqlNow())
    tag = models.TextField(_("what"), choices=Tag)
    actor = models.TextField(_("who"))
    subject_table = models.TextField(_("table"))
    subject_id = models.UUIDField(_("object"))
    reason = models.TextField(_("reason"), blank=True, db_default="")
    details = models.JSONField(_("details"), db_default={})

    class Meta:
        db_table = "audit_events"
        db_table_comment = "Acts that change no governed row. Rows are only ever added."
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        ordering = ["-id"]
        indexes = [models.Index(fields=["subject_id", "id"], name="audit_events_subject_idx")]
        constraints = [
            models.CheckConstraint(name="audit_events_tag_known", condition=Q(tag__in=[
                "schedule_state", "schedule_run",
                "artifact_opened", "late_result", "done_after_cancel", "cancel_delivered", "enqueued",
                "cancel_requested", "forced", "retried", "token_issued", "token_revoked", "agent_state", "unredacted",
                "verdict_differs", "evidence_exported", "hold_placed", "hold_released", "files_purged", "job_purged",
                "acknowledged", "reopened", "channel_secret",
                "backup_defined", "run_launched", "run_cancelled", "run_reopened", "repository_damaged",
                "repository_trusted",
                "code_made", "code_revoked", "enrolled", "enrolment_refused", "github_refused",
            ])),
        ]  # fmt: skip
        triggers = [
            # A trail that its subject can edit proves nothing.
            pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            never_emptied(),
        ]

    def __str__(self) -> str:
        return f"{self.tag} {self.at:%Y-%m-%d %H:%M:%S}"
