"""The duties of the maintenance loops: who does each now, when it is due again, and how it went last."""

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow


class MaintenanceDuty(models.Model):
    """One row a duty; the loops of all machines lease it in turn, so that each duty is done once an interval."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("duty"), unique=True)
    every_seconds = models.FloatField(_("interval (seconds)"), db_default=0.0)
    due_at = models.DateTimeField(_("due"), db_default=SqlNow())
    leased_by = models.TextField(_("done by"), blank=True, db_default="")  # stays after the lease: who did it last
    leased_until = models.DateTimeField(_("leased until"), null=True)
    term = models.BigIntegerField(_("term"), db_default=0)  # counts the leases; the fencing token of each
    started_at = models.DateTimeField(_("started"), null=True)
    last_seconds = models.FloatField(_("took (seconds)"), null=True)
    last_success_at = models.DateTimeField(_("last success"), null=True)
    last_error_at = models.DateTimeField(_("last error"), null=True)
    last_error = models.TextField(_("error"), blank=True, db_default="")
    failures = models.IntegerField(_("failures in a row"), db_default=0)

    class Meta:
        db_table = "maintenance_duties"
        db_table_comment = "What the maintenance loops do: interval, lease, last success and last error of each duty."
        verbose_name = _("maintenance duty")
        verbose_name_plural = _("maintenance duties")
        ordering = ["name"]
        constraints = [
            # A lease that names nobody could be settled by whoever has no name either.
            models.CheckConstraint(
                name="maintenance_duties_lease_has_owner",
                condition=Q(leased_until__isnull=True) | Q(leased_by__ne=""),
            ),
            # A negative interval is due for ever: the loops would do nothing else.
            models.CheckConstraint(
                name="maintenance_duties_counts_valid", condition=Q(every_seconds__gte=0, failures__gte=0, term__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return self.name
