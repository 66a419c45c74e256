"""Schedules of backup jobs: each time that is due launches a run, or says why not."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.models import AgentTask, BackupJob, BackupJobRun, Schedule, ScheduleSlot
from jobs.services import schedule_registry, scheduling
from jobs.services.backups import launching, registry
from jobs.services.errors import Invalid, RunActive
from tests.factories import ScheduleFactory

pytestmark = pytest.mark.django_db


def definition(job: BackupJob, **values: object) -> schedule_registry.BackupDefinition:
    said = {"name": "every night", "backup_job": job.pk, "expression": "0 2 * * *"} | values
    return schedule_registry.BackupDefinition(**said)  # type: ignore[arg-type]  # texts and numbers of the tests


@pytest.fixture
def schedule(job: BackupJob) -> Schedule:
    return schedule_registry.create_schedule(definition(job), by="ada")


def fall_due(schedule: Schedule, *, late: timedelta = timedelta(days=2)) -> None:
    """Let the last times not be settled yet."""
    then = timezone.now() - late
    Schedule.objects.filter(pk=schedule.pk).update(settled_at=then, next_due_at=then + timedelta(seconds=1))
    scheduling.enqueue_due()


def slots(schedule: Schedule) -> list[tuple[str, str]]:
    return list(schedule.slots.order_by("due_at").values_list("outcome", "reason"))


def test_missed_times_are_caught_up_by_one_run_that_names_its_time(job: BackupJob, schedule: Schedule) -> None:
    fall_due(schedule)
    run = BackupJobRun.objects.get(job=job)
    slot = ScheduleSlot.objects.get(schedule=schedule, outcome="enqueued")
    assert (run.pk, run.scheduled_for, run.trigger) == (slot.run_id, slot.due_at, "catch_up")
    assert AgentTask.objects.filter(job_run=run).count() == 2
    assert set(slots(schedule)) == {("missed", "superseded"), ("enqueued", "")}


def test_a_time_that_falls_into_an_open_run_is_counted_on_it(job: BackupJob, schedule: Schedule) -> None:
    open_run = launching.launch_backup(job_id=job.pk, by="ada").run_id
    fall_due(schedule)
    run = BackupJobRun.objects.get(job=job)
    assert (run.pk, run.slots_collapsed) == (open_run, 1)
    slot = ScheduleSlot.objects.get(schedule=schedule, reason="overlap")
    assert (slot.open_run_id, slot.run_id) == (open_run, None)
    with pytest.raises(RunActive):
        scheduling.run_now(schedule_id=schedule.pk, by="ada")


@pytest.mark.parametrize(("state", "expected"), [
    (BackupJob.State.PAUSED, ("skipped", "paused")), (BackupJob.State.RETIRED, ("refused", "invalid")),
])  # fmt: skip
def test_a_backup_job_that_is_paused_or_retired_is_not_run_by_the_clock(
    job: BackupJob, schedule: Schedule, state: BackupJob.State, expected: tuple[str, str]
) -> None:
    registry.set_job_state(job_id=job.pk, state=state, by="ada", note="moving")
    fall_due(schedule)
    assert slots(schedule)[-1] == expected
    assert not BackupJobRun.objects.exists()


def test_it_is_run_by_hand_as_a_slot_of_its_own_and_spreads_its_agents(job: BackupJob) -> None:
    schedule = schedule_registry.create_schedule(definition(job, splay_seconds=3600), by="ada")
    run_id = scheduling.run_now(schedule_id=schedule.pk, by="ada")
    assert BackupJobRun.objects.get(pk=run_id).trigger == "manual"
    begins = set(AgentTask.objects.filter(job_run=run_id).values_list("not_before", flat=True))
    assert len(begins) == 2
    assert ScheduleSlot.objects.get(run_id=run_id).requested_by == "ada"


@pytest.mark.parametrize(("values", "pointer"), [
    ({"expression": "never"}, "/expression"), ({"zone": "Mars"}, "/zone"), ({"misfire": "all"}, "/misfire"),
    ({"grace_seconds": 1}, "/grace_seconds"), ({"name": ""}, "/name"), ({"backup_job": None}, "/backup_job"),
])  # fmt: skip
def test_a_schedule_that_would_not_work_is_refused(job: BackupJob, values: dict[str, object], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        schedule_registry.create_schedule(definition(job, **values), by="ada")
    assert [problem.pointer for problem in refused.value.problems] == [pointer]


def test_a_schedule_runs_one_sort_of_work_for_ever(job: BackupJob, schedule: Schedule) -> None:
    of_jobs = ScheduleFactory()
    with pytest.raises(Invalid):
        schedule_registry.change_schedule(definition(job, name="other"), schedule_id=of_jobs.pk, by="ada")
    schedule_registry.change_schedule(definition(job, expression="0 3 * * *"), schedule_id=schedule.pk, by="ada")
    with pytest.raises(IntegrityError), transaction.atomic():
        Schedule.objects.filter(pk=of_jobs.pk).update(backup_job=job)
