"""What retention lets go: a pure function, and what it can never do."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.models.backups import KEEP_RULES
from jobs.services.backups.retention import Kept, forgettable

NEW = datetime(2026, 3, 31, 12, tzinfo=UTC)


def of(number: int, age: timedelta, *, complete: bool = True, source: int = 1) -> Kept:
    return Kept(id=UUID(int=number), source=UUID(int=source), taken_at=NEW - age, complete=complete)


def numbers(found: frozenset[UUID]) -> set[int]:
    return {one.int for one in found}


DAYS = [of(day, timedelta(days=day)) for day in range(100)]
HOURS = [of(hour, timedelta(hours=hour)) for hour in range(30)]


@pytest.mark.parametrize(("snapshots", "policy", "kept"), [
    (DAYS, {"keep_last": 3}, {0, 1, 2}),
    (DAYS, {"keep_daily": 2}, {0, 1}),
    (DAYS, {"keep_weekly": 3}, {0, 2, 9}),
    (DAYS, {"keep_monthly": 3}, {0, 31, 59}),
    (DAYS, {"keep_yearly": 2}, {0, 90}),
    (DAYS, {"keep_last": 2, "keep_monthly": 2}, {0, 1, 31}),
    (HOURS, {"keep_hourly": 2}, {0, 1}),
    (HOURS, {"keep_daily": 5}, {0, 13}),
])  # fmt: skip
def test_a_policy_keeps_the_newest_of_each_period(
    snapshots: list[Kept], policy: dict[str, int], kept: set[int]
) -> None:
    assert {one.id.int for one in snapshots} - numbers(forgettable(snapshots, policy)) == kept


@pytest.mark.parametrize("policy", [None, {}])
def test_no_policy_lets_nothing_go(policy: dict[str, int] | None) -> None:
    assert not forgettable(DAYS, policy)


def test_a_partial_snapshot_pushes_no_complete_one_out_and_goes_when_older_ones_are_gone() -> None:
    day = timedelta(days=1)
    snapshots = [of(1, 0 * day, complete=False), of(2, 1 * day), of(3, 2 * day, complete=False), of(4, 3 * day)]
    assert numbers(forgettable(snapshots, {"keep_last": 1})) == {3, 4}
    assert not forgettable([snapshots[0], snapshots[2]], {"keep_last": 1})


def test_each_source_is_counted_by_itself() -> None:
    snapshots = [of(1, timedelta()), of(2, timedelta(days=900), source=2)]
    assert not forgettable(snapshots, {"keep_last": 1})


catalogues = st.lists(
    st.builds(
        Kept, id=st.uuids(), source=st.integers(0, 3).map(lambda number: UUID(int=number)), complete=st.booleans(),
        taken_at=st.integers(0, 5 * 366 * 24).map(lambda hours: NEW - timedelta(hours=hours)),
    ),
    max_size=30, unique_by=lambda one: one.id,
)  # fmt: skip
policies = st.dictionaries(st.sampled_from(KEEP_RULES), st.integers(1, 5))


@given(catalogues, policies)
def test_the_last_good_snapshot_of_a_source_never_goes(catalogue: list[Kept], policy: dict[str, int]) -> None:
    gone = forgettable(catalogue, policy)
    for source in {one.source for one in catalogue}:
        mine = [one for one in catalogue if one.source == source]
        good = [one for one in mine if one.complete]
        if good:
            assert max(good, key=lambda one: (one.taken_at, one.id)).id not in gone
        else:
            assert not gone & {one.id for one in mine}


@given(catalogues, policies)
def test_what_was_let_go_once_makes_nothing_else_go(catalogue: list[Kept], policy: dict[str, int]) -> None:
    gone = forgettable(catalogue, policy)
    assert not forgettable([one for one in catalogue if one.id not in gone], policy)
