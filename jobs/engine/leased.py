"""The columns that the engine adds to a leased table. Each may be NULL or has a database default."""

from collections.abc import Iterable
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.db.models.constraints import BaseConstraint
from django.db.models.expressions import OrderBy

from .ddl import NamedIndex
from .failure_classes import FailureClass
from .lifecycle import EndedBy, Lifecycle
from .stored_json import StoredDocument


class Leased(models.Model):
    """One row is one attempt. What people call the job is the chain of rows that share a `root_id`."""

    root_id = models.UUIDField(null=True, editable=False)  # the chain's first row; an insert trigger fills it
    claim_id = models.UUIDField(null=True, editable=False)
    claimed_by = models.TextField(null=True, editable=False)
    claim_digest = models.TextField(null=True, editable=False)  # SHA-256 of the claim's request, to tell a replay
    result_digest = models.TextField(null=True, editable=False)  # SHA-256 of the result as received, to tell a replay
    ended_by = models.TextField(null=True, editable=False)
    lease_seconds = models.IntegerField(db_default=90)
    attempt = models.IntegerField(db_default=1, editable=False)
    max_attempts = models.IntegerField(db_default=3)
    retry_of = models.OneToOneField(
        "self", null=True, on_delete=models.DO_NOTHING, related_name="retried_as", db_column="retry_of", editable=False
    )
    not_before = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    priority = models.IntegerField(db_default=0)
    progress = models.JSONField(null=True, editable=False, decoder=StoredDocument)
    details = models.JSONField(null=True, editable=False, decoder=StoredDocument)
    cancel_requested_at = models.DateTimeField(null=True, editable=False)
    cancel_requested_by = models.TextField(null=True, editable=False)
    cancel_reason = models.TextField(null=True, editable=False)
    cancel_delivered_at = models.DateTimeField(null=True, editable=False)
    overdue_at = models.DateTimeField(null=True, editable=False)  # when its maximum run time was found to have passed

    lifecycle: ClassVar[Lifecycle]
    # What an attempt hands to its retry as it stands. A test names every column as carried, counted on or fresh.
    carried: ClassVar[tuple[str, ...]] = ("lease_seconds", "max_attempts", "priority", "expires_at")

    # What a claim reads of the row: what its runner is told, and what tells a repetition.
    read_by_claim: ClassVar[tuple[str, ...]] = (
        "id", "agent", "status", "root_id", "attempt", "max_attempts", "lease_seconds", "heartbeat_at", "claim_id",
        "claim_digest", "ended_by", "cancel_requested_at", "cancel_requested_by", "cancel_reason",
    )  # fmt: skip

    id: Any
    status: Any
    failure_class: Any
    heartbeat_at: Any

    class Meta:
        abstract = True

    @property
    def chain_id(self) -> UUID:
        """The id that all attempts of this work share."""
        chain: UUID = self.root_id or self.id
        return chain


def leased_constraints(table: str) -> Iterable[BaseConstraint]:
    """What must never be in a leased table, whoever writes; each only speaks of columns that the contract lacks."""
    return (
        # Two rows under one claim id would give one runner two jobs and let it report the wrong one.
        models.UniqueConstraint(name=f"{table}_claim_id_idx", fields=["claim_id"], condition=Q(claim_id__isnull=False)),
        # A lease of nothing lapses before its first heartbeat.
        models.CheckConstraint(name=f"{table}_lease_positive", condition=Q(lease_seconds__gt=0)),
        # A chain that counts from zero, or past its budget, never ends.
        models.CheckConstraint(name=f"{table}_attempts_valid", condition=Q(attempt__gte=1, max_attempts__gte=1)),
        # An answer to a late write depends on who closed the row.
        models.CheckConstraint(
            name=f"{table}_ended_by_known", condition=Q(ended_by__in=[word.value for word in EndedBy])
        ),
        # A cancel that nobody asked for cannot be explained to the agent's owner.
        models.CheckConstraint(
            name=f"{table}_cancel_has_author",
            condition=Q(cancel_requested_at__isnull=True) | Q(cancel_requested_by__isnull=False),
        ),
        # Retries are decided by the class; a word that no rule knows would never be tried again. Rows that plain SQL
        # finished keep what they say.
        models.CheckConstraint(
            name=f"{table}_class_known",
            condition=Q(claim_id__isnull=True) | Q(failure_class__in=[word.value for word in FailureClass]),
        ),
    )


def leased_indexes(table: str, life: Lifecycle) -> Iterable[models.Index]:
    """Indexes of every leased table: the head of each kind's queue, what expires, and the attempts of a chain."""
    waiting = Q(status=life.waiting)
    queue: list[F | OrderBy] = [F("agent"), F(life.kind), F("priority").desc(), F(life.queued_at), F("id")]
    return (
        NamedIndex(*queue, name=f"{table}_claim_idx", condition=waiting),
        NamedIndex(fields=["expires_at"], name=f"{table}_expires_idx", condition=waiting & Q(expires_at__isnull=False)),
        NamedIndex(fields=["root_id"], name=f"{table}_root_idx"),
    )
