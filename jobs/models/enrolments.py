"""Enrolment codes: what a governor hands to a host, which trades it for a token of its own."""

import pghistory
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied

from .agents import Agent, AgentToken


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(condition=pghistory.AnyChange("uses_left", "revoked_at")),
    fields=[
        "id", "title", "prefix", "agent", "name_prefix", "uses", "uses_left", "expires_at", "created_by", "revoked_at",
        "revoked_by",
    ],
    append_only=True,
    model_name="EnrolmentCodeEvent",
    meta={"db_table": "enrolment_code_events", "triggers": [never_emptied()]},
)  # fmt: skip
class EnrolmentCode(models.Model):
    """A code for one existing agent, or for new agents whose keys begin alike. Only its SHA-256 is stored."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    title = models.TextField(_("what for"))
    digest = models.TextField(unique=True, editable=False)
    prefix = models.TextField(_("code"), editable=False)
    # Whom it makes a host: this agent, or where there is none, a new one.
    agent = models.ForeignKey(
        Agent, verbose_name=_("agent"), on_delete=models.CASCADE, null=True, blank=True, related_name="enrolment_codes"
    )
    name_prefix = models.TextField(_("keys begin with"), blank=True, db_default="")
    agent_title = models.TextField(_("title of new agents"), blank=True, db_default="")
    agent_labels = models.JSONField(_("labels of new agents"), blank=True, db_default={})
    presence = models.TextField(
        _("presence of new agents"), choices=Agent.Presence, db_default=Agent.Presence.RESIDENT.value
    )
    uses = models.IntegerField(_("uses"), db_default=1)
    uses_left = models.IntegerField(_("uses left"), db_default=1, editable=False)
    expires_at = models.DateTimeField(_("expires"))
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)
    created_by = models.TextField(_("created by"), editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)
    revoked_by = models.TextField(_("revoked by"), null=True, editable=False)

    class Meta:
        db_table = "enrolment_codes"
        db_table_comment = "Codes that hosts trade for tokens, as SHA-256 digests."
        verbose_name = _("enrolment code")
        verbose_name_plural = _("enrolment codes")
        ordering = ["-created_at", "-id"]
        constraints = [
            # A digest of another length is not a SHA-256, perhaps the code itself.
            models.CheckConstraint(
                name="enrolment_codes_digest_is_sha256", condition=Q(digest__regex=r"^[0-9a-f]{64}$")
            ),
            # A count below zero would mean that more hosts were let in than were meant.
            models.CheckConstraint(
                name="enrolment_codes_uses_valid",
                condition=Q(uses__gte=1, uses__lte=1000, uses_left__gte=0, uses_left__lte=F("uses")),
            ),
            models.CheckConstraint(
                name="enrolment_codes_presence_valid", condition=Q(presence__in=["resident", "on-demand"])
            ),
            # A code for an agent that exists must not make others.
            models.CheckConstraint(
                name="enrolment_codes_one_purpose", condition=Q(agent__isnull=True) | Q(name_prefix="")
            ),
        ]

    def __str__(self) -> str:
        return self.title


class Enrolment(models.Model):
    """One use of a code: which token it became, so that a host whose answer was lost may ask again."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    code = models.ForeignKey(EnrolmentCode, on_delete=models.CASCADE, related_name="enrolments")
    request_id = models.UUIDField()  # made by the runner
    name = models.TextField(_("host"))
    address = models.TextField(_("address"), blank=True, db_default="")
    token = models.OneToOneField(AgentToken, on_delete=models.CASCADE, related_name="enrolment")
    enrolled_at = models.DateTimeField(_("at"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "enrolments"
        db_table_comment = "Uses of enrolment codes, and the tokens that they became."
        verbose_name = _("enrolment")
        verbose_name_plural = _("enrolments")
        ordering = ["-enrolled_at", "-id"]
        default_permissions = ()
        constraints = [
            # Two uses of one id would give a host that asks again a second token beside its first.
            models.UniqueConstraint(name="enrolments_request_uniq", fields=["code", "request_id"]),
        ]

    def __str__(self) -> str:
        return self.name
