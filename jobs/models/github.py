"""Which workflow runs of GitHub may act as which agent, and which of their tokens were used."""

import pghistory
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied

from .agents import Agent


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(
        condition=pghistory.AnyChange(exclude=["repository", "last_used_at"]),
    ),
    exclude=["last_used_at"],
    append_only=True,
    model_name="GithubTrustEvent",
    meta={"db_table": "github_trust_events", "triggers": [never_emptied()]},
)
class GithubTrust(models.Model):
    """A rule that lets runs of one repository act as one agent. Disabled, never deleted."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    agent = models.ForeignKey(Agent, verbose_name=_("agent"), on_delete=models.PROTECT, related_name="github_trusts")
    issuer = models.TextField(_("issuer"))
    # Numbers, since a name can be given up and registered by somebody else. The name is only shown.
    repository_id = models.BigIntegerField(_("repository id"))
    repository_owner_id = models.BigIntegerField(_("owner id"))
    repository = models.TextField(_("repository"), blank=True, db_default="")
    workflow = models.TextField(_("workflow file"), blank=True, db_default="")
    reusable_workflow = models.TextField(_("reusable workflow"), blank=True, db_default="")
    ref = models.TextField(_("ref"), blank=True, db_default="")
    environment = models.TextField(_("environment"), blank=True, db_default="")
    event_name = models.TextField(_("event"), blank=True, db_default="")
    runner_environment = models.TextField(_("runner"), blank=True, db_default="")
    enabled = models.BooleanField(_("enabled"), db_default=True)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)

    class Meta:
        db_table = "github_trusts"
        db_table_comment = "Which workflow runs of GitHub may act as which agent."
        verbose_name = _("GitHub trust rule")
        verbose_name_plural = _("GitHub trust rules")
        ordering = ["repository", "id"]
        indexes = [models.Index(fields=["repository_id", "repository_owner_id"], name="github_trusts_repository_idx")]
        constraints = [
            # Zero is no id of GitHub: a rule with it was never filled in.
            models.CheckConstraint(
                name="github_trusts_ids_positive", condition=Q(repository_id__gt=0, repository_owner_id__gt=0)
            ),
        ]

    def __str__(self) -> str:
        return self.repository or str(self.repository_id)


class GithubSpentToken(models.Model):
    """A token of GitHub that was exchanged: it is good once. Kept until it would have expired anyway."""

    id = models.BigAutoField(primary_key=True)
    issuer = models.TextField()
    jti = models.TextField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "github_spent_tokens"
        db_table_comment = "Tokens of GitHub that were exchanged, until they would have expired anyway."
        constraints = [models.UniqueConstraint(fields=["issuer", "jti"], name="github_spent_tokens_once")]
        indexes = [models.Index(fields=["expires_at"], name="github_spent_tokens_expiry_idx")]

    def __str__(self) -> str:
        return f"{self.jti[:8]}…"
