"""The audit trail's one pen."""

from typing import Any

from django.db.models import Model

from jobs.models import AuditEvent

Tag = AuditEvent.Tag


def record(
    tag: AuditEvent.Tag, subject: Model, *, actor: str, reason: str = "", details: dict[str, Any] | None = None
) -> None:
    """Add one line about `subject`, in the caller's transaction: the act and its line stand or fall together."""
    AuditEvent.objects.create(
        tag=tag,
        actor=actor,
        subject_table=subject._meta.db_table,
        subject_id=subject.pk,
        reason=reason,
        details=details or {},
    )
