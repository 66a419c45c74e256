"""Times that plain SQL may write and Python cannot hold, in every time column of both tables: no row is poison."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField
from django.db.models.functions import TruncDate, TruncDay
from django.test import Client
from django.urls import reverse

from agentstore.postgres.moments import EARLIEST, LATEST
from jobs.models import Agent
from tests.admin.conftest import login, superuser
from tests.api.runner_client import Runner
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import AgentFactory

__all__ = ["login", "superuser"]
pytestmark = pytest.mark.django_db

BEYOND = ("infinity", "-infinity", "294276-12-31 23:59:59+00", "4713-01-01 00:00:00+00 BC", "10000-01-01 00:00:00+00",
          "9999-12-31 23:59:59.999999+00", "0001-01-01 00:00:00+00")  # fmt: skip


def times(queue: Queue) -> Iterator[str]:
    return (field.column for field in queue.model._meta.concrete_fields if isinstance(field, DateTimeField))


PLACES = [(queue, column) for queue in (JOBS, TASKS) for column in times(queue)]
every_place = pytest.mark.parametrize(
    ("queue", "column"), PLACES, ids=[f"{queue.model._meta.db_table}.{column}" for queue, column in PLACES]
)


def write(queue: Queue, row: Any, column: str, text: str) -> None:
    """Write a time as a SQL client does; a cancel has an author, as the table's rule says."""
    also = ", cancel_requested_by = 'sql'" if column == "cancel_requested_at" else ""
    stamped = column == "updated_at"  # its trigger writes it at each UPDATE
    table = queue.model._meta.db_table
    with connection.cursor() as cursor:
        if stamped:
            cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER agent_jobs_set_updated_at")
        cursor.execute(f"UPDATE {table} SET {column} = %s::timestamptz{also} WHERE id = %s", [text, row.pk])
        if stamped:
            cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER agent_jobs_set_updated_at")


@every_place
def test_a_time_beyond_python_is_read_as_the_nearest_one(queue: Queue, column: str) -> None:
    row = queue.make()
    for text in BEYOND:
        write(queue, row, column, text)
        found = queue.stored(row)
        early = text.startswith(("-", "0001")) or text.endswith("BC")
        assert getattr(found, column).replace(tzinfo=None) == (EARLIEST if early else LATEST), text


@every_place
def test_a_waiting_row_with_such_a_time_is_claimed_or_passed_over_and_never_stops_the_queue(
    queue: Queue, column: str
) -> None:
    for text in BEYOND:
        agent = AgentFactory()
        odd, plain = queue.make(agent), queue.make(agent)
        write(queue, odd, column, text)
        claimed = queue.claim(agent)
        assert claimed is not None, text
        if claimed.row.pk == odd.pk:
            queue.finish(queue.holder(claimed.row))
            claimed = queue.claim(agent)
            assert claimed is not None
        assert claimed.row.pk == plain.pk, text


@pytest.mark.parametrize("text", BEYOND)
def test_what_expires_then_expires_then(queue: Queue, text: str) -> None:
    odd, plain = queue.make(), queue.make()
    write(queue, odd, "expires_at", text)
    write(queue, plain, "expires_at", "2001-01-01Z")
    ended = {row.pk for row in queue.rows.expire()}
    past = text.startswith(("-", "0001")) or text.endswith("BC")
    assert ended == ({odd.pk, plain.pk} if past else {plain.pk})


@every_place
def test_a_row_that_plain_sql_leased_and_left_is_closed_whatever_its_other_times_say(queue: Queue, column: str) -> None:
    for text in BEYOND:
        agent = AgentFactory()
        row = queue.make(agent)
        signs = dict.fromkeys(("heartbeat_at", queue.life.claimed_at, "started_at", "created_at"), "2001-01-01Z")
        queue.rows.filter(pk=row.pk).update(status=queue.life.leased[0])
        for name in signs:
            write(queue, row, name, "2001-01-01Z")
        write(queue, row, column, text)
        if column in signs and text not in ("infinity", "-infinity"):
            continue  # a finite time ahead is a sign of life that is still to come
        assert row.pk in {closed.pk for closed in queue.rows.reap()}, text


def test_a_row_whose_every_sign_of_life_is_infinite_does_not_keep_its_agent_for_ever(queue: Queue) -> None:
    row = queue.make()
    queue.rows.filter(pk=row.pk).update(status=queue.life.leased[0])
    for column in dict.fromkeys(("heartbeat_at", queue.life.claimed_at, "started_at", "created_at")):
        write(queue, row, column, "infinity")
    assert [closed.pk for closed in queue.rows.reap()] == [row.pk]


@every_place
def test_such_a_row_is_beaten_finished_failed_and_retried_over_http(queue: Queue, column: str) -> None:
    for text in BEYOND[:2]:
        runner = Runner(AgentFactory())
        row, claim_id = queue.make(runner.agent), str(uuid.uuid4())
        kinds = "kinds" if queue is JOBS else "task_types"
        path = "jobs" if queue is JOBS else "tasks"
        body = {"claim_id": claim_id, kinds: [queue.kind], "runner": {"name": "r", "version": "1.0.0"}}
        assert runner.send("POST", f"{path}/claim", body).status_code == 201
        write(queue, row, column, text)
        assert runner.send("POST", f"{path}/claim", body).status_code == 200
        assert runner.send("GET", "agents/me").status_code == 200
        assert runner.send("POST", f"{path}/{row.pk}/heartbeat", {"claim_id": claim_id}).status_code == 200
        failed = {"claim_id": claim_id, "status": "failed", "failure_class": "transient", "error": "x"}
        assert runner.send("PUT", f"{path}/{row.pk}/result", failed).status_code == 200
        asked = column == "cancel_requested_at"
        assert queue.rows.filter(retry_of=row.pk).exists() is not asked


@every_place
def test_such_a_row_is_shown_in_its_list_on_its_page_and_on_the_front_page(
    queue: Queue, column: str, superuser: Client
) -> None:
    name = f"admin:jobs_{queue.model._meta.model_name}"
    pages = [reverse(f"{name}_changelist"), reverse("admin:index")]
    for text in BEYOND:
        for status in (queue.life.waiting, queue.life.leased[0]):
            row = queue.make()
            queue.rows.filter(pk=row.pk).update(status=status)
            write(queue, row, column, text)
        if "infinity" in text:
            pages.append(reverse(f"{name}_change", args=[row.pk]))
    for page in pages:
        assert superuser.get(page).status_code == 200, page


def test_agents_with_such_times_are_shown_and_work(superuser: Client) -> None:
    columns = [field.column for field in Agent._meta.concrete_fields if isinstance(field, DateTimeField)]
    for column, text in ((column, text) for column in columns for text in BEYOND[:2]):
        runner = Runner(AgentFactory())
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE agents SET {column} = %s::timestamptz WHERE id = %s", [text, runner.agent.pk])
        assert runner.send("GET", "agents/me").status_code == 200
        assert superuser.get(reverse("admin:jobs_agent_change", args=[runner.agent.pk])).status_code == 200
    assert superuser.get(reverse("admin:jobs_agent_changelist")).status_code == 200


@pytest.mark.parametrize("function", [TruncDay, TruncDate])
def test_days_of_such_times_are_read_too(queue: Queue, function: Callable[..., Any]) -> None:
    for text in BEYOND:
        write(queue, queue.make(), queue.life.queued_at, text)
    assert len(queue.rows.values_list(function(queue.life.queued_at))) == len(BEYOND)
