"""Schedulers, editors and people at the same schedules at the same moment, on connections of their own."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, pairwise

import pytest
from django.utils import timezone

from jobs.models import AgentJob, Schedule, ScheduleSlot
from jobs.services.schedule_registry import change_schedule, create_schedule, pause_schedule
from jobs.services.scheduling import Overlaps, enqueue_due, run_now
from tests.engine.queues import close_racers, race, unexpected
from tests.factories import AgentFactory, JobKindFactory
from tests.schedules.conftest import definition

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _rows(transactional_db: None) -> Iterator[None]:
    AgentFactory(principal_key="fw-berlin-1")
    JobKindFactory(name="report")
    yield
    close_racers()


@pytest.fixture(params=[5, pytest.param(50, marks=pytest.mark.soak)], ids=["5 times", "50 times"])
def times(request: pytest.FixtureRequest) -> range:
    """How often a race is run."""
    return range(request.param)


def owing(count: int, **said: object) -> list[Schedule]:
    """Schedules of which three hours have passed without a scheduler."""
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    schedules = [
        create_schedule(definition(**{"name": f"hourly {timezone.now()}-{n}"} | said), by="ada") for n in range(count)
    ]
    Schedule.objects.filter(pk__in=[schedule.pk for schedule in schedules]).update(
        settled_at=hour - timedelta(hours=3), next_due_at=hour - timedelta(hours=2)
    )
    return schedules


def due_of(schedule: Schedule) -> list[datetime]:
    return list(ScheduleSlot.objects.filter(schedule=schedule).order_by("due_at").values_list("due_at", flat=True))


def test_five_schedulers_at_once_give_each_time_one_slot_and_one_job(times: range) -> None:
    for _ in times:
        schedules = owing(8, misfire="all", overlap="queue")
        answers = race(*[enqueue_due] * 5)
        answers.append(enqueue_due())  # what one left to another that had just gone
        assert unexpected(answers) == []
        assert sum(worked.enqueued for worked in answers) == 24
        for schedule in schedules:
            due = due_of(schedule)
            assert {later - one for one, later in pairwise(due)} == {timedelta(hours=1)}
            jobs = AgentJob.objects.filter(schedule=schedule).values_list("labels__slot", flat=True)
            assert Counter(jobs) == Counter(f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in due)
        Schedule.objects.update(state="retired", next_due_at=None)


def test_an_edit_among_schedulers_loses_and_doubles_nothing(times: range) -> None:
    for _ in times:
        (schedule,) = owing(1, misfire="all", overlap="queue")
        edit = definition(name=schedule.name, expression="30 1 * * *", zone="Europe/Berlin", overlap="queue")
        answers = race(enqueue_due, enqueue_due, partial(change_schedule, edit, schedule_id=schedule.pk, by="ada"))
        assert unexpected(answers) == []
        enqueue_due()
        assert len(due_of(schedule)) == AgentJob.objects.filter(schedule=schedule).count() == 3
        assert Schedule.objects.get(pk=schedule.pk).expression == "30 1 * * *"
        Schedule.objects.update(state="retired", next_due_at=None)


def test_a_pause_among_schedulers_gives_each_time_one_slot(times: range) -> None:
    for _ in times:
        (schedule,) = owing(1, misfire="all", overlap="queue")
        pause = partial(pause_schedule, schedule_id=schedule.pk, by="ada", note="Wait")
        assert unexpected(race(enqueue_due, pause, enqueue_due)) == []
        enqueue_due()
        # The pause counts from its own moment: all three were due before.
        assert [slot.outcome for slot in ScheduleSlot.objects.filter(schedule=schedule)] == ["enqueued"] * 3
        Schedule.objects.update(state="retired", next_due_at=None)


def test_of_five_people_who_run_a_schedule_at_once_one_does(times: range) -> None:
    for _ in times:
        (schedule,) = owing(1)
        Schedule.objects.filter(pk=schedule.pk).update(next_due_at=timezone.now() + timedelta(hours=1))
        answers = race(*(partial(run_now, schedule_id=schedule.pk, by=f"person {n}") for n in range(5)))
        (job_id,) = set(chain(*([answer] for answer in answers if not isinstance(answer, Exception))))
        assert [answer.job_id for answer in answers if isinstance(answer, Overlaps)] == [job_id] * 4
        assert AgentJob.objects.filter(schedule=schedule).count() == 1
