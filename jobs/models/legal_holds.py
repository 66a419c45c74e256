"""Legal holds: work whose rows and files nobody may delete until the hold is released."""

import pghistory
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied

from .agent_jobs import AgentJob


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    model_name="LegalHoldEvent",
    meta={"db_table": "legal_hold_events", "triggers": [never_emptied()]},
)
class LegalHold(models.Model):
    """A hold on all attempts of one job. The row is the hold: releasing it deletes the row."""

    # The chain's first row; triggers on the jobs and their files look here before a row goes.
    root = models.OneToOneField(AgentJob, primary_key=True, on_delete=models.RESTRICT, related_name="legal_hold")
    placed_at = models.DateTimeField(_("since"), db_default=SqlNow(), editable=False)
    placed_by = models.TextField(_("by"))
    reason = models.TextField(_("reason"))

    class Meta:
        db_table = "legal_holds"
        db_table_comment = "Jobs that nobody may delete; releasing a hold deletes its row."
        verbose_name = _("legal hold")
        verbose_name_plural = _("legal holds")

    def __str__(self) -> str:
        return self.reason
