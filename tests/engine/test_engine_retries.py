"""Which failure is tried again, when, and with which columns."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.engine.failure_classes import (
    DEFAULT_POLICY,
    JITTER_PERCENT,
    MEANINGS,
    RULES,
    FailureClass,
    known,
    policy_of,
)
from jobs.models import AgentJob, AgentTask, JobKind
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import JobKindFactory

# The columns that an attempt hands on as they stand, those that count on, and those that start afresh. A new column
# fails the test until somebody decides where it belongs.
CARRIED = {
    "agent_jobs": {
        "principal_key", "kind", "spec", "created_by", "dedupe_key", "concurrency_key", "labels", "lease_seconds",
        "schedule_id", "max_attempts", "priority", "expires_at",
    },
    "agent_tasks": {
        "agent_id", "job_run_id", "job_source_id", "task_type", "task_payload", "lease_seconds", "max_attempts",
        "priority", "expires_at",
    },
}  # fmt: skip
COUNTED = {"id", "root_id", "attempt", "retry_of", "not_before", "status", "queued_at", "created_at", "updated_at"}
FRESH = {
    "claim_id", "claimed_by", "claim_digest", "result_digest", "ended_by", "progress", "details", "heartbeat_at",
    "cancel_requested_at", "cancel_requested_by", "cancel_reason", "cancel_delivered_at", "overdue_at", "failure_class",
    "started_at",
    "finished_at", "completed_at", "claimed_at", "verdict", "results", "error", "error_code", "error_message",
    "run_ref", "bytes_processed", "bytes_written", "files_processed", "files_skipped", "backup_id_in_repository",
}  # fmt: skip

EXPECTED_MINUTES = {  # per failure of that class in a chain with budget to spare; None: not tried again
    "transient": [1, 5, 15, 15],
    "locked": [5, 10, 20, 30, 30],
    "resource": [60, None],
    "configuration": [None],
    "source": [None],
    "repository": [None],
    "lost": [5, 10, None],
    "interrupted": [0, 0, None],
    "timeout": [30, None],
    "internal": [1, None],
}


JITTER = JITTER_PERCENT / 100


def next_delay(failure_class: str, *, row_id: uuid.UUID | None = None, **counts: int) -> timedelta | None:
    return DEFAULT_POLICY.next_delay(failure_class, row_id=row_id or uuid.uuid4(), **counts)


def test_every_class_has_its_rule() -> None:
    assert set(EXPECTED_MINUTES) == set(FailureClass) == set(RULES) == set(MEANINGS)


@pytest.mark.parametrize("failure_class", FailureClass)
def test_a_class_is_tried_again_after_its_own_delays(failure_class: str) -> None:
    for failures, minutes in enumerate(EXPECTED_MINUTES[failure_class], start=1):
        delay = next_delay(failure_class, failures=failures, attempt=failures, max_attempts=10)
        if minutes is None:
            assert delay is None
        else:
            base = timedelta(minutes=minutes)
            assert delay is not None
            assert base <= delay <= base * (1 + JITTER)


def test_delays_are_spread_so_that_failures_of_one_cause_do_not_come_back_together() -> None:
    ids = [uuid.uuid4() for _ in range(20)]
    delays = [next_delay("transient", failures=1, attempt=1, max_attempts=3, row_id=row_id) for row_id in ids]
    assert len(set(delays)) > 10
    # The same row gives the same delay.
    assert delays == [next_delay("transient", failures=1, attempt=1, max_attempts=3, row_id=row_id) for row_id in ids]


@pytest.mark.parametrize("failures", [1, 2, 3, 100, 10_000, 2**31 - 1])
def test_no_count_of_failures_overflows_or_shortens_a_delay(failures: int) -> None:
    for rule in RULES.values():
        delay, cap = rule.delay(failures), timedelta(seconds=max(rule.delays, default=0))
        assert delay is None or timedelta() <= delay <= cap
        assert delay is None or delay >= (rule.delay(max(1, failures - 1)) or timedelta())


def test_no_class_is_tried_beyond_the_budget() -> None:
    for failure_class in FailureClass:
        for attempt in (3, 4, 2**31 - 1):
            assert next_delay(failure_class, failures=1, attempt=attempt, max_attempts=3) is None


@pytest.mark.parametrize("word", [None, "", "gremlins", "LOST", "lost "])
def test_a_word_that_nobody_knows_counts_as_internal(word: str | None) -> None:
    assert known(word) is FailureClass.INTERNAL


def test_a_kind_changes_the_rules_it_names_and_no_other() -> None:
    policy = policy_of({"source": {"delays": [5, 50], "repeats": False}, "lost": {"delays": [], "repeats": False}}, 0)

    def delays(word: str) -> list[timedelta | None]:
        row_id = uuid.uuid4()
        return [
            policy.next_delay(word, failures=failures, attempt=failures, max_attempts=9, row_id=row_id)
            for failures in (1, 2, 3)
        ]

    assert delays("source") == [timedelta(seconds=5), timedelta(seconds=50), None]
    assert delays("lost") == [None, None, None]
    assert delays("transient") == [timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15)]


@pytest.mark.parametrize(
    "stored",
    [None, [], 7, "x", {"lost": 7}, {"lost": {}}, {"lost": {"delays": 7, "repeats": True}},
     {"lost": {"delays": ["5"], "repeats": False}}, {"lost": {"delays": [-1], "repeats": False}},
     {"lost": {"delays": [True], "repeats": False}}, {"lost": {"delays": [1.5], "repeats": False}},
     {"lost": {"delays": [10**30], "repeats": False}}, {"lost": {"delays": [1] * 99, "repeats": False}},
     {"lost": {"delays": [5]}}, {"gremlins": {"delays": [5], "repeats": False}}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("jitter", [None, -1, 101, "x", 10])
def test_what_cannot_be_a_policy_counts_as_not_said(stored: object, jitter: object) -> None:
    assert policy_of(stored, jitter) == DEFAULT_POLICY


# -- rows --


@pytest.mark.django_db
def test_a_row_is_retried_as_its_kind_says_when_it_fails() -> None:
    kind = JobKindFactory(name=JOBS.kind, retry_rules={"transient": {"delays": [7200], "repeats": False}})
    held = [JOBS.hold() for _ in range(2)]
    JobKind.objects.update(retry_rules={"transient": {"delays": [], "repeats": False}}, retry_jitter_percent=0)
    JOBS.fail(held[0][1], "transient")
    assert not JOBS.rows.filter(retry_of=held[0][0]).exists()

    JobKind.objects.update(retry_rules={"transient": {"delays": [7200], "repeats": False}})
    JOBS.fail(held[1][1], "transient")
    wait = JOBS.rows.get(retry_of=held[1][0]).not_before - JOBS.stored(held[1][0]).finished_at
    assert wait == timedelta(hours=2), kind


@pytest.mark.django_db
def test_a_broken_policy_of_one_kind_stops_no_reaper() -> None:
    JobKindFactory(name=JOBS.kind, retry_rules=["nonsense"])
    rows = [JOBS.hold()[0] for _ in range(2)]
    JOBS.fall_silent()
    assert len(JOBS.model.objects.reap()) == 2
    assert JOBS.rows.filter(retry_of__in=rows).count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize("failure_class", FailureClass)
def test_a_failed_row_gets_its_retry_in_the_same_write(queue: Queue, failure_class: str) -> None:
    row, holder = queue.hold()
    queue.fail(holder, failure_class)
    retry, minutes = queue.rows.filter(retry_of=row).first(), EXPECTED_MINUTES[failure_class][0]
    if minutes is None:
        assert retry is None
        return
    assert (retry.attempt, retry.root_id, retry.status) == (2, row.pk, queue.life.waiting)
    if minutes == 0:
        assert retry.not_before is None
    else:
        wait = retry.not_before - getattr(queue.stored(row), queue.life.finished_at)
        assert timedelta(minutes=minutes) <= wait <= timedelta(minutes=minutes) * (1 + JITTER)


@pytest.mark.django_db
def test_a_chain_ends_with_its_budget_and_counts_attempts_without_a_gap(queue: Queue) -> None:
    row, holder = queue.hold(max_attempts=4)
    queue.fail(holder, "transient")
    for _ in range(10):
        retry = queue.rows.waiting().first()
        if retry is None:
            break
        queue.rows.filter(pk=retry.pk).update(not_before=None)
        claim_id = uuid.uuid4()
        queue.claim(retry.agent, claim_id)
        queue.fail(holder._replace(row_id=retry.pk, claim_id=claim_id), "transient")
    chain = queue.rows.chain(row.pk)
    assert [attempt.attempt for attempt in chain] == [1, 2, 3, 4]
    assert [attempt.retry_of_id for attempt in chain] == [None, *(attempt.pk for attempt in chain)][:4]
    assert queue.rows.latest_attempts().get() == chain[3]


@pytest.mark.django_db
def test_a_limit_counts_failures_of_its_own_class_only(queue: Queue) -> None:
    _, holder = queue.hold(max_attempts=9)
    tried = []
    for failure_class in ("internal", "timeout", "internal"):
        queue.fail(holder, failure_class)
        retry = queue.rows.waiting().first()
        tried.append(retry is not None)
        if retry is not None:
            queue.rows.filter(pk=retry.pk).update(not_before=None)
            holder = holder._replace(row_id=retry.pk, claim_id=uuid.uuid4())
            queue.claim(retry.agent, holder.claim_id)
    assert tried == [True, True, False]


@pytest.mark.django_db
def test_a_row_that_carries_a_cancel_request_is_never_tried_again(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    queue.fail(holder, "transient")
    assert not queue.rows.filter(retry_of=row).exists()


@pytest.mark.django_db
def test_a_row_is_retried_once(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.fail(holder, "configuration")
    first = queue.model.objects.retry(queue.stored(row), delay=timedelta(hours=1))
    assert first.not_before > timezone.now()
    assert queue.model.objects.retry(queue.stored(row)) is None
    assert queue.rows.filter(retry_of=row).count() == 1


@pytest.mark.parametrize("model", [AgentJob, AgentTask])
def test_every_column_is_carried_counted_on_or_fresh(model: Any) -> None:
    columns = {field.column for field in model._meta.concrete_fields}
    carried = CARRIED[model._meta.db_table]
    assert {model._meta.get_field(name).column for name in model.carried} == carried
    assert columns - carried - COUNTED - FRESH == set()
    assert not carried & (COUNTED | FRESH)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("queue", "given", "ended"),
    [
        (
            JOBS,
            {"spec": {"a": [1.5, None]}, "created_by": "ada", "dedupe_key": "d", "concurrency_key": "c",
             "labels": {"team": "x"}, "run_ref": "run 1"},
            {"results": {"x": 1}},
        ),
        (
            TASKS,
            {"task_type": "restore", "task_payload": {"version": 1}},
            {"bytes_processed": 5, "bytes_written": 5, "files_processed": 5, "files_skipped": 5,
             "error_code": "no_space", "backup_id_in_repository": "abc"},
        ),
    ],
)  # fmt: skip
def test_a_retry_carries_what_the_work_is_and_nothing_of_what_happened(
    queue: Queue, given: dict[str, Any], ended: dict[str, Any]
) -> None:
    expires_at = timezone.now() + timedelta(hours=1)
    row = queue.make(lease_seconds=45, max_attempts=5, priority=7, expires_at=expires_at, **given)
    leasing = queue.claim(row.agent, uuid.uuid4(), row_id=row.pk, kinds=[queue.kind, queue.other_kind], claimed_by="r1")
    queue.model.objects.update(progress={"done": 1})
    holder = (row.pk, leasing.row.claim_id, queue.key(row.agent))
    queue.fail(type(queue.hold()[1])(*holder), "resource", details={"why": 1}, **ended)
    before, after = queue.stored(row), queue.rows.get(retry_of=row)
    blank = queue.make()
    table = queue.model._meta.db_table
    for field in queue.model._meta.concrete_fields:
        if field.column in CARRIED[table]:
            assert getattr(after, field.attname) == getattr(before, field.attname), field.column
        elif field.column in FRESH:
            assert getattr(after, field.attname) == getattr(blank, field.attname), field.column
