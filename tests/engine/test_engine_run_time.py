"""The maximum run time: heartbeats prolong a lease, never this."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from jobs.engine.answers import Cancel
from jobs.engine.ddl import SqlNow
from jobs.engine.run_time import GRACE_SECONDS
from jobs.models import JobKind
from jobs.services.execution import _run_seconds
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import JobKindFactory

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
DAY = 24 * HOUR


def run_for(queue: Queue, span: timedelta, **columns: Any) -> tuple[Any, Any]:
    """A row whose holder has worked so long and beats all the time."""
    row, holder = queue.hold(**columns)
    queue.rows.filter(pk=row.pk).update(**{queue.life.claimed_at: timezone.now() - span})
    return row, holder


def ask(queue: Queue) -> set[Any]:
    return {row.pk for row in queue.model.objects.stop_overdue()}


def pass_time(queue: Queue, row: Any, span: timedelta) -> None:
    """Let the time since the holder was asked be so long."""
    asked = queue.stored(row)
    at = asked.overdue_at - span
    columns = {"cancel_requested_at": at} if asked.cancel_requested_at == asked.overdue_at else {}
    queue.rows.filter(pk=row.pk).update(overdue_at=at, **columns)


def end(queue: Queue, row: Any) -> tuple[Any, ...]:
    stored = queue.stored(row)
    return stored.status, stored.failure_class, stored.ended_by


def test_a_holder_past_its_time_is_asked_to_stop_once_and_learns_it_with_its_heartbeat(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR)
    run_for(queue, DAY - HOUR)

    assert ask(queue) == {row.pk}
    assert ask(queue) == set()

    pulse = queue.model.objects.heartbeat(holder)
    assert (pulse.cancel_requested_by, pulse.cancel_reason) == ("agentstore", "maximum run time")
    assert queue.stored(row).status in queue.life.leased


def test_stopping_then_is_a_timeout_and_is_retried_as_one(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR)
    ask(queue)
    queue.finish(holder, queue.life.cancelled)
    assert end(queue, row) == (queue.life.failed, "timeout", "runner")
    assert getattr(queue.stored(row), queue.life.error) == "Its maximum run time has passed."
    retry = queue.rows.get(retry_of=row)
    wait = retry.not_before - getattr(queue.stored(row), queue.life.finished_at)
    assert timedelta(minutes=30) <= wait <= timedelta(minutes=33)
    assert (retry.overdue_at, retry.cancel_requested_at) == (None, None)


def test_a_cancel_by_a_person_stays_one_also_in_the_microsecond_in_which_the_clock_asks(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR)
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    ask(queue)
    queue.rows.filter(pk=row.pk).update(overdue_at=F("cancel_requested_at"))
    queue.finish(holder, queue.life.cancelled)
    assert end(queue, row) == (queue.life.cancelled, None, "runner")
    assert not queue.rows.filter(retry_of=row).exists()


def test_work_that_is_done_all_the_same_counts(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR)
    ask(queue)
    queue.finish(holder)
    assert end(queue, row) == (queue.good, None, "runner")


def test_heartbeats_alone_keep_no_row_beyond_its_time(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR, lease_seconds=100)
    ask(queue)
    pass_time(queue, row, timedelta(seconds=100 + GRACE_SECONDS - 2))
    queue.model.objects.heartbeat(holder)
    assert queue.model.objects.reap() == []

    pass_time(queue, row, timedelta(seconds=3))
    queue.model.objects.heartbeat(holder)
    # Whoever could not be heard could not be told either.
    assert queue.model.objects.reap(up_since=timezone.now() - timedelta(seconds=100)) == []
    assert [closed.pk for closed in queue.model.objects.reap()] == [row.pk]
    assert end(queue, row) == (queue.life.failed, "timeout", "reaper")
    assert queue.rows.filter(retry_of=row).exists()


def test_a_holder_that_falls_silent_past_its_time_ended_by_timeout(queue: Queue) -> None:
    row, _ = run_for(queue, DAY + HOUR)
    ask(queue)
    queue.fall_silent()
    queue.model.objects.reap()
    assert end(queue, row) == (queue.life.failed, "timeout", "reaper")


def test_a_cancel_by_a_person_stays_a_cancel_and_ends_too(queue: Queue) -> None:
    row, holder = run_for(queue, DAY + HOUR)
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    before = queue.stored(row)

    assert ask(queue) == {row.pk}
    after = queue.stored(row)
    asked = ("cancel_requested_at", "cancel_requested_by", "cancel_reason")
    assert [getattr(after, name) for name in asked] == [getattr(before, name) for name in asked]
    # A test's transaction has one now(); in life the clock asks later than the person did.
    queue.rows.filter(pk=row.pk).update(cancel_requested_at=after.cancel_requested_at - 2 * HOUR)

    pass_time(queue, row, HOUR)
    queue.model.objects.heartbeat(holder)
    queue.model.objects.reap()
    assert end(queue, row) == (queue.life.cancelled, None, "reaper")
    assert not queue.rows.filter(retry_of=row).exists()


def test_a_person_who_cancels_later_finds_it_asked_to_stop_already(queue: Queue) -> None:
    row, _ = run_for(queue, DAY + HOUR)
    ask(queue)
    assert queue.model.objects.request_cancel(row.pk, by="ada", reason="stop") is Cancel.UNCHANGED
    assert queue.model.objects.force_cancel(row.pk, by="ada", reason="stop")


def test_rows_that_wait_have_ended_or_are_of_plain_sql_are_not_asked(queue: Queue) -> None:
    queue.make(**{queue.life.queued_at: timezone.now() - 9 * DAY})
    _, holder = run_for(queue, 9 * DAY)
    queue.finish(holder)
    sql = queue.make()
    queue.rows.filter(pk=sql.pk).update(
        status=queue.life.leased[0], **{queue.life.claimed_at: timezone.now() - 9 * DAY}
    )
    assert ask(queue) == set()


def test_the_kind_says_how_long_a_job_may_take() -> None:
    kind = JobKindFactory(name=JOBS.kind, max_run_seconds=600)
    row, _ = run_for(JOBS, timedelta(seconds=590))
    assert ask(JOBS) == set()
    JobKind.objects.filter(pk=kind.pk).update(max_run_seconds=580)
    assert ask(JOBS) == {row.pk}


def test_the_limit_of_a_task_is_the_deadline_that_its_runner_was_told() -> None:
    values: list[Any] = [
        1, 5, 3600, 864_000, 864_001, 0, -1, 10**9, 10**40, 5.0, 5.5, 1e300, True, False, None, "600", "", [], {},
        [600],
    ]  # fmt: skip
    payloads: list[Any] = [{"settings": {"max_runtime_s": value}} for value in values]
    payloads += [{}, {"settings": None}, {"settings": []}, {"settings": "max_runtime_s"}, [], [{"settings": 1}], 7, "x"]
    for payload in payloads:
        row, _ = TASKS.hold(task_payload=payload)
        limit = timedelta(seconds=_run_seconds(TASKS.stored(row), None))
        for span, is_over in ((limit - timedelta(seconds=1), False), (limit + timedelta(seconds=1), True)):
            TASKS.rows.filter(pk=row.pk).update(claimed_at=SqlNow() - span)
            assert (ask(TASKS) == {row.pk}) is is_over, (payload, span)


def test_a_clock_that_plain_sql_set_to_infinity_keeps_no_row(queue: Queue) -> None:
    row, _ = queue.hold()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {queue.model._meta.db_table} SET {queue.life.claimed_at} = 'infinity'")
    assert ask(queue) == {row.pk}
