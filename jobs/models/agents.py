"""Agents, the principals that claim work, and their bearer tokens."""

import pghistory
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import RandomText, SqlNow
from jobs.engine.trail import never_emptied


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(
        condition=pghistory.AnyChange("state", "state_note", "state_until", "title", "lease_seconds")
    ),
    fields=["id", "principal_key", "title", "state", "state_note", "state_until", "lease_seconds"],
    append_only=True,
    model_name="AgentEvent",
    meta={"db_table": "agent_events", "triggers": [never_emptied()]},
)
class Agent(models.Model):
    """Who may claim work. Agents are retired (disabled), never deleted from the admin: deleting erases tasks."""

    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        PAUSED = "paused", _("paused")
        DRAINING = "draining", _("draining")
        DISABLED = "disabled", _("disabled")

    class Presence(models.TextChoices):
        RESIDENT = "resident", _("resident")  # its silence is worth an alarm
        ON_DEMAND = "on-demand", _("on demand")  # started per job by a workflow

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    principal_key = models.TextField(_("key"), unique=True, db_default=RandomText())
    title = models.TextField(_("title"), blank=True, db_default="")
    state = models.TextField(_("state"), choices=State, db_default=State.ACTIVE.value)
    state_note = models.TextField(_("note"), blank=True, db_default="")
    state_until = models.DateTimeField(_("until"), null=True, blank=True)
    presence = models.TextField(_("presence"), choices=Presence, db_default=Presence.ON_DEMAND.value)
    labels = models.JSONField(_("labels"), blank=True, db_default={})
    lease_seconds = models.IntegerField(_("lease (seconds)"), db_default=90)
    last_seen_at = models.DateTimeField(_("last seen"), null=True, editable=False)
    runner_version = models.TextField(_("runner"), null=True, editable=False)
    # What its runner said last: NULL until one asked for tasks.
    capabilities = ArrayField(models.TextField(), verbose_name=_("can"), null=True, editable=False)
    engine = models.TextField(_("backup engine"), db_default="", editable=False)
    registered_at = models.DateTimeField(_("registered"), null=True, editable=False)  # NULL: named by plain SQL only
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "agents"
        db_table_comment = "Who may claim work. Rows without registered_at were named by plain SQL only."
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["principal_key"]
        permissions = [("govern_agent", "Can pause, drain or disable agents")]
        constraints = [
            # A state that the claim does not know would neither stop nor allow work.
            models.CheckConstraint(
                name="agents_state_valid", condition=Q(state__in=["active", "paused", "draining", "disabled"])
            ),
            models.CheckConstraint(name="agents_presence_valid", condition=Q(presence__in=["resident", "on-demand"])),
            models.CheckConstraint(name="agents_lease_positive", condition=Q(lease_seconds__gt=0)),
        ]

    def __str__(self) -> str:
        return self.title or self.principal_key


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(condition=pghistory.AnyChange("revoked_at", "expires_at")),
    fields=["id", "agent", "prefix", "created_by", "expires_at", "revoked_at", "revoked_by"],
    append_only=True,
    model_name="AgentTokenEvent",
    meta={"db_table": "agent_token_events", "triggers": [never_emptied()]},
)
class AgentToken(models.Model):
    """A bearer of one agent. Only its SHA-256 is stored; several may live at once, for rotation without a gap."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    agent = models.ForeignKey(Agent, verbose_name=_("agent"), on_delete=models.CASCADE, related_name="tokens")
    digest = models.TextField(unique=True, editable=False)
    prefix = models.TextField(_("prefix"), editable=False)
    note = models.TextField(_("note"), blank=True, db_default="")
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)
    created_by = models.TextField(_("created by"), editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)
    revoked_by = models.TextField(_("revoked by"), null=True, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)
    run_ref = models.TextField(_("run"), null=True, editable=False)  # of the one workflow run that it was issued to

    class Meta:
        db_table = "agent_tokens"
        db_table_comment = "Bearers of agents, as SHA-256 digests."
        verbose_name = _("agent token")
        verbose_name_plural = _("agent tokens")
        ordering = ["-created_at"]
        constraints = [
            # A digest of another length is not a SHA-256, perhaps the token itself.
            models.CheckConstraint(name="agent_tokens_digest_is_sha256", condition=Q(digest__regex=r"^[0-9a-f]{64}$")),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"
