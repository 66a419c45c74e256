"""What comes of each time: jobs, misfires, overlaps, pauses and edits, by the database's clock."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import structlog
from django.db import connection

from jobs.models import Agent, AgentJob, AuditEvent, JobKind, Schedule, ScheduleSlot
from jobs.services import governance, scheduling
from jobs.services.schedule_registry import (
    change_schedule,
)  # fmt: skip
from jobs.services.scheduling import Worked, enqueue_due
from tests.schedules.conftest import Clock, definition, end_jobs, jobs_of, slots

Make = Callable[..., Schedule]


def stored(schedule: Schedule) -> Schedule:
    return Schedule.objects.get(pk=schedule.pk)


def test_a_time_that_is_due_becomes_one_job_that_says_where_it_comes_from(clock: Clock, make: Make) -> None:
    schedule = make(spec={"title": "Night"}, labels={"team": "ops"}, priority=7, expires_after_seconds=600)
    assert enqueue_due() == Worked()
    clock.set("2027-01-05 01:00")
    assert enqueue_due() == Worked(enqueued=1)
    assert enqueue_due() == Worked()
    (job,) = jobs_of(schedule)
    assert (job.kind, job.spec, job.priority, job.created_by) == ("report", {"title": "Night"}, 7, "schedule:nightly")
    assert job.labels == {"team": "ops", "schedule": "nightly", "slot": "2027-01-05T01:00:00Z"}
    assert job.expires_at == datetime(2027, 1, 5, 1, 10, tzinfo=UTC)
    assert job.not_before is None
    assert job.schedule == schedule
    assert AuditEvent.objects.get(tag="enqueued", subject_id=job.pk).actor == "schedule:nightly"
    assert stored(schedule).next_due_at == datetime(2027, 1, 5, 2, tzinfo=UTC)


def test_nothing_is_due_a_moment_before_its_time(clock: Clock, make: Make) -> None:
    schedule = make()
    clock.set("2027-01-05 00:59:59.999")
    assert enqueue_due() == Worked()
    assert slots(schedule) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"misfire": "skip"}, ["late", "late", "late"]),
        ({"misfire": "latest"}, ["superseded", "superseded", "enqueued"]),
        ({"misfire": "all", "overlap": "queue"}, ["enqueued", "enqueued", "enqueued"]),
        ({"misfire": "all", "overlap": "queue", "catch_up_limit": 2}, ["over_limit", "enqueued", "enqueued"]),
        ({"misfire": "all", "overlap": "skip"}, ["enqueued", "overlap", "overlap"]),
    ],
    ids=str,
)  # fmt: skip
def test_three_hours_and_ten_minutes_without_a_scheduler(
    said: dict[str, object], expected: list[str], clock: Clock, make: Make
) -> None:
    schedule = make(**said)
    clock.set("2027-01-05 03:10")
    enqueue_due()
    assert slots(schedule) == list(zip(["01-05 01:00", "01-05 02:00", "01-05 03:00"], expected, strict=True))
    clock.set("2027-01-05 04:00")
    end_jobs(schedule)
    enqueue_due()
    assert slots(schedule)[3:] == [("01-05 04:00", "enqueued")]


def test_a_time_within_the_grace_is_on_time_whatever_the_policy_for_missed_ones(clock: Clock, make: Make) -> None:
    schedule = make(misfire="skip", grace_seconds=300)
    clock.set("2027-01-05 01:05:00")
    enqueue_due()
    clock.set("2027-01-05 02:05:01")
    enqueue_due()
    assert slots(schedule) == [("01-05 01:00", "enqueued"), ("01-05 02:00", "late")]


def test_after_an_outage_the_latest_stands_for_the_missed_ones_even_when_it_is_on_time(
    clock: Clock, make: Make
) -> None:
    schedule = make(misfire="latest")
    clock.set("2027-01-05 03:00:30")
    enqueue_due()
    assert [came for _, came in slots(schedule)] == ["superseded", "superseded", "enqueued"]


@pytest.mark.parametrize(("misfire", "left"), [("skip", "late"), ("latest", "superseded"), ("all", "over_limit")])
def test_two_days_of_minutes_are_accounted_for_to_the_last_one(
    misfire: str, left: str, clock: Clock, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "BATCH", 500)
    schedule = make(expression="* * * * *", misfire=misfire, overlap="queue", catch_up_limit=3, grace_seconds=60)
    clock.set("2027-01-07 00:00:30")
    worked = enqueue_due()
    run = {"skip": 1, "latest": 1, "all": 4}[misfire]
    minutes = 2 * 24 * 60
    assert worked == Worked(enqueued=run, missed=minutes - run)
    assert set(ScheduleSlot.objects.values_list("reason", flat=True)) == {"", left}
    due = list(ScheduleSlot.objects.order_by("due_at").values_list("due_at", flat=True))
    first = datetime(2027, 1, 5, 0, 1, tzinfo=UTC)
    assert due == [first + timedelta(minutes=number) for number in range(minutes)]
    assert [slot[1] for slot in slots(schedule)[-run:]] == ["enqueued"] * run


def test_while_a_job_is_open_the_next_time_is_skipped_and_names_it(clock: Clock, make: Make) -> None:
    schedule = make(overlap="skip")
    clock.set("2027-01-05 01:00")
    enqueue_due()
    clock.set("2027-01-05 02:00")
    assert enqueue_due() == Worked(skipped=1)
    slot = ScheduleSlot.objects.get(reason="overlap")
    assert slot.open_job_id == jobs_of(schedule)[0].pk
    end_jobs(schedule)
    clock.set("2027-01-05 03:00")
    assert enqueue_due() == Worked(enqueued=1)


def test_a_retry_that_waits_keeps_the_run_open(clock: Clock, make: Make, agent: Agent) -> None:
    schedule = make(overlap="skip")
    clock.set("2027-01-05 01:00")
    enqueue_due()
    (job,) = jobs_of(schedule)
    claim_id = uuid4()
    leasing = AgentJob.objects.claim(claim_id, agent=agent.principal_key, kinds=["report"], digest="x")
    assert leasing is not None
    holder = governance.AgentJob.objects.get(pk=job.pk)
    assert holder.status == "running"
    AgentJob.objects.filter(pk=job.pk).update(heartbeat_at=datetime(2027, 1, 5, tzinfo=UTC))
    AgentJob.objects.reap()
    retry = AgentJob.objects.get(retry_of=job.pk)
    assert retry.schedule == schedule
    clock.set("2027-01-05 02:00")
    enqueue_due()
    assert ScheduleSlot.objects.get(reason="overlap").open_job_id == retry.pk
    assert not ScheduleSlot.objects.filter(job=retry).exists()


def test_queued_jobs_of_a_schedule_run_one_after_the_other(clock: Clock, make: Make, agent: Agent) -> None:
    schedule = make(overlap="queue")
    for hour in (1, 2, 3):
        clock.set(f"2027-01-05 0{hour}:00")
        enqueue_due()
    assert [came for _, came in slots(schedule)] == ["enqueued"] * 3
    claim = {"agent": agent.principal_key, "kinds": ["report"], "digest": "x"}
    assert AgentJob.objects.claim(uuid4(), **claim) is not None
    assert AgentJob.objects.claim(uuid4(), **claim) is None


def test_a_queue_that_nobody_empties_does_not_grow_for_ever(
    clock: Clock, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "MAX_OPEN", 2)
    schedule = make(overlap="queue")
    for hour in (1, 2, 3):
        clock.set(f"2027-01-05 0{hour}:00")
        enqueue_due()
    assert [came for _, came in slots(schedule)] == ["enqueued", "enqueued", "queue_full"]


def test_the_new_one_takes_the_place_of_the_old_one(clock: Clock, make: Make, agent: Agent) -> None:
    schedule = make(overlap="cancel")
    clock.set("2027-01-05 01:00")
    enqueue_due()
    clock.set("2027-01-05 02:00")
    enqueue_due()
    first, second = jobs_of(schedule)
    assert (first.status, first.cancel_requested_by) == ("cancelled", "schedule:nightly")
    leasing = AgentJob.objects.claim(uuid4(), agent=agent.principal_key, kinds=["report"], digest="x")
    assert leasing is not None
    assert leasing.row.pk == second.pk
    clock.set("2027-01-05 03:00")
    enqueue_due()
    second.refresh_from_db()
    assert (second.status, second.cancel_requested_at is not None) == ("running", True)
    # The third waits until the second has stopped.
    assert AgentJob.objects.claim(uuid4(), agent=agent.principal_key, kinds=["report"], digest="x") is None


def test_a_splay_delays_the_job_of_each_agent_by_its_own_offset_also_after_an_outage(clock: Clock, make: Make) -> None:
    schedule = make(splay_seconds=1800)
    offset = timedelta(seconds=22)  # of fw-berlin-1
    clock.set("2027-01-05 01:00")
    enqueue_due()
    end_jobs(schedule)
    clock.set("2027-01-05 09:30")
    enqueue_due()
    first, caught_up = jobs_of(schedule)
    assert first.not_before == datetime(2027, 1, 5, 1, tzinfo=UTC) + offset
    assert caught_up.not_before == datetime(2027, 1, 5, 9, 30, tzinfo=UTC) + offset
    assert caught_up.labels["slot"] == "2027-01-05T09:00:00Z"


@pytest.mark.parametrize("moment", ["00:59:59", "01:00:00", "01:00:01"])
def test_an_edit_around_the_time_loses_and_doubles_nothing(moment: str, clock: Clock, make: Make) -> None:
    schedule = make(expression="0 1 * * *", zone="UTC")
    clock.set(f"2027-01-05 {moment}")
    change_schedule(definition(expression="5 2 * * *", zone="Europe/Berlin"), schedule_id=schedule.pk, by="ada")
    assert stored(schedule).next_due_at == datetime(2027, 1, 5, 1, 5, tzinfo=UTC)
    end_jobs(schedule)
    clock.set("2027-01-05 01:05")
    enqueue_due()
    before = [] if moment == "00:59:59" else [("01-05 01:00", "enqueued")]
    assert slots(schedule) == [*before, ("01-05 01:05", "enqueued")]


def test_what_was_due_before_an_edit_runs_as_it_was_defined_then(clock: Clock, make: Make) -> None:
    schedule = make(spec={"title": "old"})
    clock.set("2027-01-05 01:02")
    change_schedule(definition(spec={"title": "new"}, overlap="queue"), schedule_id=schedule.pk, by="ada")
    clock.set("2027-01-05 02:00")
    enqueue_due()
    assert [job.spec["title"] for job in jobs_of(schedule)] == ["old", "new"]


def test_a_clock_that_is_set_back_runs_no_time_twice(clock: Clock, make: Make) -> None:
    schedule = make(overlap="queue")
    clock.set("2027-01-05 02:00:01")
    enqueue_due()
    clock.set("2027-01-05 00:30")
    assert enqueue_due() == Worked()
    change_schedule(definition(overlap="queue"), schedule_id=schedule.pk, by="ada")
    for moment in ("01:00", "02:00", "03:00"):
        clock.set(f"2027-01-05 {moment}")
        enqueue_due()
    assert slots(schedule) == [
        ("01-05 01:00", "superseded"), ("01-05 02:00", "enqueued"), ("01-05 03:00", "enqueued"),
    ]  # fmt: skip


def test_a_clock_that_jumps_ahead_and_back_leaves_each_time_with_one_slot(clock: Clock, make: Make) -> None:
    schedule = make(overlap="queue")
    clock.set("2027-01-06 00:00")
    enqueue_due()
    clock.set("2027-01-05 00:30")
    for _ in range(60):
        clock.go(minutes=30)
        enqueue_due()
    due = [slot[0] for slot in slots(schedule)]
    assert len(due) == len(set(due)) == 30


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2027-03-27 12:00", ["03-28 01:00", "03-29 00:30"]),
        ("Europe/Berlin", "30 2 * * *", "2027-10-30 12:00", ["10-31 00:30", "11-01 01:30"]),
        ("America/New_York", "30 2 * * *", "2027-03-13 12:00", ["03-14 07:00", "03-15 06:30"]),
        ("America/New_York", "30 1 * * *", "2027-11-06 12:00", ["11-07 05:30", "11-08 06:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2027-10-02 05:00", ["10-02 15:30", "10-03 15:15"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2027-04-03 05:00", ["04-03 14:45", "04-04 15:15"]),
        ("UTC", "0 0 29 2 *", "2028-02-28 00:00", ["02-29 00:00"]),
        ("Europe/Berlin", "59 23 31 12 *", "2027-12-31 12:00", ["12-31 22:59"]),
        ("Europe/Berlin", "0 0 1 1 *", "2027-12-31 12:00", ["12-31 23:00"]),
    ],
)  # fmt: skip
def test_two_days_around_a_change_of_clocks_tick_by_tick(
    zone: str, expression: str, start: str, expected: list[str], clock: Clock, make: Make
) -> None:
    clock.set(start)
    schedule = make(expression=expression, zone=zone)
    for _ in range(48 * 4):
        clock.go(minutes=15)
        enqueue_due()
        end_jobs(schedule)
    assert slots(schedule) == [(due, "enqueued") for due in expected]


@pytest.mark.parametrize(
    ("model", "change", "reason"),
    [
        (Agent, {"state": "disabled"}, "agent: The agent is disabled"),
        (JobKind, {"enabled": False}, "kind: The kind is disabled"),
        (JobKind, {"schema": {"required": ["name"]}}, 'spec: "name" is a required property'),
        (JobKind, {"name": "renamed"}, "kind: There is no kind of that name"),
    ],
    ids=["disabled agent", "disabled kind", "other schema", "no such kind"],
)
def test_a_job_that_can_no_longer_be_enqueued_is_a_slot_with_the_reason(
    model: type[Agent | JobKind], change: dict[str, object], reason: str, clock: Clock, make: Make
) -> None:
    schedule = make()
    model.objects.update(**change)
    clock.set("2027-01-05 01:00")
    assert enqueue_due() == Worked(refused=1)
    assert reason in ScheduleSlot.objects.get().note
    assert jobs_of(schedule) == []


def test_one_schedule_that_fails_stops_no_other_and_is_named_in_the_log(clock: Clock, make: Make) -> None:
    broken, sound = make(name="broken", expression="30 0 * * *"), make(name="sound")
    Schedule.objects.filter(pk=broken.pk).update(zone="Mars/Olympus")
    clock.set("2027-01-05 01:00")
    with structlog.testing.capture_logs() as lines, pytest.raises(ExceptionGroup):
        enqueue_due()
    assert slots(sound) == [("01-05 01:00", "enqueued")]
    assert [line["schedule"] for line in lines] == [str(broken.pk)]


def test_a_purged_job_leaves_its_slot(clock: Clock, make: Make) -> None:
    schedule = make()
    clock.set("2027-01-05 01:00")
    enqueue_due()
    end_jobs(schedule)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_jobs")
    slot = ScheduleSlot.objects.get()
    assert (slot.outcome, slot.job_id) == ("enqueued", None)
