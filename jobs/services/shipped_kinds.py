"""The kinds that the product brings along, as rows that people govern."""

from dataclasses import dataclass

from django.db import transaction

from jobs.models import JobKind

from .kinds import CONTRACTS


@dataclass(frozen=True, kw_only=True)
class Synced:
    """Names of the kinds that were registered, and of those whose schema was brought up to date."""

    created: tuple[str, ...]
    updated: tuple[str, ...]


@transaction.atomic
def sync_kinds() -> Synced:
    """Register the shipped kinds that are missing, and give the others the schema that this version's code goes with.

    Titles, limits and the switch belong to the admin once a kind exists: they are never overwritten. May run in
    several processes at once.
    """
    rows = {
        name: JobKind(
            name=name,
            title=contract.title,
            description=contract.description,
            schema=contract.schema,
            max_run_seconds=contract.max_run_seconds,
        )
        for name, contract in CONTRACTS.items()
    }
    present = set(JobKind.objects.filter(name__in=rows).values_list("name", flat=True))
    missing = [row for name, row in rows.items() if name not in present]
    JobKind.objects.bulk_create(missing, ignore_conflicts=True)
    updated = tuple(
        name
        for name in sorted(present)
        if JobKind.objects.filter(name=name).exclude(schema=rows[name].schema).update(schema=rows[name].schema)
    )
    return Synced(created=tuple(row.name for row in missing), updated=updated)
