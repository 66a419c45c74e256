"""Targets: which addresses the specs of jobs may open, with what secrets, and on whose runners."""

import pghistory
from agentstore_runner.contract.grants import REQUESTS
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied


def _texts(label: object, default: list[str]) -> "ArrayField[list[str], list[str]]":
    return ArrayField(models.TextField(), verbose_name=label, blank=True, db_default=default)  # type: ignore[arg-type]  # lazy text


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    model_name="TargetEvent",
    meta={"db_table": "target_events", "triggers": [never_emptied()]},
)
class Target(models.Model):
    """A web application that may be tested. A spec finds its target by the origin of the address it opens."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"), unique=True)
    environment = models.TextField(_("environment"), blank=True, db_default="")
    enabled = models.BooleanField(_("enabled"), db_default=True)
    allowed_hosts = _texts(_("further hosts"), [])
    allowed_secrets = _texts(_("secrets"), [])
    allowed_agents = _texts(_("agents"), [])  # their keys; empty: all
    restricted_requests = _texts(_("restricted requests"), list(REQUESTS))
    allow_local = models.BooleanField(_("loopback and link-local addresses"), db_default=False)
    allow_traces = models.BooleanField(_("traces"), db_default=False)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "targets"
        db_table_comment = "Web applications that specs may open: hosts, secrets and agents."
        verbose_name = _("target")
        verbose_name_plural = _("targets")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    model_name="TargetOriginEvent",
    meta={"db_table": "target_origin_events", "triggers": [never_emptied()]},
)
class TargetOrigin(models.Model):
    """One base URL of a target, as scheme, host and port."""

    # Unique, so that no address has two targets with two sets of rules.
    origin = models.TextField(_("base URL"), primary_key=True)
    target = models.ForeignKey(Target, verbose_name=_("target"), on_delete=models.CASCADE, related_name="origins")

    class Meta:
        db_table = "target_origins"
        db_table_comment = "The base URLs of targets; an address belongs to one target."
        verbose_name = _("base URL of a target")
        verbose_name_plural = _("base URLs of targets")
        ordering = ["origin"]

    def __str__(self) -> str:
        return self.origin
