"""What people changed of a row that has a form, from the row history that triggers write."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django import forms
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from .timeline import MAX_LINES, Line


class Change(NamedTuple):
    """An event of a history with what it was, in words."""

    event: Any
    what: Any
    why: str


def changes(events: Any, fields: Mapping[str, forms.Field], *, words: Mapping[str, Any] | None = None) -> list[Change]:
    """The events that changed a field of the form; `words` has labels for the entries of lists."""
    told: list[Change] = []
    before = None
    for event in events.select_related("pgh_context").order_by("pgh_id"):
        if why := _changes(before, event, fields, words or {}):
            told.append(Change(event, _("changed") if before else _("registered"), why))
        before = event
    return told


def lines(told: Iterable[Change]) -> list[Line]:
    """Changes as lines of a timeline, newest first, with who made them."""
    newest = sorted(told, key=lambda one: one.event.pgh_created_at, reverse=True)[:MAX_LINES]
    contexts = [one.event.pgh_context.metadata if one.event.pgh_context else {} for one in newest]
    people = dict(User.objects.filter(pk__in={said.get("user") for said in contexts}).values_list("pk", "username"))
    return [
        Line(
            at=one.event.pgh_created_at, attempt=1, what=str(one.what), word="changed", why=one.why,
            who=people.get(said.get("user")) or said.get("actor") or "",
        )
        for one, said in zip(newest, contexts, strict=True)
    ]  # fmt: skip


def _changes(before: Any, after: Any, fields: Mapping[str, forms.Field], words: Mapping[str, Any]) -> str:
    """The fields of a form that are others now; of a new row, those that say something."""
    changed = [
        name for name in fields
        if (getattr(after, name) if before is None else getattr(before, name) != getattr(after, name))
    ]  # fmt: skip
    return "; ".join(f"{fields[name].label}: {_shown(getattr(after, name), words)}" for name in changed)


def _shown(value: Any, words: Mapping[str, Any]) -> str:
    if isinstance(value, bool):
        return str(_("yes") if value else _("no"))
    entries = [str(words.get(word, word)) for word in value] if isinstance(value, list) else [str(value)]
    return ", ".join(entries) or "-"
