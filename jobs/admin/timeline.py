"""What happened to a chain: the row history that triggers write and the audit trail, as one timeline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.utils.translation import gettext as _

from jobs.engine.leased import Leased
from jobs.models import AgentJob, AuditEvent

MAX_LINES = 200  # of each source; a chain has a handful of attempts
Tag = AuditEvent.Tag


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that happened."""

    at: datetime
    attempt: int
    what: str
    word: str  # the status or tag, for the icon
    who: str
    why: str = ""
    details: Any = None


def timeline(chain: Sequence[Leased]) -> list[Line]:
    """Everything known of these attempts, newest first."""
    if not chain:
        return []
    attempts = {row.pk: row.attempt for row in chain}
    history: Any = apps.get_model("jobs", f"{type(chain[0]).__name__}Event")  # made by pghistory
    events = list(history.objects.filter(pgh_obj_id__in=attempts).order_by("-pgh_id")[:MAX_LINES])
    audits = list(AuditEvent.objects.filter(subject_id__in=attempts).order_by("-id")[:MAX_LINES])
    lines = [_of_audit(event, attempts) for event in audits]
    lines += _of_history(reversed(events), {event.tag for event in audits}, attempts)
    return sorted(lines, key=lambda line: (line.at, line.attempt), reverse=True)


def acts_on(subjects: Iterable[UUID]) -> list[Line]:
    """What people did to these rows, newest first, by the audit trail alone."""
    events = AuditEvent.objects.filter(subject_id__in=list(subjects)).order_by("-id")[:MAX_LINES]
    return [
        Line(
            at=event.at, attempt=1, word=event.tag, who=event.actor, why=event.reason,
            what=": ".join(str(part) for part in (_act(event), event.details.get("name")) if part),
        )
        for event in events
    ]  # fmt: skip


def _act(event: AuditEvent) -> str:
    acts = {
        "created": _("created"), "changed": _("changed"), "paused": _("paused"), "active": _("resumed"),
        "retired": _("retired"),
    }  # fmt: skip
    return acts.get(event.details.get("act", ""), str(event.get_tag_display()))


def _of_audit(event: AuditEvent, attempts: dict[Any, int]) -> Line:
    return Line(
        at=event.at, attempt=attempts[event.subject_id], what=event.get_tag_display(), word=event.tag, who=event.actor,
        why=event.reason or _verdicts(event), details=event.details.get("body") or event.details.get("name"),
    )  # fmt: skip


def _verdicts(event: AuditEvent) -> str:
    """Both verdicts, where the runner's is another than the store's."""
    if event.tag != Tag.VERDICT_DIFFERS:
        return ""
    labels = dict(AgentJob.Verdict.choices)
    return _("The runner says %(runner)s, the store judges %(store)s by the same checks.") % {
        "runner": labels.get(event.details.get("runner"), "?"), "store": labels.get(event.details.get("server"), "?"),
    }  # fmt: skip


def _of_history(events: Iterable[Any], told: set[str], attempts: dict[Any, int]) -> Iterable[Line]:
    """The changes of status, and of a cancel that the audit trail does not tell already."""
    before: dict[Any, Any] = {}
    for event in events:
        previous = before.get(event.pgh_obj_id)
        before[event.pgh_obj_id] = event
        place = {"at": event.pgh_created_at, "attempt": attempts[event.pgh_obj_id]}
        if _newly("cancel_delivered_at", previous, event) and Tag.CANCEL_DELIVERED not in told:
            yield Line(**place, what=_("cancel delivered to the runner"), word="cancel", who=event.claimed_by or "")
        if _newly("cancel_requested_at", previous, event) and not told & {Tag.CANCEL_REQUESTED, Tag.FORCED}:
            yield Line(
                **place, what=_("cancel requested"), word="cancel", who=event.cancel_requested_by or "",
                why=event.cancel_reason or "",
            )  # fmt: skip
        if previous is None or previous.status != event.status:
            yield Line(**place, what=event.get_status_display(), word=event.status, who=_who(event), why=_why(event))


def _newly(column: str, previous: Any, event: Any) -> bool:
    return bool(getattr(event, column)) and not (previous and getattr(previous, column))


def _who(event: Any) -> str:
    match event.ended_by:
        case "person":
            return event.cancel_requested_by or ""
        case "reaper" | "system":
            return _("the store")
        case "runner":
            return event.claimed_by or ""
    if event.claimed_by:
        return str(event.claimed_by)
    return getattr(event, "created_by", None) or ""


def _why(event: Any) -> str:
    error = getattr(event, "error", None) or getattr(event, "error_message", None) or ""
    return error if len(error) <= 300 else error[:299] + "…"
