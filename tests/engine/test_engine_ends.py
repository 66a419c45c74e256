"""What the holder of a lease may write: signs of life, and its end."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.engine.answers import Holder
from jobs.engine.errors import Ended, LeaseLost, ResultMismatch, UnknownRow
from jobs.engine.writes import STOPPED_UNASKED
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
CALLS = {
    "heartbeat": lambda queue, holder: queue.model.objects.heartbeat(holder),
    "start": lambda queue, holder: queue.model.objects.start(holder),
    "finish": lambda queue, holder: queue.finish(holder, digest="late body"),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Any:
    """Every write of a holder."""
    return CALLS[request.param]


def everything(queue: Queue) -> list[Any]:
    return list(queue.rows.order_by("pk").values())


def refused(queue: Queue, call: Any, holder: Holder, refusal: type[Exception]) -> Any:
    """The row that the refusal shows; nothing was written."""
    before = everything(queue)
    with pytest.raises(refusal) as raised:
        call(queue, holder)
    assert type(raised.value) is refusal
    assert everything(queue) == before
    return raised.value.row  # type: ignore[attr-defined]  # an EngineRefusal


def test_a_stranger_learns_nothing_of_a_row(queue: Queue, call: Any) -> None:
    _, holder = queue.hold()
    stranger = queue.key(AgentFactory())
    assert refused(queue, call, holder._replace(agent=stranger), UnknownRow) is None
    assert refused(queue, call, holder._replace(row_id=uuid.uuid4()), UnknownRow) is None


def test_another_claim_id_of_the_same_agent_has_no_lease(queue: Queue, call: Any) -> None:
    row, holder = queue.hold()
    assert refused(queue, call, holder._replace(claim_id=uuid.uuid4()), LeaseLost).pk == row.pk


def test_a_row_that_still_waits_is_nobodys(queue: Queue, call: Any) -> None:
    row = queue.make()
    refused(queue, call, Holder(row.pk, uuid.uuid4(), queue.key(row.agent)), LeaseLost)


def test_the_holder_of_a_reaped_row_has_lost_it_also_where_a_cancel_was_asked_for(queue: Queue, call: Any) -> None:
    for asked in (False, True):
        row, holder = queue.hold()
        if asked:
            queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
        queue.fall_silent()
        queue.model.objects.reap()
        assert refused(queue, call, holder, LeaseLost).pk == row.pk


def test_the_holder_of_an_old_attempt_cannot_touch_the_retry(queue: Queue, call: Any) -> None:
    _, holder = queue.hold()
    queue.fall_silent()
    queue.model.objects.reap()
    retry = queue.rows.get(retry_of=holder.row_id)
    queue.rows.filter(pk=retry.pk).update(not_before=None)
    queue.claim(retry.agent, row_id=retry.pk)
    refused(queue, call, holder._replace(row_id=retry.pk), LeaseLost)


def test_a_row_closed_by_force_has_ended(queue: Queue, call: Any) -> None:
    row, holder = queue.hold()
    queue.model.objects.force_cancel(row.pk, by="ada", reason="now")
    assert refused(queue, call, holder, Ended).ended_by == "person"


def test_a_row_closed_by_plain_sql_has_ended(queue: Queue, call: Any) -> None:
    row, holder = queue.hold()
    queue.end(row, queue.life.failed)
    assert refused(queue, call, holder, Ended).pk == row.pk


@pytest.mark.parametrize("call", ["heartbeat", "start"], indirect=True)
def test_a_finished_attempt_has_no_more_signs_of_life(queue: Queue, call: Any) -> None:
    _, holder = queue.hold()
    queue.finish(holder)
    refused(queue, call, holder, Ended)


# -- signs of life --


def test_a_heartbeat_prolongs_its_own_lease_and_no_other(queue: Queue) -> None:
    (row, holder), (other, _) = queue.hold(lease_seconds=45), queue.hold()
    queue.fall_silent()
    before = queue.stored(other).heartbeat_at
    pulse = queue.model.objects.heartbeat(holder)
    assert pulse.lease_expires_at - pulse.server_time == timedelta(seconds=45)
    assert pulse.lease_seconds == 45
    assert queue.stored(row).heartbeat_at == pulse.server_time
    assert queue.stored(other).heartbeat_at == before


def test_a_heartbeat_after_the_lease_lapsed_revives_it_while_nobody_reaped(queue: Queue) -> None:
    _, holder = queue.hold()
    queue.fall_silent()
    queue.model.objects.heartbeat(holder)
    assert queue.model.objects.reap() == []


def test_progress_stays_until_there_is_news(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.model.objects.heartbeat(holder, progress={"done": 1})
    queue.model.objects.heartbeat(holder)
    assert queue.stored(row).progress == {"done": 1}
    queue.model.objects.heartbeat(holder, progress={})
    assert queue.stored(row).progress == {}


def test_counters_never_shrink_on_a_heartbeat_and_the_result_has_the_last_word() -> None:
    row, holder = TASKS.hold()
    TASKS.model.objects.heartbeat(holder, counters={"bytes_processed": 10, "files_processed": 3})
    TASKS.model.objects.heartbeat(holder, counters={"bytes_processed": 4, "files_processed": 5})
    stored = TASKS.stored(row)
    assert (stored.bytes_processed, stored.files_processed) == (10, 5)
    TASKS.finish(holder, bytes_processed=7)
    assert TASKS.stored(row).bytes_processed == 7


def test_a_cancel_request_is_delivered_by_each_heartbeat_and_its_first_delivery_noted(queue: Queue) -> None:
    row, holder = queue.hold()
    quiet = queue.model.objects.heartbeat(holder)
    assert (quiet.cancel_requested_at, quiet.cancel_reason) == (None, None)
    assert queue.stored(row).cancel_delivered_at is None
    queue.model.objects.request_cancel(row.pk, by="ada", reason="wrong target")
    for _ in range(2):
        pulse = queue.model.objects.heartbeat(holder)
        assert (pulse.cancel_requested_by, pulse.cancel_reason) == ("ada", "wrong target")
    first = timezone.now() - HOUR
    queue.rows.filter(pk=row.pk).update(cancel_delivered_at=first)
    queue.model.objects.heartbeat(holder)
    assert queue.stored(row).cancel_delivered_at == first


def test_a_start_is_said_once_and_repeated_without_effect() -> None:
    row, holder = TASKS.hold()
    assert TASKS.stored(row).status == "claimed"
    TASKS.model.objects.start(holder)
    started = TASKS.stored(row)
    assert started.status == "running"
    assert started.started_at == started.heartbeat_at
    moment = timezone.now() - HOUR
    TASKS.rows.filter(pk=row.pk).update(started_at=moment)
    TASKS.model.objects.start(holder)
    assert (TASKS.stored(row).started_at, TASKS.stored(row).status) == (moment, "running")


# -- the end --


def test_a_result_ends_the_row_with_its_own_words(queue: Queue) -> None:
    for status in queue.life.finished:
        row, holder = queue.hold()
        queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
        ended, is_new = queue.finish(holder, status, details={"a": 1})
        stored = queue.stored(row)
        assert is_new
        assert ended.status == stored.status == status
        assert (stored.ended_by, stored.details) == ("runner", {"a": 1})
        assert getattr(stored, queue.life.finished_at) is not None


def test_a_task_may_end_without_ever_having_started() -> None:
    row, holder = TASKS.hold()
    TASKS.finish(holder, "failed", failure_class="configuration")
    assert TASKS.stored(row).status == "failed"


def test_a_result_that_is_late_is_accepted_while_nobody_reaped(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.fall_silent()
    queue.finish(holder)
    assert queue.model.objects.reap() == []
    assert queue.stored(row).status == queue.good
    assert not queue.rows.filter(retry_of=row).exists()


def test_the_same_result_again_gives_the_stored_row_and_changes_nothing(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.fail(holder, "transient")
    before = everything(queue)
    again, is_new = queue.finish(holder, queue.life.failed, failure_class="transient")
    assert (again.pk, is_new) == (row.pk, False)
    assert everything(queue) == before


def test_another_result_of_the_same_claim_is_a_mismatch_that_shows_the_stored_one(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.finish(holder)
    shown = refused(queue, CALLS["finish"], holder, ResultMismatch)
    assert (shown.pk, shown.status) == (row.pk, queue.good)


def test_done_after_a_cancel_request_is_done_and_the_request_stays(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    queue.finish(holder)
    stored = queue.stored(row)
    assert (stored.status, stored.cancel_requested_by) == (queue.good, "ada")


def test_cancelled_without_a_request_is_failed_and_interrupted_and_tried_again(queue: Queue) -> None:
    row, holder = queue.hold()
    ended, _ = queue.finish(holder, queue.life.cancelled)
    assert (ended.status, ended.failure_class) == (queue.life.failed, "interrupted")
    assert getattr(ended, queue.life.error) == STOPPED_UNASKED
    assert queue.rows.get(retry_of=row).not_before is None


def test_the_runners_own_words_explain_an_interruption(queue: Queue) -> None:
    _, holder = queue.hold()
    ended, _ = queue.finish(holder, queue.life.cancelled, error="The workflow was cancelled.")
    assert getattr(ended, queue.life.error) == "The workflow was cancelled."


@pytest.mark.parametrize("status", ["queued", "pending", "claimed", "gone", ""])
def test_a_word_that_is_no_end_is_refused_before_anything_is_written(queue: Queue, status: str) -> None:
    _, holder = queue.hold()
    with pytest.raises(ValueError, match="is not a finished status"):
        queue.model.objects.finish(holder, status, digest="", failure_class=None, error=None)


@pytest.mark.parametrize(
    ("queue", "written", "rule"),
    [
        (JOBS, {"status": "failed", "error": None}, "agent_jobs_failure_explained"),
        (JOBS, {"status": "failed", "failure_class": None}, "agent_jobs_failure_explained"),
        (JOBS, {"status": "failed", "failure_class": "gremlins"}, "agent_jobs_class_known"),
        (JOBS, {"status": "failed", "verdict": "pass"}, "agent_jobs_verdict_when_done"),
        (JOBS, {"status": "done", "verdict": "maybe"}, "agent_jobs_verdict_check"),
        (TASKS, {"status": "failed", "failure_class": None}, "agent_tasks_failure_is_classified"),
        (TASKS, {"status": "failed", "failure_class": "gremlins"}, "agent_tasks_class_known"),
        (TASKS, {"status": "succeeded", "files_skipped": 1}, "agent_tasks_skipped_is_not_success"),
    ],
)
def test_the_database_refuses_an_end_that_cannot_be_explained(queue: Queue, written: Any, rule: str) -> None:
    row, holder = queue.hold()
    with pytest.raises(IntegrityError, match=rule), transaction.atomic():
        queue.finish(holder, **written)
    assert queue.stored(row).status in queue.life.leased
