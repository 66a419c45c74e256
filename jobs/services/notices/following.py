"""Reads the history of a leased table once and in full, although its rows do not appear in the order of their ids.

An id is taken before its transaction commits, so the newest visible row says nothing of older ones. A transaction that
adds to a table holds a lock on it until it ends: once those that held one after `seen_id` was visible have ended, every
row up to it is visible or will never be. Nothing is added to the path that writes.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connection
from django.db.models import Max

from jobs.engine.leased import Leased
from jobs.models import NoticeBookmark

BATCH = 500


def ended_since_last_time(model: type[Leased]) -> Sequence[UUID]:
    """Ids of the rows that ended since the last call, oldest first, at most BATCH.

    In the caller's transaction, which stands or falls with what is made of them. Of several callers one gets them; the
    others get nothing, at once.
    """
    source, history = model._meta.db_table, _history(model)
    bookmarks = NoticeBookmark.objects.select_for_update(skip_locked=True, no_key=True)
    bookmark = bookmarks.filter(source=source).first()
    if bookmark is None:
        newest = history.objects.aggregate(newest=Max("pgh_id"))["newest"] or 0
        first = NoticeBookmark(source=source, done_id=newest, seen_id=newest)
        NoticeBookmark.objects.bulk_create([first], ignore_conflicts=True)
        return []
    table = history._meta.db_table
    if bookmark.writers and set(bookmark.writers) & set(_writers(table)):
        return []
    # The order matters: what is newest, then who may still add older ones, then the rows.
    newest = history.objects.aggregate(newest=Max("pgh_id"))["newest"] or 0
    writers = _writers(table)
    settled = bookmark.seen_id if writers else newest
    rows = history.objects.filter(pgh_id__gt=bookmark.done_id, pgh_id__lte=settled)
    found = list(rows.order_by("pgh_id").values_list("pgh_id", "pgh_obj_id", "status")[:BATCH])
    bookmark.done_id = found[-1][0] if len(found) == BATCH else max(settled, bookmark.done_id)
    bookmark.seen_id, bookmark.writers = newest, writers
    bookmark.save(update_fields=["done_id", "seen_id", "writers"])
    ended = model.lifecycle.finished
    return list(dict.fromkeys(row_id for _, row_id, status in found if status in ended))


def _history(model: type[Leased]) -> Any:
    return apps.get_model("jobs", f"{model.__name__}Event")  # made by pghistory


def _writers(table: str) -> list[str]:
    """The transactions, this one aside, that hold a lock for writing on a table; prepared ones too."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT virtualtransaction FROM pg_locks
            WHERE locktype = 'relation' AND relation = %s::regclass AND granted AND mode = 'RowExclusiveLock'
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND pid IS DISTINCT FROM pg_backend_pid()""",
            [table],
        )
        return [name for (name,) in cursor.fetchall()]
