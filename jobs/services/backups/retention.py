"""Which snapshots of a source are kept: a pure function of the complete ones, so that a partial one never pushes out
the last that can be relied on.

Rules are those of restic's `forget`, counted per source in UTC: the newest snapshot of each of the last N hours, days,
weeks, months or years that have one. restic itself is only ever given the ids of what is to go.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

_PERIODS: Mapping[str, Callable[[datetime], object]] = {
    "keep_hourly": lambda at: (at.date(), at.hour),
    "keep_daily": lambda at: at.date(),
    "keep_weekly": lambda at: at.isocalendar()[:2],
    "keep_monthly": lambda at: (at.year, at.month),
    "keep_yearly": lambda at: at.year,
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One snapshot of the catalogue that still exists."""

    id: UUID
    source: UUID
    taken_at: datetime
    complete: bool


def forgettable(snapshots: Iterable[Kept], policy: Mapping[str, int] | None) -> frozenset[UUID]:
    """The snapshots that the policy lets go; without a policy, none.

    Never the newest complete one of a source, nor any of a source without a complete one, nor a partial one that is
    newer than the oldest complete one that is kept.
    """
    if not policy:
        return frozenset()
    by_source: dict[UUID, list[Kept]] = {}
    for snapshot in snapshots:
        by_source.setdefault(snapshot.source, []).append(snapshot)
    gone: set[UUID] = set()
    for of_source in by_source.values():
        complete = sorted(
            (one for one in of_source if one.complete), key=lambda one: (one.taken_at, one.id), reverse=True
        )
        if not complete:
            continue
        kept = _kept(complete, policy)
        oldest = min(one.taken_at for one in kept)
        gone |= {one.id for one in complete if one not in kept}
        gone |= {one.id for one in of_source if not one.complete and one.taken_at < oldest}
    return frozenset(gone)


def _kept(newest_first: list[Kept], policy: Mapping[str, int]) -> set[Kept]:
    """What the rules hold of one source's complete snapshots; the newest always."""
    kept = set(newest_first[: max(1, policy.get("keep_last", 0))])
    for rule, period_of in _PERIODS.items():
        periods: set[object] = set()
        for snapshot in newest_first:
            period = period_of(snapshot.taken_at.astimezone(UTC))
            if period not in periods and len(periods) < policy.get(rule, 0):
                periods.add(period)
                kept.add(snapshot)
    return kept
