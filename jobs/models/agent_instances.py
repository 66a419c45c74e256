"""Runner processes that acted as an agent lately: two at once under one name are a cloned host."""

from datetime import timedelta

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow

from .agents import Agent

LATELY = timedelta(minutes=10)  # a process that was not seen for so long has ended
# A process that drains while its successor begins overlaps too, but not for so long.
OVERLAP = timedelta(minutes=5)


class AgentInstance(models.Model):
    """One runner process, by the nonce that it makes at its start; seen at most once a minute."""

    id = models.BigAutoField(primary_key=True)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="instances")
    instance = models.UUIDField()
    name = models.TextField(_("runner"))
    first_seen_at = models.DateTimeField(_("since"), db_default=SqlNow())
    last_seen_at = models.DateTimeField(_("last seen"), db_default=SqlNow())

    class Meta:
        db_table = "agent_instances"
        db_table_comment = "Runner processes that acted as an agent within the last hour."
        verbose_name = _("runner process")
        verbose_name_plural = _("runner processes")
        ordering = ["-last_seen_at", "-id"]
        default_permissions = ()
        constraints = [
            # A process that is noted twice would look like two.
            models.UniqueConstraint(name="agent_instances_instance_uniq", fields=["agent", "instance"]),
        ]

    def __str__(self) -> str:
        return self.name


def is_cloned() -> Q:
    """Which agents look like a copied host: resident, and under one name two processes alternate for OVERLAP.

    Several processes of different names are nothing to worry about, nor is one that follows another.
    """
    live = AgentInstance.objects.filter(
        last_seen_at__gt=Now() - LATELY, first_seen_at__lte=F("last_seen_at") - OVERLAP
    ).order_by()
    other = live.filter(
        agent=OuterRef("agent"), name=OuterRef("name"), pk__gt=OuterRef("pk"),
        first_seen_at__lte=OuterRef("last_seen_at") - OVERLAP, last_seen_at__gte=OuterRef("first_seen_at") + OVERLAP,
    )  # fmt: skip
    twins = live.filter(Exists(other), agent=OuterRef("pk"))
    return Q(Exists(twins), presence=Agent.Presence.RESIDENT) & ~Q(state=Agent.State.DISABLED)
