"""What the engine's own statements read, beside 50,000 finished rows and with statistics that lie."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from jobs.models import Agent
from tests.engine.queues import JOBS, Queue
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

FINISHED = 50_000
METHODS = [
    "nestloop",
    "hashjoin",
    "mergejoin",
    "indexscan",
    "indexonlyscan",
    "bitmapscan",
    "seqscan",
    "material",
    "memoize",
]


@pytest.fixture
def agent() -> Agent:
    return AgentFactory()


@pytest.fixture
def crowded(queue: Queue, agent: Agent) -> Queue:
    """A table whose statistics were taken when it held a few waiting rows; then 50,000 ended and 200 wait."""
    queue.insert(agent, 50)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {queue.model._meta.db_table}")
        cursor.execute(f"ALTER TABLE {queue.model._meta.db_table} DISABLE TRIGGER USER")  # history would take minutes
        cursor.execute(_finished_rows(queue), [queue.key(agent), FINISHED])
        cursor.execute(f"ALTER TABLE {queue.model._meta.db_table} ENABLE TRIGGER USER")
    queue.insert(agent, 150)
    return queue


def _finished_rows(queue: Queue) -> str:
    if queue is JOBS:
        return """INSERT INTO agent_jobs (principal_key, kind, status, queued_at, started_at, finished_at)
            SELECT %s, 'echo', 'done', now() - interval '1 day', now(), now() FROM generate_series(1, %s)"""
    return """WITH run AS (INSERT INTO backup_job_runs DEFAULT VALUES RETURNING id),
        source AS (INSERT INTO backup_job_sources DEFAULT VALUES RETURNING id)
        INSERT INTO agent_tasks (agent_id, job_run_id, job_source_id, task_payload, status, completed_at)
        SELECT %s, run.id, source.id, '{}', 'succeeded', now() FROM run, source, generate_series(1, %s)"""


def nodes(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def plan_of(act: Callable[[], Any], opening: str) -> list[dict[str, Any]]:
    """The nodes of the plan of the statement that `act` sends and that starts with `opening`."""
    plans: list[Any] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.strip().startswith(opening):
            with context["cursor"].cursor.connection.cursor() as cursor:
                cursor.execute("EXPLAIN (FORMAT JSON) " + sql, params)
                found = cursor.fetchone()[0]
                plans.append(json.loads(found) if isinstance(found, str) else found)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        act()
    assert len(plans) == 1, opening
    return list(nodes(plans[0][0]["Plan"]))


LEASED_INDEXES = {
    "agent_jobs": {"agent_jobs_status_idx", "agent_jobs_concurrency_idx"},
    "agent_tasks": {"agent_tasks_heartbeat_idx", "agent_tasks_single_active_idx"},
}


def test_each_statement_of_the_engine_reads_through_the_index_that_was_made_for_it(
    crowded: Queue, agent: Agent
) -> None:
    table, rows = crowded.model._meta.db_table, crowded.model.objects
    wanted, by_key = crowded.rows.waiting().first(), f"{table}_pkey"

    def read(act: Callable[[], Any], opening: str) -> set[str]:
        plan = plan_of(act, opening)
        scanned = [node for node in plan if node["Node Type"] == "Seq Scan" and node["Relation Name"] == table]
        assert scanned == [], opening
        return {node["Index Name"] for node in plan if "Index Name" in node}

    assert by_key in read(lambda: crowded.claim(agent, row_id=wanted.pk), "WITH replay")
    crowded.finish(crowded.holder(crowded.stored(wanted)))
    assert f"{table}_claim_idx" in read(lambda: crowded.claim(agent), "WITH replay")
    holder = crowded.holder(crowded.rows.leased().get())
    one_row = {by_key, f"{table}_claim_id_idx"} | LEASED_INDEXES[table]  # statistics that lie may prefer the leased few
    assert read(lambda: rows.heartbeat(holder), "UPDATE") <= one_row
    crowded.fall_silent()
    assert f"{table}_expires_idx" in read(rows.expire, "WITH late")
    used = read(rows.reap, "WITH silent") - {by_key}
    assert len(used) == 1
    assert used <= LEASED_INDEXES[table]
    assert read(lambda: rows.chain(wanted.pk).last(), "SELECT") == {f"{table}_root_idx"}


def test_a_candidate_is_locked_by_its_key_where_the_planner_has_no_statistics(queue: Queue, agent: Agent) -> None:
    queue.insert(agent, 1_000)  # fewer fit into so few pages that reading them all is rightly the cheaper
    with connection.cursor() as cursor:
        cursor.execute("DISCARD PLANS")  # one that this connection made while the table was empty
    plan = plan_of(lambda: queue.claim(agent), "WITH replay")
    (locking,) = [node for node in plan if node["Node Type"] == "LockRows"]
    assert [node.get("Index Name") for node in nodes(locking)] == [None, f"{queue.model._meta.db_table}_pkey"]


def test_a_claim_takes_exactly_one_row_whatever_the_planner_prefers(crowded: Queue, agent: Agent) -> None:
    for method in [*METHODS, ("nestloop", "indexscan", "bitmapscan"), ("hashjoin", "mergejoin")]:
        methods = [method] if isinstance(method, str) else method
        with connection.cursor() as cursor:
            for name in methods:
                cursor.execute(f"SET enable_{name} = off")
        leasing = crowded.claim(agent, uuid.uuid4())
        with connection.cursor() as cursor:
            for name in methods:
                cursor.execute(f"RESET enable_{name}")
        assert leasing is not None
        assert list(crowded.rows.leased().values_list("pk", flat=True)) == [leasing.row.pk], method
        crowded.finish(crowded.holder(leasing.row))


def test_a_queue_of_blocked_work_does_not_hide_the_work_behind_it(agent: Agent) -> None:
    JOBS.hold(concurrency_key="staging")
    JOBS.insert(agent, 200)
    JOBS.rows.waiting().update(concurrency_key="staging")
    free = JOBS.make(agent, priority=-1)
    leasing = JOBS.claim(agent)
    assert leasing is not None
    assert leasing.row.pk == free.pk
