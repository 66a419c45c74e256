"""What the calls of a runner cost the database, counted on the wire: a runner polls and beats all day."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.engine.answers import Holder
from jobs.models import AgentJob, AgentTask
from tests.api.runner_client import JOBS, TASKS, Queue, Runner
from tests.api.wire import FRAME, Sent, listening

pytestmark = pytest.mark.django_db(transaction=True)

WORK = 2  # who calls, and what the call is for
SETTLING = 4  # a task's result: the task and its backup job, the run under lock, its tasks, the run's new state


@pytest.fixture(params=[0, None], ids=["prepared", "only bound"])
def threshold(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """The connection as AGENTSTORE_PREPARED_STATEMENTS=1 and =0 open it."""
    connection.close()
    connection.ensure_connection()
    connection.connection.prepare_threshold = request.param
    yield request.param
    connection.close()


@pytest.fixture
def runner(threshold: int | None) -> Runner:
    """A runner whose last use was noted this minute."""
    runner = Runner()
    for queue in (JOBS, TASKS):
        assert runner.claim(queue).status_code == 204
        sent_by(queue.held(runner).finish, 200)
    return runner


def sent_by(call: Callable[[], Any], status: int) -> Sent:
    with listening() as sent:
        answer = call()
    assert answer.status_code == status, answer.content
    return sent


def test_a_claim_costs_two_statements_whether_it_is_new_repeated_or_empty(runner: Runner, queue: Queue) -> None:
    assert sent_by(lambda: runner.claim(queue), 204).statements == WORK
    queue.make(runner.agent)
    body = runner.claim_body(queue)
    for status in (201, 200):
        sent = sent_by(lambda: runner.send("POST", f"{queue.path}/claim", body), status)
        assert (sent.statements, sent.count("Query")) == (WORK, 0)


def test_a_busy_agent_costs_two_statements(runner: Runner) -> None:
    TASKS.held(runner)
    assert sent_by(lambda: runner.claim(TASKS), 409).statements == WORK


def test_a_sign_of_life_costs_two_statements_and_no_frame_of_a_transaction(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    for call in [lambda: held.beat(progress={"done": 1, "total": 2, "title": "x"}), held.beat]:
        sent = sent_by(call, 200)
        assert (sent.statements, sent.count("Query")) == (WORK, 0)
    if queue is TASKS:
        sent = sent_by(held.start, 200)
        assert (sent.statements, sent.count("Query")) == (WORK, 0)


def test_a_result_costs_two_statements_in_one_transaction_and_a_tasks_its_run(runner: Runner, queue: Queue) -> None:
    sent = sent_by(queue.held(runner).finish, 200)
    assert sent.statements == (WORK + SETTLING if queue is TASKS else WORK)
    frames = [FRAME.search(text) for text in sent.texts("Parse") + sent.texts("Query")]
    assert [frame[1] for frame in frames if frame] == ["BEGIN", "COMMIT"]


def test_statements_are_parsed_once_a_connection_or_leave_nothing_behind_at_all(
    runner: Runner, queue: Queue, threshold: int | None
) -> None:
    held = queue.held(runner)
    held.beat()
    sent = sent_by(held.beat, 200)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        kept = cursor.fetchone()[0]
    if threshold is None:
        assert (sent.count("Parse"), kept) == (WORK, 0)
    else:
        assert sent.count("Parse") == 0
        assert kept > 0


def test_a_heartbeat_does_not_wait_for_the_disk_and_what_follows_does(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    holder = held.queue.model.objects.get(pk=held.row.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
    with listening() as sent:
        connection.connection.prepare_threshold = None  # so that the text is on the wire
        held.beat()
    assert ["set_config('synchronous_commit', 'off', true)" in text for text in sent.texts("Parse")] == [False, True]
    assert setting() == "on"
    with transaction.atomic():
        key = holder.agent.principal_key if isinstance(holder, AgentJob) else holder.agent.pk
        type(holder).objects.heartbeat(Holder(holder.pk, uuid.UUID(held.claim_id), key))
        assert setting() == "on", "work that shares a transaction with a heartbeat stays durable"


def setting() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("table", [AgentJob, AgentTask, "agents"])
def test_a_column_that_a_migration_adds_beside_a_running_server_breaks_no_call(runner: Runner, table: Any) -> None:
    name = table if isinstance(table, str) else table._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} ADD COLUMN newcomer text")
    try:
        for queue in (JOBS, TASKS):
            held = queue.held(runner)
            assert held.repeat_claim().status_code == 200
            assert held.beat().status_code == 200
            assert held.finish().status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {name} DROP COLUMN newcomer")


def test_plans_kept_by_a_connection_still_claim_the_first_row_of_the_right_kind(runner: Runner) -> None:
    for priority in range(20):
        JOBS.make(runner.agent, priority=priority)
    AgentJob.objects.waiting().update(kind="other")
    for priority in range(12):
        JOBS.make(runner.agent, priority=priority)
    # PostgreSQL may go over to a generic plan after five executions.
    claimed = [runner.claim(JOBS).json()["id"] for _ in range(12)]
    rows = AgentJob.objects.in_bulk(claimed)
    assert [(rows[uuid.UUID(pk)].kind, rows[uuid.UUID(pk)].priority) for pk in claimed] == [
        ("echo", priority) for priority in reversed(range(12))
    ]
