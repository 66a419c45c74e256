"""Cancel: what waits ends at once, what is held is asked; and the chain as people address it."""

import uuid
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.engine.answers import Cancel
from jobs.models import AuditEvent
from jobs.services import governance
from jobs.services.errors import AlreadyEnded, AlreadyRetried, Duplicate, Invalid, NotFound
from tests.engine.queues import JOBS, TASKS, Queue

pytestmark = pytest.mark.django_db

WHY = {"by": "ada", "reason": "wrong target"}


def lines(row_id: uuid.UUID) -> list[tuple[str, str, str, Any]]:
    events = AuditEvent.objects.filter(subject_id=row_id).order_by("id")
    return [(event.tag, event.actor, event.reason, event.details) for event in events]


def lapsed_chain(queue: Queue) -> tuple[Any, Any]:
    """A lost first attempt, and its retry that waits for its time."""
    row, _ = queue.hold()
    queue.fall_silent(pk=row.pk)
    queue.model.objects.reap()
    retry = queue.rows.get(retry_of=row)
    assert retry.not_before > timezone.now()
    return row, retry


# -- one row --


def test_a_waiting_row_is_cancelled_at_once(queue: Queue) -> None:
    row = queue.make()
    assert queue.model.objects.request_cancel(row.pk, **WHY) is Cancel.CLOSED
    stored = queue.stored(row)
    assert (stored.status, stored.ended_by) == (queue.life.cancelled, "person")
    assert (stored.cancel_requested_by, stored.cancel_reason) == ("ada", "wrong target")
    assert getattr(stored, queue.life.finished_at) == stored.cancel_requested_at


def test_a_held_row_is_asked_and_neither_its_heartbeat_nor_its_lease_is_touched(queue: Queue) -> None:
    row, _ = queue.hold()
    assert queue.model.objects.request_cancel(row.pk, **WHY) is Cancel.ASKED
    stored = queue.stored(row)
    changed = {field.attname for field in queue.model._meta.concrete_fields
               if getattr(stored, field.attname) != getattr(row, field.attname)}  # fmt: skip
    assert changed - {"updated_at"} == {"cancel_requested_at", "cancel_requested_by", "cancel_reason"}


def test_a_second_cancel_changes_nothing(queue: Queue) -> None:
    for row in (queue.hold()[0], queue.make()):
        queue.model.objects.request_cancel(row.pk, **WHY)
        before = queue.stored(row).__dict__ | {"_state": None}
        assert queue.model.objects.request_cancel(row.pk, by="bob", reason="me too") is Cancel.UNCHANGED
        assert queue.stored(row).__dict__ | {"_state": None} == before


@pytest.mark.parametrize("end", ["finished", "reaped", "unknown"])
def test_what_has_ended_or_never_was_cannot_be_cancelled(queue: Queue, end: str) -> None:
    row, holder = queue.hold()
    if end == "finished":
        queue.finish(holder)
    elif end == "reaped":
        queue.fall_silent()
        queue.model.objects.reap()
    wanted = uuid.uuid4() if end == "unknown" else row.pk
    assert queue.model.objects.request_cancel(wanted, **WHY) is (Cancel.UNCHANGED)
    assert queue.model.objects.force_cancel(wanted, **WHY) is False
    assert queue.rows.filter(cancel_requested_at__isnull=False).count() == 0


@pytest.mark.parametrize("stage", ["waiting", "held", "asked"])
def test_force_closes_an_unfinished_row_in_every_stage(queue: Queue, stage: str) -> None:
    row = queue.make() if stage == "waiting" else queue.hold()[0]
    if stage == "asked":
        queue.model.objects.request_cancel(row.pk, by="bob", reason="please")
    asked_at = queue.stored(row).cancel_requested_at
    assert queue.model.objects.force_cancel(row.pk, **WHY) is True
    stored = queue.stored(row)
    assert (stored.status, stored.ended_by, stored.cancel_requested_by) == (queue.life.cancelled, "person", "ada")
    assert asked_at in (None, stored.cancel_requested_at)


# -- the chain --


def test_a_cancel_addresses_the_retry_that_waits_whichever_attempt_was_named(queue: Queue) -> None:
    row, retry = lapsed_chain(queue)
    done = governance.cancel(queue.rows, row.pk, **WHY)
    assert (done.outcome, done.row_id) == (Cancel.CLOSED, retry.pk)
    assert queue.stored(retry).status == queue.life.cancelled
    assert queue.stored(row).status == queue.life.failed
    assert lines(retry.pk) == [("cancel_requested", "ada", "wrong target", {"outcome": "closed"})]


def test_a_second_cancel_of_a_held_row_is_answered_and_leaves_no_line(queue: Queue) -> None:
    row, _ = queue.hold()
    assert governance.cancel(queue.rows, row.pk, **WHY).outcome is Cancel.ASKED
    assert governance.cancel(queue.rows, row.pk, **WHY).outcome is Cancel.UNCHANGED
    assert len(lines(row.pk)) == 1


def test_a_chain_that_has_ended_is_not_cancelled(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.finish(holder)
    for act in (governance.cancel, governance.force_cancel):
        with pytest.raises(AlreadyEnded):
            act(queue.rows, row.pk, **WHY)
    assert lines(row.pk) == []


def test_force_addresses_the_latest_attempt_and_says_so_in_the_trail(queue: Queue) -> None:
    row, retry = lapsed_chain(queue)
    queue.rows.filter(pk=retry.pk).update(not_before=None)
    queue.claim(retry.agent, row_id=retry.pk)
    assert governance.force_cancel(queue.rows, row.pk, **WHY) == retry.pk
    assert lines(retry.pk) == [("forced", "ada", "wrong target", {})]


def test_a_second_retry_is_refused_with_the_attempt_that_the_first_made(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.fail(holder, "configuration")
    again = governance.retry(queue.rows, row.pk, **WHY)
    with pytest.raises(AlreadyRetried) as refusal:
        governance.retry(queue.rows, row.pk, by="bob", reason="me too")
    assert refusal.value.row_id == again
    assert queue.rows.filter(retry_of=row).count() == 1
    assert lines(row.pk) == [("retried", "ada", "wrong target", {"attempt": str(again)})]


def test_people_retry_beyond_the_automatic_budget_and_the_machine_does_not(queue: Queue) -> None:
    row, holder = queue.hold(max_attempts=1)
    queue.fail(holder, "transient")
    assert not queue.rows.filter(retry_of=row).exists()
    again = queue.stored(governance.retry(queue.rows, row.pk, **WHY))
    assert (again.attempt, again.max_attempts, again.root_id) == (2, 1, row.pk)
    claim_id = uuid.uuid4()
    queue.claim(again.agent, claim_id)
    queue.fail(holder._replace(row_id=again.pk, claim_id=claim_id), "transient")
    assert not queue.rows.filter(retry_of=again).exists()


def test_what_ended_well_or_was_cancelled_is_enqueued_again_instead(queue: Queue) -> None:
    for end in set(queue.life.finished) - {"failed", "partial_failure"}:
        row, holder = queue.hold()
        queue.model.objects.request_cancel(row.pk, **WHY)
        queue.finish(holder, end)
        with pytest.raises(Invalid):
            governance.retry(queue.rows, row.pk, **WHY)
    assert queue.rows.filter(retry_of__isnull=False).count() == 0


def test_a_partial_failure_may_be_retried() -> None:
    row, holder = TASKS.hold()
    TASKS.finish(holder, "partial_failure", files_skipped=2)
    again = TASKS.stored(governance.retry(TASKS.rows, row.pk, **WHY))
    assert (again.attempt, again.status, again.files_skipped) == (2, "pending", 0)


def test_work_that_waits_or_runs_is_not_retried(queue: Queue) -> None:
    for row in (queue.make(), queue.hold()[0]):
        with pytest.raises(Invalid):
            governance.retry(queue.rows, row.pk, **WHY)


def test_a_retry_whose_dedupe_key_was_taken_meanwhile_names_the_job_that_holds_it() -> None:
    row, holder = JOBS.hold(dedupe_key="nightly")
    JOBS.fail(holder, "configuration")
    taken = JOBS.make(dedupe_key="nightly")
    with pytest.raises(Duplicate) as refusal:
        governance.retry(JOBS.rows, row.pk, **WHY)
    assert refusal.value.job_id == taken.pk
    assert not JOBS.rows.filter(retry_of=row).exists()
    governance.cancel(JOBS.rows, taken.pk, **WHY)
    assert JOBS.stored(governance.retry(JOBS.rows, row.pk, **WHY)).dedupe_key == "nightly"


def test_a_waiting_retry_holds_its_dedupe_key() -> None:
    row, holder = JOBS.hold(dedupe_key="nightly")
    JOBS.fail(holder, "transient")
    assert JOBS.rows.get(retry_of=row).not_before is not None
    with pytest.raises(IntegrityError, match="agent_jobs_dedupe_idx"), transaction.atomic():
        JOBS.make(dedupe_key="nightly")


@pytest.mark.parametrize("act", [governance.cancel, governance.force_cancel, governance.retry])
def test_an_act_needs_a_reason_that_can_be_kept_and_a_row_that_exists(queue: Queue, act: Any) -> None:
    row = queue.make()
    for reason in ("", "  \n", "x" * 501, "nul\x00", "half \ud800"):
        with pytest.raises(Invalid):
            act(queue.rows, row.pk, by="ada", reason=reason)
    with pytest.raises(NotFound):
        act(queue.rows, uuid.uuid4(), **WHY)
    assert queue.stored(row).status == queue.life.waiting
    assert AuditEvent.objects.count() == 0
