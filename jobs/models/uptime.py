"""Since when agents could be heard."""

from django.db import models
from django.db.models import Q

from jobs.engine.ddl import SqlNow


class Uptime(models.Model):
    """One row: the reaper counts only silence that it could have heard, so from `up_since`.

    The maintenance loop writes `seen_at` after each probe that was answered; a gap means that the installation was
    down: `up_since` moves. `fault` says why the last probe was not answered, and is empty when it was.
    """

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    up_since = models.DateTimeField(db_default=SqlNow())
    seen_at = models.DateTimeField(db_default=SqlNow())

    fault = models.TextField(blank=True, db_default="")

    class Meta:
        db_table = "uptime"
        db_table_comment = "Since when agents could be heard; one row."
        constraints = [models.CheckConstraint(name="uptime_single_row", condition=Q(id=1))]
