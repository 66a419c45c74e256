"""Search by what an index can find: ids and keys, or their beginnings. Any text is a fair question."""

import re
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from jobs.services.documents import UNSTORABLE

MIN_ID, MIN_PREFIX, MAX_TERM = 4, 3, 200
_HEX = re.compile(r"[0-9a-f]+")


def rows_like(rows: QuerySet[Any], term: str, *columns: str) -> QuerySet[Any]:
    """The rows whose id begins with `term`, or with a column of `columns` that begins with it."""
    term = term.strip()
    if not term:
        return rows
    if len(term) > MAX_TERM or UNSTORABLE.search(term):
        return rows.none()
    found = _id_begins(term)
    for column in columns:
        lookup = "startswith" if len(term) >= MIN_PREFIX else "exact"
        found |= Q(**{f"{column}__{lookup}": term})
    return rows.filter(found)


def _id_begins(term: str) -> Q:
    digits = term.lower().replace("-", "")
    if not (MIN_ID <= len(digits) <= 32 and _HEX.fullmatch(digits)):
        return Q(pk__in=[])
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return Q(pk__range=(first, last)) | Q(root_id=first) if len(digits) == 32 else Q(pk__range=(first, last))


def rows_about(rows: QuerySet[Any], term: str) -> QuerySet[Any]:
    """The lines of the audit trail by an actor's whole name, or about the object of an id."""
    term = term.strip()
    if not term:
        return rows
    if len(term) > MAX_TERM or UNSTORABLE.search(term):
        return rows.none()
    try:
        return rows.filter(subject_id=UUID(term))
    except ValueError:
        return rows.filter(actor=term)
