"""Days and nights of schedules under faults, in minutes: every time that was due is accounted for, exactly once.

The clock of the database is the test's; the maintenance loops are the product's own, two of them, and so is everything
that people and runners call. `tests/schedules/oracle.py` says what must be left. Each run prints its seed; WEEK_SEED
takes one again.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobs.engine.leases import LeaseQuerySet
from jobs.management import clockwork
from jobs.models import AgentJob, Schedule, ScheduleSlot
from jobs.services import maintenance, scheduling
from jobs.services.calendar import Calendar
from tests.schedules.oracle import utc
from tests.schedules.virtual_time import time_travel
from tests.schedules.week import Plan, Week

pytestmark = pytest.mark.django_db(transaction=True)

SEED = int(os.environ.get("WEEK_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
# Berlin's clocks go back in the night to the last Sunday of October, and ahead in that of March.
WEEK = Plan(
    start=utc("2027-10-27T00:00"), hours=7 * 24, agents=50, schedules=56, hands=3, seed=SEED,
    away=[(31, 3), (96.25, 3)], disabled=[(50, 24), (100, 24)],
    steps=[(20, 0.75), (140, 1.5)], deaths=8, cuts=20, pace=timedelta(minutes=15) / 8,
)  # fmt: skip
NIGHT = Plan(
    start=utc("2027-03-27T23:00"), hours=4, agents=6, schedules=14, hands=2, seed=SEED,
    away=[(2.6, 1.1)], disabled=[(0.5, 1.5)], steps=[(2.05, 0.15)], deaths=2, cuts=3, pace=timedelta(seconds=30),
)  # fmt: skip


def lived(plan: Plan) -> tuple[Week, list[str]]:
    """One run, told in one line, and what the oracle finds."""
    print(f"seed {plan.seed}, {plan.hours:g} hours", flush=True)
    with time_travel(plan.start):
        week = Week(plan)
        told = week.run()
        violations = told.violations()
    slots = Counter(slot.reason or slot.outcome for slot in ScheduleSlot.objects.all())
    print(f"slots {dict(slots)}, jobs {AgentJob.objects.count()}, {dict(week.counts)}", flush=True)
    return week, violations


def test_a_night_in_which_the_clocks_change_accounts_for_every_time() -> None:
    week, violations = lived(NIGHT)
    assert violations == []
    assert week.duties_in_trouble() == []


def enqueues_twice(run: Callable[..., Any]) -> Callable[..., Any]:
    def twice(schedule: Schedule, due_at: datetime, now: datetime) -> Any:
        if ScheduleSlot.objects.filter(schedule=schedule).count() % 5 == 4:
            scheduling._fill(schedule, due_at, begins=now, now=now, by="bug")
        return run(schedule, due_at, now)

    return twice


def loses_the_repeated_hour(after: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dates, instant: (due for due in after(dates, instant) if due.hour != 1 or due.minute % 30)


def lets_jobs_overlap(fill: Callable[..., Any]) -> Callable[..., Any]:
    def queued(schedule: Schedule, due_at: datetime, **said: Any) -> Any:
        schedule.overlap = Schedule.Overlap.QUEUE
        return fill(schedule, due_at, **said)

    return queued


def forgets_the_pause(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda schedule, at: schedule.state == "paused" and schedule.state_until is None


def retries_nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda rows, row: None


def runs_what_was_missed(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda schedule, due, now, *, is_all: ([], due[0] if due else None)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("place", "name", "bug", "said"),
    [
        (scheduling, "_run", enqueues_twice, "belongs to no time"),
        (Calendar, "after", loses_the_repeated_hour, "has no slot"),
        (scheduling, "_fill", lets_jobs_overlap, "went on under"),
        (scheduling, "is_paused", forgets_the_pause, "the pauses say otherwise"),
        (LeaseQuerySet, "_retry_by_class", retries_nothing, "given up after"),
        (scheduling, "_judge", runs_what_was_missed, "under skip"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_deliberate_bug_is_noticed(
    place: Any, name: str, bug: Callable[..., Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, bug(getattr(place, name)))
    _, violations = lived(replace(NIGHT, hours=6, away=[(2.6, 2.1)]))
    assert [violation for violation in violations if said in violation], violations


@pytest.mark.soak
def test_a_week_accounts_for_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Loops that take fewer turns, and believe in an outage after as many turns as ever.
    monkeypatch.setattr(maintenance, "LOOP_GAP", 2 * WEEK.pace)
    monkeypatch.setattr(clockwork, "LONGEST_WAIT", 2 * WEEK.pace.total_seconds())
    week, violations = lived(WEEK)
    assert violations == []
    assert week.duties_in_trouble() == []
    # What the week was for did happen.
    seen = set(ScheduleSlot.objects.order_by().values_list("reason", flat=True).distinct())
    assert seen == {"", "paused", "overlap", "invalid", "late", "superseded", "over_limit"}
    assert week.counts["loops that died"] == WEEK.deaths
    assert week.counts["steps of the clock"] == 2 * len(WEEK.steps)
    faults = {
        "connections cut at work", "connections cut at rest", "silent", "overrun", "transient", "interrupted",
        "configuration", "reports that came too late", "acts while due",
    }  # fmt: skip
    assert {fault for fault in faults if not week.counts[fault]} == set()
