"""The maximum run time against results, heartbeats and cancels that come at the same moment."""

import uuid
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from jobs.engine.errors import Ended, LeaseLost
from tests.engine.queues import Queue, close_racers, race, unexpected

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)
ROUNDS = 25


@pytest.fixture(autouse=True)
def _idle_racers() -> Any:
    yield
    close_racers()


def overdue(queue: Queue) -> tuple[Any, Any]:
    row, holder = queue.hold()
    queue.rows.filter(pk=row.pk).update(**{queue.life.claimed_at: timezone.now() - 2 * DAY})
    return row, holder


def test_a_stop_and_a_result_end_a_row_once_with_the_holders_word(queue: Queue) -> None:
    for status in (queue.good, queue.life.cancelled) * (ROUNDS // 2):
        row, holder = overdue(queue)
        answers = race(
            queue.model.objects.stop_overdue, partial(queue.finish, holder, status), queue.model.objects.reap
        )
        assert unexpected(answers) == []
        stored = queue.stored(row)
        if status == queue.good:
            assert (stored.status, stored.ended_by) == (status, "runner")
        else:
            # Not yet asked it stopped by itself; asked it timed out. Never is it a cancel that nobody wanted.
            assert stored.failure_class == ("timeout" if stored.overdue_at else "interrupted")
            assert queue.rows.filter(retry_of=row).count() == 1
        queue.rows.waiting().delete()


def test_of_many_clocks_one_closes_a_row_that_does_not_stop_and_there_is_one_retry(queue: Queue) -> None:
    for _ in range(ROUNDS):
        row, holder = overdue(queue)
        answers = race(*[queue.model.objects.stop_overdue] * 4)
        assert sum(len(asked) for asked in answers) == 1, answers
        long_ago = timezone.now() - DAY
        queue.rows.filter(pk=row.pk).update(overdue_at=long_ago, cancel_requested_at=long_ago)
        beat, finish = (
            partial(queue.model.objects.heartbeat, holder),
            partial(queue.finish, holder, queue.life.cancelled),
        )
        answers = race(*[queue.model.objects.reap] * 3, beat, finish)
        assert unexpected(answers, LeaseLost, Ended) == []
        queue.model.objects.reap()
        stored = queue.stored(row)
        assert (stored.status, stored.failure_class) == (queue.life.failed, "timeout")
        assert queue.rows.filter(retry_of=row).count() == 1
        queue.rows.waiting().delete()


def test_a_person_and_the_clock_who_ask_at_once_leave_one_request(queue: Queue) -> None:
    for _ in range(ROUNDS):
        row, holder = overdue(queue)
        cancel = partial(queue.model.objects.request_cancel, row.pk, by="ada", reason="stop")
        assert unexpected(race(queue.model.objects.stop_overdue, cancel)) == []
        queue.model.objects.stop_overdue()
        queue.finish(holder, queue.life.cancelled, digest=uuid.uuid4().hex)
        stored = queue.stored(row)
        by_person = stored.cancel_requested_by == "ada"
        assert (stored.status, stored.failure_class) == (
            (queue.life.cancelled, None) if by_person else (queue.life.failed, "timeout")
        )
        assert queue.rows.filter(retry_of=row).exists() is not by_person
        queue.rows.waiting().delete()
