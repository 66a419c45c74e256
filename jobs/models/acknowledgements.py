"""What people say about a failed job: known, whose it is, and until when it is no news."""

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
    append_only=True,
    model_name="AcknowledgementEvent",
    meta={"db_table": "acknowledgement_events", "triggers": [never_emptied()]},
)
class Acknowledgement(models.Model):
    """One failed chain that people know of. While it is muted, further failures of its kind on its agent are known too.

    Muting by kind and agent, since the next run of what is known to be broken is a chain of its own.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    root_id = models.UUIDField(_("job"), unique=True)
    agent = models.TextField(_("agent"))  # the key, as in the job
    kind = models.TextField(_("kind"))
    reason = models.TextField(_("reason"))
    assignee = models.TextField(_("assigned to"), blank=True, db_default="")
    muted_until = models.DateTimeField(_("muted until"), null=True, blank=True)
    by = models.TextField(_("by"))
    at = models.DateTimeField(_("at"), db_default=SqlNow())

    class Meta:
        db_table = "acknowledgements"
        db_table_comment = "Failed jobs that people know of, with who looks after them and until when they are muted."
        constraints = [
            # Silence that nobody explained looks like health.
            models.CheckConstraint(name="acknowledgements_explained", condition=~Q(reason="")),
        ]
        indexes = [
            models.Index(
                name="acknowledgements_muted_idx",
                fields=["agent", "kind", "muted_until"],
                condition=Q(muted_until__isnull=False),
            )
        ]
