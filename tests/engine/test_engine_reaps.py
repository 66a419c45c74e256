"""The clock: silence that could have been heard ends a lease, and what waited too long expires."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.engine import leases
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def reap(queue: Queue, **arguments: Any) -> set[uuid.UUID]:
    return {row.pk for row in queue.model.objects.reap(**arguments)}


def unheld(queue: Queue, age: timedelta, **columns: Any) -> Any:
    """A row that a plain SQL client leased `age` ago."""
    row = queue.make(**columns)
    queue.rows.filter(pk=row.pk).update(status=queue.life.leased[0], **{queue.life.claimed_at: timezone.now() - age})
    return queue.stored(row)


def test_a_row_whose_holder_fell_silent_is_lost_and_its_retry_waits(queue: Queue) -> None:
    row, _ = queue.hold()
    queue.fall_silent()
    (closed,) = queue.model.objects.reap()
    stored = queue.stored(row)
    assert closed.pk == row.pk
    assert (stored.status, stored.failure_class, stored.ended_by) == (queue.life.failed, "lost", "reaper")
    assert getattr(stored, queue.life.error) == "The agent fell silent and its lease lapsed."
    assert getattr(stored, queue.life.finished_at) is not None
    retry = queue.rows.get(retry_of=row)
    assert (retry.attempt, retry.status) == (2, queue.life.waiting)
    assert queue.model.objects.reap() == []


def test_an_agent_whose_only_task_was_lost_claims_the_next_one() -> None:
    agent = AgentFactory()
    TASKS.hold(agent)
    following = TASKS.make(agent)
    TASKS.fall_silent()
    reap(TASKS)
    assert TASKS.claim(agent).row.pk == following.pk


def test_a_lease_that_has_not_lapsed_is_left_alone(queue: Queue) -> None:
    row, _ = queue.hold(lease_seconds=7200)
    queue.fall_silent()
    assert reap(queue) == set()
    queue.rows.filter(pk=row.pk).update(lease_seconds=3500)
    assert reap(queue) == {row.pk}


def test_waiting_and_finished_rows_are_never_reaped(queue: Queue) -> None:
    old = timezone.now() - timedelta(days=400)
    queue.make(**{queue.life.queued_at: old, "heartbeat_at": old})
    _, holder = queue.hold()
    queue.fall_silent()
    queue.finish(holder)
    assert reap(queue) == set()


def test_a_row_that_never_beat_counts_from_its_claim(queue: Queue) -> None:
    (old, _), (young, _) = queue.hold(), queue.hold()
    queue.rows.update(heartbeat_at=None)
    queue.rows.filter(pk=old.pk).update(**{queue.life.claimed_at: timezone.now() - HOUR})
    assert reap(queue) == {old.pk}
    assert queue.stored(young).status in queue.life.leased


def test_a_row_without_any_time_of_its_own_counts_from_its_creation(queue: Queue) -> None:
    row, _ = queue.hold()
    queue.rows.update(
        created_at=timezone.now(), **{"heartbeat_at": None, "started_at": None, queue.life.claimed_at: None}
    )
    assert reap(queue) == set()
    queue.rows.update(created_at=timezone.now() - HOUR)
    assert reap(queue) == {row.pk}


def test_silence_after_a_cancel_request_is_cancelled_without_a_retry(queue: Queue) -> None:
    row, _ = queue.hold()
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    queue.fall_silent()
    reap(queue)
    stored = queue.stored(row)
    assert (stored.status, stored.failure_class, stored.ended_by) == (queue.life.cancelled, None, "reaper")
    assert not queue.rows.filter(retry_of=row).exists()


def test_only_silence_that_could_have_been_heard_counts(queue: Queue) -> None:
    row, _ = queue.hold(lease_seconds=60)
    queue.fall_silent()
    now = timezone.now()
    assert reap(queue, up_since=now - timedelta(seconds=30)) == set()
    assert reap(queue, up_since=now - timedelta(seconds=90)) == {row.pk}


def test_a_row_of_plain_sql_is_closed_only_after_its_kinds_run_time(queue: Queue) -> None:
    row = unheld(queue, timedelta(hours=23))
    assert reap(queue) == set()
    assert reap(queue, unheld_seconds={queue.other_kind: 60}) == set()
    assert reap(queue, unheld_seconds={queue.kind: 60}) == {row.pk}
    stored = queue.stored(row)
    assert (stored.status, stored.failure_class) == (queue.life.failed, "timeout")
    assert not queue.rows.filter(retry_of=row).exists()


def test_a_row_of_plain_sql_runs_a_day_when_its_kind_does_not_say(queue: Queue) -> None:
    row = unheld(queue, timedelta(hours=25))
    assert reap(queue, unheld_seconds={}) == {row.pk}


def test_the_outage_that_saves_a_lease_does_not_prolong_a_row_of_plain_sql(queue: Queue) -> None:
    row = unheld(queue, timedelta(hours=25))
    assert reap(queue, up_since=timezone.now()) == {row.pk}


def test_a_task_says_which_clock_ended_it() -> None:
    lost, _ = TASKS.hold()
    TASKS.fall_silent()
    overdue = unheld(TASKS, timedelta(hours=25))
    asked, _ = TASKS.hold(lease_seconds=60)
    TASKS.rows.filter(pk=asked.pk).update(heartbeat_at=timezone.now() - HOUR)
    TASKS.model.objects.request_cancel(asked.pk, by="ada", reason="stop")
    reap(TASKS)
    codes = [TASKS.stored(row).error_code for row in (lost, overdue, asked)]
    assert codes == ["heartbeat_lost", "max_runtime", None]


def test_hostile_kind_names_break_no_reap() -> None:
    kinds = ['"', "'", "%s", "{}", "a\\b", "ünï", ""]
    rows = {unheld(JOBS, HOUR, kind=kind).pk for kind in kinds}
    assert reap(JOBS, unheld_seconds=dict.fromkeys(kinds, 60)) == rows


def test_a_call_closes_one_batch_and_the_next_call_the_rest(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REAP_BATCH", 2)
    held = {queue.hold()[0].pk for _ in range(5)}
    queue.fall_silent()
    batches = [reap(queue) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    assert set().union(*batches) == held


def test_a_reap_frees_the_dedupe_and_concurrency_keys_for_the_retry() -> None:
    row, _ = JOBS.hold(dedupe_key="nightly", concurrency_key="staging")
    JOBS.fall_silent()
    reap(JOBS)
    retry = JOBS.rows.get(retry_of=row)
    assert (retry.dedupe_key, retry.concurrency_key) == ("nightly", "staging")


# -- expire --


def test_what_waited_past_its_time_is_cancelled_by_the_system_with_the_reason(queue: Queue) -> None:
    late, early = queue.make(expires_at=timezone.now() - HOUR), queue.make(expires_at=timezone.now() + HOUR)
    queue.make()
    assert [row.pk for row in queue.model.objects.expire()] == [late.pk]
    stored = queue.stored(late)
    assert (stored.status, stored.ended_by, stored.cancel_reason) == (queue.life.cancelled, "system", "expired")
    assert stored.cancel_requested_by == "agentstore"
    assert queue.stored(early).status == queue.life.waiting
    assert queue.model.objects.expire() == []


def test_work_that_was_claimed_in_time_does_not_expire(queue: Queue) -> None:
    row, _ = queue.hold(expires_at=timezone.now() + HOUR)
    queue.rows.filter(pk=row.pk).update(expires_at=timezone.now() - HOUR)
    assert queue.model.objects.expire() == []


def test_a_retry_after_its_time_expires_too(queue: Queue) -> None:
    row, _ = queue.hold(expires_at=timezone.now() + HOUR)
    queue.rows.filter(pk=row.pk).update(expires_at=timezone.now() - HOUR)
    queue.fall_silent()
    reap(queue)
    retry = queue.rows.get(retry_of=row)
    assert [late.pk for late in queue.model.objects.expire()] == [retry.pk]


def test_expiry_is_done_in_batches(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REAP_BATCH", 2)
    for _ in range(3):
        queue.make(expires_at=timezone.now() - HOUR)
    assert [len(queue.model.objects.expire()) for _ in range(3)] == [2, 1, 0]
