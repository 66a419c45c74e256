"""Rows and bytes against each other: no object without a row, and no row that hides that its bytes are gone."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Collate, Now
from django.utils import timezone

from artifacts.models import ArtifactRemoval, JobArtifact

from .storage import PREFIX, StoredObject, calling
from .thumbnails import owner_of

GRACE = timedelta(days=1)
SHORTEST = timedelta(hours=1)  # an upload has its object before its row
PAGE = 1000
# More orphans than this, in number and in share: the database is not the one that the storage belongs to.
SUSPICIOUS, SHARE = 100, 0.5
SEEN = ("storage_path", "thumbnail_path", "missing_at")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did, or in a dry run would do, in numbers."""

    removed: int  # objects of deleted rows
    orphans: int  # objects that have no row
    missing: int  # rows whose bytes were found to be gone
    found: int  # rows whose bytes are back
    refused: bool  # so many orphans that none was removed: database and storage do not belong together


@dataclass(kw_only=True)
class _Walk:
    """What one walk along all keys found."""

    objects: int = 0
    orphans: list[str] = field(default_factory=list)
    missing: int = 0
    found: int = 0


def sweep(*, older_than: timedelta = GRACE, dry_run: bool = False) -> Swept:
    """Remove the objects of deleted rows, and objects without a row that are `older_than`; mark rows without bytes.

    Raises ValueError for less than an hour, or StorageUnavailable; whatever was done until then is right by itself.
    """
    if older_than < SHORTEST:
        raise ValueError("An object may be younger than its row by the time of an upload: give at least an hour.")
    removed = _remove_deleted(dry_run=dry_run)
    walk = _walk(before=timezone.now() - older_than, dry_run=dry_run)
    refused = len(walk.orphans) > max(SUSPICIOUS, SHARE * walk.objects)
    if refused:
        logger.error(
            "The sweep removes nothing: %s of %s objects have no row. Is this the database of this storage?",
            len(walk.orphans), walk.objects,
        )  # fmt: skip
    elif not dry_run:
        _delete(walk.orphans)
    return Swept(removed=removed, orphans=len(walk.orphans), missing=walk.missing, found=walk.found, refused=refused)


def _by_key() -> QuerySet[Any, Any]:
    """Rows with their storage key as `key`, compared byte by byte as the index and every storage do."""
    return JobArtifact.objects.annotate(key=Collate("storage_path", "C"))


def _remove_deleted(*, dry_run: bool) -> int:
    removals = ArtifactRemoval.objects.order_by("id")
    if dry_run:
        return removals.count()
    count = 0
    while batch := list(removals[:PAGE]):
        # Plain SQL may give two rows one key; then the bytes are still needed.
        used = set(_by_key().filter(key__in=[owner_of(removal.key) for removal in batch]).values_list("key", flat=True))
        doomed = [removal.key for removal in batch if owner_of(removal.key) not in used]
        _delete(doomed)
        ArtifactRemoval.objects.filter(pk__in=[removal.pk for removal in batch]).delete()
        count += len(doomed)
    return count


def _delete(keys: Iterable[str]) -> None:
    with calling() as store:
        for key in keys:
            store.delete(key)


def _walk(*, before: datetime, dry_run: bool) -> _Walk:
    """Go along the keys of storage and rows side by side; both come in the order of their bytes."""
    walk, last = _Walk(), PREFIX
    for page in _pages():
        # From the last page on, and from the owner of the first object: a thumbnail may come a page after its image.
        between = _by_key().filter(key__gte=min(last, owner_of(page[0].key)), key__lte=page[-1].key)
        rows = {row.storage_path: row for row in between.only(*SEEN)}
        present = {stored.key for stored in page}
        walk.objects += len(page)
        walk.orphans += [
            stored.key
            for stored in page
            if stored.modified_at < before and not _is_needed(stored.key, rows.get(owner_of(stored.key)))
        ]
        walk.missing += _mark_missing(
            (row for key, row in rows.items() if key > last and key not in present), dry_run=dry_run
        )
        back = [row.pk for key, row in rows.items() if key in present and row.missing_at]
        walk.found += len(back)
        if back and not dry_run:
            JobArtifact.objects.filter(pk__in=back).update(missing_at=None)
        last = page[-1].key
    beyond = _by_key().filter(key__gt=last, key__startswith=PREFIX)
    walk.missing += _mark_missing(beyond.only(*SEEN).iterator(), dry_run=dry_run)
    return walk


def _pages() -> Iterator[Sequence[StoredObject]]:
    with calling() as store:
        objects = store.objects(PREFIX)
        while page := list(islice(objects, PAGE)):
            yield page


def _is_needed(key: str, row: JobArtifact | None) -> bool:
    return row is not None and key in (row.storage_path, row.thumbnail_path)


def _mark_missing(rows: Iterable[JobArtifact], *, dry_run: bool) -> int:
    """Mark rows whose bytes are not there. Asked one by one: a row may be younger than the list that lacked it."""
    count = 0
    with calling() as store:
        for row in rows:
            if row.missing_at or store.exists(row.storage_path):
                continue
            same = JobArtifact.objects.filter(pk=row.pk, storage_path=row.storage_path, missing_at=None)
            count += 1 if dry_run else same.update(missing_at=Now())
    return count
