"""Plain SQL that is legal under the contract is legal here; what is refused all the same is one short list."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

JOB_STATES = ("queued", "running", "done", "failed", "cancelled")
TASK_STATES = ("pending", "claimed", "running", "succeeded", "partial_failure", "failed", "cancelled")


def sql(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def refused(statement: str, *values: Any) -> str:
    """The SQLSTATE with which a statement is refused."""
    with pytest.raises(DatabaseError) as raised, transaction.atomic():
        sql(statement, *values)
    cause = raised.value.__cause__
    assert isinstance(cause, psycopg.Error)
    return cause.sqlstate or ""


@pytest.fixture
def task() -> dict[str, Any]:
    """What a SQL client needs to insert a task."""
    return {
        "agent_id": sql("INSERT INTO agents DEFAULT VALUES RETURNING id")[0][0],
        "job_run_id": sql("INSERT INTO backup_job_runs DEFAULT VALUES RETURNING id")[0][0],
        "job_source_id": sql("INSERT INTO backup_job_sources DEFAULT VALUES RETURNING id")[0][0],
        "task_payload": "{}",
    }


def insert_task(task: dict[str, Any], **columns: Any) -> uuid.UUID:
    values = task | columns
    names, places = ", ".join(values), ", ".join(["%s"] * len(values))
    return sql(f"INSERT INTO agent_tasks ({names}) VALUES ({places}) RETURNING id", *values.values())[0][0]


def insert_job(**columns: Any) -> uuid.UUID:
    values = {"principal_key": "ci", "kind": "anything at all"} | columns
    names, places = ", ".join(values), ", ".join(["%s"] * len(values))
    return sql(f"INSERT INTO agent_jobs ({names}) VALUES ({places}) RETURNING id", *values.values())[0][0]


# -- legal --


@pytest.mark.parametrize("status", JOB_STATES)
def test_a_job_may_be_inserted_in_every_state_without_any_other_column(status: str) -> None:
    job = insert_job(status=status)
    assert sql("SELECT root_id, attempt, claim_id FROM agent_jobs WHERE id = %s", job) == [(job, 1, None)]


@pytest.mark.parametrize("status", TASK_STATES)
def test_a_task_may_be_inserted_in_every_state(status: str, task: dict[str, Any]) -> None:
    needs = {} if status in TASK_STATES[:3] else {"completed_at": "2026-01-01Z"}
    needs |= {"failure_class": "a word of the client's own"} if status == "failed" else {}
    row = insert_task(task, status=status, **needs)
    assert sql("SELECT root_id, attempt, claim_id FROM agent_tasks WHERE id = %s", row) == [(row, 1, None)]


def test_an_unknown_principal_is_registered_without_a_token_and_shown_as_unregistered() -> None:
    insert_job(principal_key="who knows")
    insert_job(principal_key="who knows")
    assert sql("SELECT count(*), max(registered_at) FROM agents WHERE principal_key = 'who knows'") == [(1, None)]


@pytest.mark.parametrize("key", ["", " ", "a" * 2000, "ünï ☃", "a'b\"c%s"])
def test_any_text_may_be_a_principal(key: str) -> None:
    job = insert_job(principal_key=key)
    assert sql("SELECT principal_key FROM agent_jobs WHERE id = %s", job) == [(key,)]


def test_a_job_may_be_given_to_another_principal_that_nobody_knows() -> None:
    job = insert_job()
    sql("UPDATE agent_jobs SET principal_key = 'somebody new' WHERE id = %s", job)
    assert sql("SELECT count(*) FROM agents WHERE principal_key = 'somebody new'") == [(1,)]


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_a_job_walks_to_every_end_with_the_contracts_columns_alone(end: str) -> None:
    job = insert_job()
    sql("UPDATE agent_jobs SET status = 'running', started_at = now() WHERE id = %s", job)
    sql("UPDATE agent_jobs SET status = %s WHERE id = %s", end, job)
    assert sql("SELECT status, error, failure_class FROM agent_jobs WHERE id = %s", job) == [(end, None, None)]


def test_a_verdict_may_stand_on_a_job_in_any_state() -> None:
    for status in JOB_STATES:
        insert_job(status=status, verdict="risk")


@pytest.mark.parametrize("path", [("claimed",), ("claimed", "running")])
@pytest.mark.parametrize("end", TASK_STATES[3:])
def test_a_task_walks_to_every_end(path: tuple[str, ...], end: str, task: dict[str, Any]) -> None:
    row = insert_task(task)
    for status in path:
        sql("UPDATE agent_tasks SET status = %s WHERE id = %s", status, row)
    sql("UPDATE agent_tasks SET status = %s, completed_at = now(), failure_class = 'odd' WHERE id = %s", end, row)
    assert sql("SELECT status FROM agent_tasks WHERE id = %s", row) == [(end,)]


def test_waiting_work_may_be_cancelled_and_edited(task: dict[str, Any]) -> None:
    job, row = insert_job(), insert_task(task)
    sql("UPDATE agent_jobs SET kind = 'b', spec = '[1]', run_ref = 'r', created_by = 'x' WHERE id = %s", job)
    sql("UPDATE agent_jobs SET status = 'cancelled' WHERE id = %s", job)
    sql("UPDATE agent_tasks SET task_type = 'restore', task_payload = 'null' WHERE id = %s", row)
    sql("UPDATE agent_tasks SET status = 'cancelled', completed_at = now() WHERE id = %s", row)


def test_running_work_may_be_edited_without_a_change_of_status(task: dict[str, Any]) -> None:
    job, row = insert_job(status="running"), insert_task(task, status="running")
    sql("UPDATE agent_jobs SET results = '{}', error = 'so far' WHERE id = %s", job)
    sql("UPDATE agent_tasks SET bytes_processed = 5, heartbeat_at = now() WHERE id = %s", row)


def test_several_jobs_of_a_principal_run_at_once() -> None:
    for _ in range(3):
        insert_job(status="running")


def test_an_update_that_changes_nothing_passes_on_a_finished_row(task: dict[str, Any]) -> None:
    for status in ("done", "failed", "cancelled"):
        job = insert_job(status=status, results='{"a": [1, null]}')
        sql("UPDATE agent_jobs SET status = status, results = results, spec = '{}' WHERE id = %s", job)
    row = insert_task(task, status="succeeded", completed_at="2026-01-01Z")
    sql("UPDATE agent_tasks SET status = 'succeeded', task_payload = '{}' WHERE id = %s", row)


def test_an_upsert_of_a_finished_row_that_says_the_same_passes() -> None:
    job = insert_job(status="done", results="{}")
    sql(
        "INSERT INTO agent_jobs (id, principal_key, kind, status, results) VALUES (%s, 'ci', 'k', 'done', '{}')"
        " ON CONFLICT (id) DO UPDATE SET status = excluded.status, results = excluded.results",
        job,
    )


@pytest.mark.parametrize("status", JOB_STATES)
def test_a_deleted_job_takes_its_artifacts_along(status: str) -> None:
    job = insert_job(status=status)
    for _ in range(2):  # a SQL client may use a name twice
        sql("INSERT INTO agent_job_artifacts (job_id, name, storage_path) VALUES (%s, 'a.png', 'x')", job)
    sql("DELETE FROM agent_jobs WHERE id = %s", job)
    assert sql("SELECT count(*) FROM agent_job_artifacts") == [(0,)]


@pytest.mark.parametrize(
    ("table", "column"),
    [("agents", "agent_id"), ("backup_job_runs", "job_run_id"), ("backup_job_sources", "job_source_id")],
)
def test_a_task_goes_with_what_it_hangs_on(table: str, column: str, task: dict[str, Any]) -> None:
    first = insert_task(task, status="failed", completed_at="2026-01-01Z", failure_class="lost")
    insert_task(task, retry_of=first, root_id=first, attempt=2)
    sql(f"DELETE FROM {table} WHERE id = %s", task[column])
    assert sql("SELECT count(*) FROM agent_tasks") == [(0,)]


def test_a_whole_chain_is_deleted_in_one_statement() -> None:
    first = insert_job(status="failed")
    insert_job(retry_of=first, root_id=first, attempt=2)
    sql("DELETE FROM agent_jobs WHERE root_id = %s", first)
    assert sql("SELECT count(*) FROM agent_jobs") == [(0,)]


def test_each_update_of_a_job_stamps_it() -> None:
    job = insert_job(updated_at="2020-01-01Z")
    sql("UPDATE agent_jobs SET run_ref = 'x' WHERE id = %s", job)
    assert sql("SELECT updated_at = now() FROM agent_jobs WHERE id = %s", job) == [(True,)]


# -- refused --


def moves(queue: Queue, states: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((old, new) for old in states for new in states if old != new and (old, new) not in queue.life.moves)


@pytest.mark.parametrize(("old", "new"), moves(JOBS, JOB_STATES))
def test_a_job_makes_no_illegal_move(old: str, new: str) -> None:
    assert refused("UPDATE agent_jobs SET status = %s WHERE id = %s", new, insert_job(status=old)) == "23514"


@pytest.mark.parametrize(("old", "new"), moves(TASKS, TASK_STATES))
def test_a_task_makes_no_illegal_move(old: str, new: str, task: dict[str, Any]) -> None:
    row = insert_task(task, status=old, completed_at="2026-01-01Z", failure_class="lost")
    assert refused("UPDATE agent_tasks SET status = %s WHERE id = %s", new, row) == "23514"


VALUES = {
    "uuid": "gen_random_uuid()", "text": "'other'", "jsonb": "'[7]'", "timestamp with time zone": "'2001-01-01Z'",
    "integer": "77", "bigint": "77",
}  # fmt: skip


@pytest.mark.parametrize("table", ["agent_jobs", "agent_tasks"])
def test_no_column_of_a_finished_row_changes(table: str, task: dict[str, Any]) -> None:
    row = (
        insert_job(status="done")
        if table == "agent_jobs"
        else insert_task(task, status="succeeded", completed_at="2026-01-01Z")
    )
    columns = sql(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        table,
    )
    assert len(columns) > 30
    for column, of in columns:
        if column == "updated_at":  # the trigger's own
            continue
        assert refused(f"UPDATE {table} SET {column} = {VALUES[of]} WHERE id = %s", row) == "23514", column


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({"dedupe_key": "one"}, "23505"),
        ({"status": "running", "concurrency_key": "one"}, "23505"),
        ({"claim_id": uuid.UUID(int=1)}, "23505"),
        ({"lease_seconds": 0}, "23514"),
        ({"attempt": 0}, "23514"),
        ({"max_attempts": 0}, "23514"),
        ({"cancel_requested_at": "2026-01-01Z"}, "23514"),
        ({"ended_by": "nobody"}, "23514"),
        ({"retry_of": uuid.UUID(int=1)}, "23503"),
        ({"status": "failed", "claim_id": uuid.UUID(int=1)}, "23514"),
    ],
)
def test_our_own_columns_hold_only_what_they_mean(columns: dict[str, Any], state: str) -> None:
    if state == "23505":
        insert_job(**columns)
    values = {"principal_key": "ci", "kind": "k"} | columns
    places = ", ".join(["%s"] * len(values))
    assert refused(f"INSERT INTO agent_jobs ({', '.join(values)}) VALUES ({places})", *values.values()) == state


def test_an_attempt_that_was_retried_is_not_deleted_alone_and_is_retried_once() -> None:
    first = insert_job(status="failed")
    insert_job(retry_of=first, root_id=first, attempt=2)
    assert refused("DELETE FROM agent_jobs WHERE id = %s", first) == "23503"
    assert refused("INSERT INTO agent_jobs (principal_key, kind, retry_of) VALUES ('a', '', %s)", first) == "23505"


def test_an_agent_that_has_jobs_is_not_deleted() -> None:
    insert_job(principal_key="ci")
    assert refused("DELETE FROM agents WHERE principal_key = 'ci'") == "23503"


@pytest.mark.parametrize("trail", ["audit_events", "agent_job_events", "agent_events"])
def test_the_trail_cannot_be_edited(trail: str) -> None:
    JOBS.hold(AgentFactory())
    sql("INSERT INTO audit_events (tag, actor, subject_table, subject_id) VALUES ('forced', '', '', gen_random_uuid())")
    for statement in (f"DELETE FROM {trail}", f"UPDATE {trail} SET {_any_text(trail)} = 'x'"):
        assert refused(statement) == "P0001"


def _any_text(trail: str) -> str:
    return "actor" if trail == "audit_events" else "pgh_label"
