"""Times of schedules that nobody meant to leave out are told once, until a later one gets its job."""

from collections.abc import Callable

import pytest

from jobs.models import Agent, AgentJob, Event, JobKind, NoticeRule, NoticeState, Schedule, ScheduleSlot
from jobs.services.notices.matching import match
from jobs.services.schedule_registry import (
    change_schedule,
    create_schedule,
    pause_schedule,
    resume_schedule,
    retire_schedule,
)  # fmt: skip
from jobs.services.scheduling import MAX_OPEN, enqueue_due, run_now
from tests.factories import AgentFactory, AgentJobFactory, JobKindFactory
from tests.notices.conftest import told
from tests.schedules.conftest import Clock, definition, end_jobs, slots

Listen = Callable[..., NoticeRule]
HEARD = [Event.SCHEDULE_MISSED, Event.RECOVERED]
MISSED = ("schedule_missed", "Schedule nightly enqueued no job")
GOOD = ("recovered", "Good again: schedule missed of nightly")


@pytest.fixture
def clock(db: None) -> Clock:
    """The database's clock at midnight, with a kind and an agent for schedules."""
    clock = Clock()
    clock.set("2027-01-05 00:00")
    JobKindFactory(name="report", schema={"type": "object", "required": ["title"]})
    AgentFactory(principal_key="fw-berlin-1")
    return clock


def make(**said: object) -> Schedule:
    """An hourly schedule, apart from what is said."""
    return create_schedule(definition(**said), by="ada")


def turn(clock: Clock, at: str) -> None:
    """What the maintenance loop does at that time of the fifth of January."""
    clock.set(f"2027-01-05 {at}")
    enqueue_due()
    match()


def test_times_that_passed_unnoticed_are_told_once_and_so_is_the_next_job(clock: Clock, listen: Listen) -> None:
    rule = listen(HEARD)
    schedule = make(misfire="skip")
    turn(clock, "03:10")
    turn(clock, "03:20")
    assert slots(schedule) == [("01-05 01:00", "late"), ("01-05 02:00", "late"), ("01-05 03:00", "late")]
    assert told() == [MISSED]
    notice = rule.notices.get()
    assert notice.body == "Due on 2027-01-05 03:00 UTC: noticed too late, and missed times are skipped."
    assert notice.path == f"/admin/jobs/schedule/{schedule.pk}/change/"
    turn(clock, "04:00")
    turn(clock, "05:00")
    assert told() == [MISSED, GOOD]
    turn(clock, "07:30")
    assert told() == [MISSED, GOOD, MISSED]


@pytest.mark.parametrize("broken", ["agent", "kind", "spec"])
def test_jobs_that_can_no_longer_be_enqueued_are_told_once_with_the_reason(
    broken: str, clock: Clock, listen: Listen
) -> None:
    rule = listen(HEARD)
    make()
    agents, kinds = Agent.objects.filter(principal_key="fw-berlin-1"), JobKind.objects.filter(name="report")
    match broken:
        case "agent":
            agents.update(state="disabled")
        case "kind":
            kinds.update(enabled=False)
        case _:
            kinds.update(schema={"type": "object", "required": ["size"]})
    for hour in ("01:00", "02:00", "03:00"):
        turn(clock, hour)
    assert told() == [MISSED]
    assert f"the job could not be enqueued. {broken}: " in rule.notices.get().body
    agents.update(state="active")
    kinds.update(enabled=True, schema={})
    turn(clock, "04:00")
    assert told() == [MISSED, GOOD]


def test_a_schedule_whose_jobs_pile_up_is_told_when_it_enqueues_no_more(clock: Clock, listen: Listen) -> None:
    listen(HEARD)
    schedule = make(overlap="queue")
    agent = Agent.objects.get(principal_key="fw-berlin-1")
    for _ in range(MAX_OPEN):
        AgentJobFactory(agent=agent, schedule=schedule)
    turn(clock, "01:00")
    assert told() == [MISSED]
    AgentJob.objects.filter(schedule=schedule).update(status="cancelled")
    turn(clock, "02:00")
    assert told() == [MISSED, GOOD]


@pytest.mark.parametrize("misfire", ["latest", "all"])
def test_times_that_are_caught_up_are_not_told(misfire: str, clock: Clock, listen: Listen) -> None:
    listen(HEARD)
    make(misfire=misfire, overlap="queue")
    turn(clock, "05:30")
    assert ScheduleSlot.objects.filter(outcome="enqueued").exists()
    assert told() == []


def test_what_is_left_out_by_a_pause_or_an_overlap_is_neither_told_nor_good_again(clock: Clock, listen: Listen) -> None:
    listen(HEARD)
    schedule = make()
    turn(clock, "01:00")
    turn(clock, "04:20")
    assert slots(schedule)[1:] == [
        ("01-05 02:00", "superseded"), ("01-05 03:00", "superseded"), ("01-05 04:00", "overlap"),
    ]  # fmt: skip
    pause_schedule(schedule_id=schedule.pk, by="ada", note="the disk is full")
    turn(clock, "06:20")
    assert told() == []

    JobKind.objects.update(enabled=False)
    end_jobs(schedule)
    resume_schedule(schedule_id=schedule.pk, by="ada")
    turn(clock, "07:00")
    assert told() == [MISSED]
    pause_schedule(schedule_id=schedule.pk, by="ada", note="the kind is off")
    turn(clock, "08:20")
    assert slots(schedule)[-1] == ("01-05 08:00", "paused")
    assert told() == [MISSED]


def test_a_job_that_is_run_by_hand_makes_it_good_again(clock: Clock, listen: Listen) -> None:
    listen(HEARD)
    schedule = make(misfire="skip")
    turn(clock, "01:30")
    run_now(schedule_id=schedule.pk, by="ada")
    match()
    assert told() == [MISSED, GOOD]


def test_a_schedule_that_is_renamed_stays_told_and_one_that_is_retired_ends_without_news(
    clock: Clock, listen: Listen
) -> None:
    listen(HEARD)
    renamed, retired = make(misfire="skip"), make(name="weekly", misfire="skip")
    turn(clock, "01:30")
    assert len(told()) == 2
    change_schedule(definition(name="hourly", misfire="skip"), schedule_id=renamed.pk, by="ada")
    retire_schedule(schedule_id=retired.pk, by="ada", reason="another one does it")
    match()
    assert len(told()) == 2
    assert NoticeState.objects.count() == 1
    turn(clock, "02:00")
    assert told()[2:] == [("recovered", "Good again: schedule missed of hourly")]


@pytest.mark.parametrize(("matches", "hears"), [
    ({}, True), ({"kind": "report"}, True), ({"kind": "echo"}, False), ({"agent": "fw-berlin-1"}, True),
    ({"agent": "fw"}, False), ({"schedule": "nightly"}, True), ({"schedule": "weekly"}, False),
    ({"label": "team"}, True), ({"label": "team=ops"}, True), ({"label": "team=shop"}, False),
    ({"label": "branch"}, False),
])  # fmt: skip
def test_a_rule_hears_of_the_schedules_whose_jobs_it_would_hear_of(
    matches: dict[str, str], hears: bool, clock: Clock, listen: Listen
) -> None:
    rule = listen(HEARD)
    NoticeRule.objects.filter(pk=rule.pk).update(**matches)
    make(misfire="skip", labels={"team": "ops"})
    turn(clock, "01:30")
    assert bool(told()) is hears


def test_each_schedule_is_missed_and_good_again_by_itself(clock: Clock, listen: Listen) -> None:
    listen(HEARD)
    make(misfire="skip")
    make(name="weekly", misfire="skip", expression="0 1 * * *")
    turn(clock, "01:30")
    turn(clock, "02:00")
    assert sorted(told()) == sorted([MISSED, ("schedule_missed", "Schedule weekly enqueued no job"), GOOD])
