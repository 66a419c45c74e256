"""What people do with schedules: define, pause, run now, retire; and what the database refuses all the same."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from jobs.models import Agent, AgentJob, AuditEvent, Schedule, ScheduleSlot
from jobs.services.errors import Invalid, NotFound
from jobs.services.schedule_registry import (
    change_schedule,
    pause_schedule,
    resume_schedule,
    retire_schedule,
)  # fmt: skip
from jobs.services.scheduling import Overlaps, ScheduleRetired, Worked, enqueue_due, run_now
from tests.schedules.conftest import Clock, definition, slots

Make = Callable[..., Schedule]


def stored(schedule: Schedule) -> Schedule:
    return Schedule.objects.get(pk=schedule.pk)


def test_times_in_a_pause_are_skipped_and_those_after_its_end_are_not(clock: Clock, make: Make) -> None:
    schedule = make(misfire="all", overlap="queue")
    clock.set("2027-01-05 01:30")
    until = datetime(2027, 1, 5, 3, 30, tzinfo=UTC)
    pause_schedule(schedule_id=schedule.pk, by="ada", note="The disk is changed", until=until)
    clock.set("2027-01-05 04:10")
    enqueue_due()
    assert slots(schedule) == [
        ("01-05 01:00", "enqueued"), ("01-05 02:00", "paused"), ("01-05 03:00", "paused"), ("01-05 04:00", "enqueued"),
    ]  # fmt: skip
    line = AuditEvent.objects.get(tag="schedule_state", reason="The disk is changed")
    assert (line.actor, line.details["act"]) == ("ada", "paused")


def test_resuming_leaves_what_fell_into_the_pause_skipped(clock: Clock, make: Make) -> None:
    schedule = make(misfire="all", overlap="queue")
    pause_schedule(schedule_id=schedule.pk, by="ada", note="Wait")
    clock.set("2027-01-05 02:10")
    resume_schedule(schedule_id=schedule.pk, by="ada")
    clock.set("2027-01-05 03:00")
    enqueue_due()
    assert [came for _, came in slots(schedule)] == ["paused", "paused", "enqueued"]


@pytest.mark.parametrize(("note", "until"), [("", None), (" ", None), ("x" * 501, None), ("a\x00", None),
                                             ("Wait", datetime(2027, 1, 5, tzinfo=UTC))])  # fmt: skip
def test_a_pause_without_a_note_or_with_an_end_that_has_passed_is_refused(
    note: str, until: datetime | None, clock: Clock, make: Make
) -> None:
    schedule = make()
    with pytest.raises(Invalid):
        pause_schedule(schedule_id=schedule.pk, by="ada", note=note, until=until)
    assert stored(schedule).state == "active"


def test_run_now_enqueues_at_once_in_a_pause_too_and_leaves_the_next_time_alone(clock: Clock, make: Make) -> None:
    schedule = make(splay_seconds=1000)
    pause_schedule(schedule_id=schedule.pk, by="ada", note="Wait")
    clock.set("2027-01-05 00:17")
    job = AgentJob.objects.get(pk=run_now(schedule_id=schedule.pk, by="grace"))
    slot = ScheduleSlot.objects.get(job=job)
    assert (slot.requested_by, slot.outcome, job.created_by, job.not_before) == ("grace", "enqueued", "grace", None)
    assert stored(schedule).next_due_at == datetime(2027, 1, 5, 1, tzinfo=UTC)
    assert AuditEvent.objects.get(tag="schedule_run").actor == "grace"


def test_run_now_does_not_run_beside_an_open_job_unless_the_policy_says_so(clock: Clock, make: Make) -> None:
    schedule = make(overlap="skip")
    first = run_now(schedule_id=schedule.pk, by="ada")
    with pytest.raises(Overlaps) as refused:
        run_now(schedule_id=schedule.pk, by="ada")
    assert refused.value.job_id == first
    assert ScheduleSlot.objects.count() == 1


def test_run_now_says_why_a_job_cannot_be_enqueued(clock: Clock, make: Make, agent: Agent) -> None:
    schedule = make()
    Agent.objects.filter(pk=agent.pk).update(state="disabled")
    with pytest.raises(Invalid) as refused:
        run_now(schedule_id=schedule.pk, by="ada")
    assert "disabled" in refused.value.problems[0].message
    assert not ScheduleSlot.objects.exists()


def test_a_retired_schedule_is_never_due_again_and_refuses_every_act(clock: Clock, make: Make) -> None:
    schedule = make()
    clock.set("2027-01-05 01:00")
    retire_schedule(schedule_id=schedule.pk, by="ada", reason="The report is not read")
    clock.set("2027-02-05 01:00")
    assert enqueue_due() == Worked()
    assert slots(schedule) == [("01-05 01:00", "enqueued")]
    for act in (
        lambda: run_now(schedule_id=schedule.pk, by="ada"),
        lambda: resume_schedule(schedule_id=schedule.pk, by="ada"),
        lambda: pause_schedule(schedule_id=schedule.pk, by="ada", note="x"),
        lambda: change_schedule(definition(), schedule_id=schedule.pk, by="ada"),
        lambda: retire_schedule(schedule_id=schedule.pk, by="ada", reason="again"),
    ):
        with pytest.raises(ScheduleRetired):
            act()
    make(name="nightly")  # its name is free again


def test_every_act_on_no_schedule_is_not_found(clock: Clock, make: Make) -> None:
    make()
    for act in (
        lambda: run_now(schedule_id=uuid4(), by="ada"),
        lambda: resume_schedule(schedule_id=uuid4(), by="ada"),
        lambda: change_schedule(definition(), schedule_id=uuid4(), by="ada"),
    ):
        with pytest.raises(NotFound):
            act()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""), ("name", " a"), ("name", "x" * 101), ("name", "a\nb"), ("name", "a\x00"), ("name", "\ud800"),
        ("agent", "nobody"), ("agent", "\x00"), ("kind", "nothing"), ("kind", "\x00"), ("spec", []), ("spec", {}),
        ("spec", {"title": "\x00"}), ("expression", "* * * *"), ("expression", "0 0 31 2 *"), ("zone", "Mars/X"),
        ("splay_seconds", -1), ("splay_seconds", 3600), ("splay_seconds", 10**9), ("misfire", "never"),
        ("overlap", "fight"), ("catch_up_limit", 0), ("catch_up_limit", 101), ("grace_seconds", 59),
        ("expires_after_seconds", 59), ("expires_after_seconds", 10**9), ("priority", 101),
        ("concurrency_key", "x" * 201), ("concurrency_key", "\x00"), ("labels", []), ("labels", {"slot": "x"}),
        ("labels", {"a": "\x00"}), ("labels", {str(number): 1 for number in range(49)}),
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_a_definition_that_cannot_be_is_refused_at_the_field(
    field: str, value: object, clock: Clock, make: Make
) -> None:
    sound = make(name="sound")
    with pytest.raises(Invalid) as refused:
        make(**{field: value})
    assert {problem.pointer.split("/")[1] for problem in refused.value.problems} == {field}
    with pytest.raises(Invalid):
        change_schedule(definition(**{field: value}), schedule_id=sound.pk, by="ada")
    assert Schedule.objects.get().name == "sound"


def test_two_live_schedules_have_two_names(clock: Clock, make: Make) -> None:
    make(name="a")
    other = make(name="b")
    with pytest.raises(Invalid, match="must"):
        make(name="a")
    with pytest.raises(Invalid):
        change_schedule(definition(name="a"), schedule_id=other.pk, by="ada")


@pytest.mark.parametrize(
    "change",
    [{"state": "asleep"}, {"misfire": "x"}, {"overlap": "x"}, {"catch_up_limit": 101}, {"grace_seconds": 5},
     {"splay_seconds": -1}, {"next_due_at": None}, {"state": "retired"}, {"expires_after_seconds": 5}],
    ids=str,
)  # fmt: skip
def test_the_database_refuses_a_schedule_that_cannot_work(change: dict[str, object], clock: Clock, make: Make) -> None:
    schedule = make()
    with pytest.raises(IntegrityError), transaction.atomic():
        Schedule.objects.filter(pk=schedule.pk).update(**change)


@pytest.mark.parametrize(("outcome", "reason"), [("skipped", ""), ("enqueued", "late"), ("missed", "overlap"),
                                                 ("lost", ""), ("refused", "paused")])  # fmt: skip
def test_the_database_refuses_a_slot_without_the_reason_that_belongs_to_it(
    outcome: str, reason: str, clock: Clock, make: Make
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        ScheduleSlot.objects.create(schedule=make(), due_at=clock.go(), outcome=outcome, reason=reason)


def test_the_database_refuses_a_second_slot_for_one_time(clock: Clock, make: Make) -> None:
    schedule, at = make(), clock.go()
    ScheduleSlot.objects.create(schedule=schedule, due_at=at, outcome="enqueued")
    with pytest.raises(IntegrityError, match="schedule_slots_due_key"), transaction.atomic():
        ScheduleSlot.objects.create(schedule=schedule, due_at=at, outcome="enqueued")
