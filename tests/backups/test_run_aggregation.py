"""What a run comes to: every combination that matters, and what holds for all of them."""

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.services.backups.aggregation import Attempt, aggregate

S, P, F, C = "succeeded", "partial_failure", "failed", "cancelled"
OPEN = ("pending", "claimed", "running")
ENDED = (S, P, F, C)


def of(source: int, status: str, attempt: int = 1, **more: object) -> Attempt:
    skipped = 1 if status == P else 0
    return replace(Attempt(source=UUID(int=source), status=status, attempt=attempt, files_skipped=skipped), **more)


def state(*statuses: str, sources: int | None = None, cancelled: bool = False) -> str:
    tasks = [of(number, status) for number, status in enumerate(statuses)]
    return aggregate(tasks, sources=len(statuses) if sources is None else sources, is_cancelled=cancelled).status


TWO = [
    # one source, the other, the run, the run with a cancel request
    (S, S, S, S),
    (S, P, P, P),
    (S, F, P, P),
    (S, C, P, C),
    (P, P, P, P),
    (P, F, P, P),
    (P, C, P, C),
    (F, F, F, F),
    (F, C, F, C),
    (C, C, C, C),
]


@pytest.mark.parametrize(("one", "other", "plain", "with_cancel"), TWO)
def test_two_sources_come_to_what_the_table_says_whatever_their_order(
    one: str, other: str, plain: str, with_cancel: str
) -> None:
    for pair in ((one, other), (other, one)):
        assert state(*pair) == plain
        assert state(*pair, cancelled=True) == with_cancel


@pytest.mark.parametrize("other", [*OPEN, *ENDED])
@pytest.mark.parametrize("held", ["claimed", "running"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_with_a_held_task_is_running(held: str, other: str, cancelled: bool) -> None:
    assert state(held, other, cancelled=cancelled) == "running"


@pytest.mark.parametrize(
    ("other", "expected"), [("pending", "pending"), (C, "pending"), (S, "running"), (P, "running"), (F, "running")]
)
def test_a_run_with_a_waiting_task_is_pending_until_something_began(other: str, expected: str) -> None:
    assert state("pending", other) == expected


def test_a_waiting_retry_keeps_the_run_running_and_its_success_counts() -> None:
    first = [of(1, S), of(2, F)]
    assert aggregate([*first, of(2, "pending", 2)], sources=2, is_cancelled=False).status == "running"
    after = aggregate([*first, of(2, S, 2)], sources=2, is_cancelled=False)
    assert (after.status, after.sources_succeeded, after.sources_failed) == (S, 2, 0)


def test_a_worse_retry_does_not_take_away_what_an_attempt_before_it_saved() -> None:
    found = aggregate([of(1, P, 1, bytes_processed=7), of(1, F, 2)], sources=1, is_cancelled=False)
    assert (found.status, found.bytes_processed, found.files_skipped) == (P, 7, 1)


@pytest.mark.parametrize(("statuses", "sources", "expected"), [
    ((), 0, F), ((), 2, F), ((S,), 2, P), ((P,), 2, P), ((F,), 2, F), ((C,), 2, F), ((S, S), 3, P),
])  # fmt: skip
def test_a_source_without_a_task_is_never_a_success(statuses: tuple[str, ...], sources: int, expected: str) -> None:
    assert state(*statuses, sources=sources) == expected


EXPIRED = {"is_expired": True}


@pytest.mark.parametrize(("tasks", "expected"), [
    ([of(1, C, **EXPIRED), of(2, C, **EXPIRED)], "missed"),
    ([of(1, S), of(2, C, **EXPIRED)], P),
    ([of(1, F), of(2, C, **EXPIRED)], F),
    ([of(1, C), of(2, C, **EXPIRED)], C),
    # A retry that waited too long: the attempt before it speaks.
    ([of(1, F, 1), of(1, C, 2, **EXPIRED)], F),
])  # fmt: skip
def test_what_no_agent_began_before_its_deadline_is_missed(tasks: list[Attempt], expected: str) -> None:
    sources = len({task.source for task in tasks})
    assert aggregate(tasks, sources=sources, is_cancelled=False).status == expected


counts = st.integers(0, 10**9)
attempts = st.lists(
    st.builds(
        Attempt, source=st.integers(0, 3).map(lambda number: UUID(int=number)), status=st.sampled_from([*OPEN, *ENDED]),
        attempt=st.integers(1, 10), is_expired=st.booleans(), bytes_processed=counts, files_skipped=st.just(0),
    ),
    max_size=8, unique_by=lambda task: (task.source, task.attempt),
)  # fmt: skip


def with_skips(tasks: list[Attempt]) -> list[Attempt]:
    """What the database lets a task say: a success skipped nothing, a partial failure something."""
    return [
        replace(task, files_skipped=1 if task.status == P else 0, is_expired=task.is_expired and task.status == C)
        for task in tasks
    ]


@given(attempts.map(with_skips), st.integers(0, 5), st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_reports_never_matters(
    tasks: list[Attempt], sources: int, cancelled: bool, order: random.Random
) -> None:
    shuffled = list(tasks)
    order.shuffle(shuffled)
    assert aggregate(tasks, sources=sources, is_cancelled=cancelled) == aggregate(
        shuffled, sources=sources, is_cancelled=cancelled
    )


@given(attempts.map(with_skips), st.integers(0, 5), st.booleans())
def test_a_success_is_whole_and_an_ended_run_has_nothing_open(
    tasks: list[Attempt], sources: int, cancelled: bool
) -> None:
    found = aggregate(tasks, sources=sources, is_cancelled=cancelled)
    if found.status == S:
        assert found.files_skipped == 0
        assert found.sources_succeeded >= max(1, sources)
    has_open = any(task.status in OPEN for task in tasks)
    assert found.is_over != has_open
