"""A clock of the database that tests set: a schema that PostgreSQL looks into before its own."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from jobs.models import Agent, AgentJob, JobKind, Schedule, ScheduleSlot
from jobs.services.schedule_registry import Definition, create_schedule
from tests.factories import AgentFactory, JobKindFactory

CLOCK = """
    CREATE SCHEMA travel;
    CREATE TABLE travel.clock (at timestamptz);
    INSERT INTO travel.clock VALUES (now());
    CREATE FUNCTION travel.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM travel.clock';
    CREATE FUNCTION travel.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT travel.now()';
    SET search_path = travel, pg_catalog, public;
"""


class Clock:
    """What `now()` says in the database."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(CLOCK)

    def set(self, at: str | datetime) -> datetime:
        """Let it be that time; texts are UTC."""
        moment = datetime.fromisoformat(f"{at}+00:00") if isinstance(at, str) else at
        with connection.cursor() as cursor:
            cursor.execute("UPDATE travel.clock SET at = %s", [moment])
        return moment

    def go(self, **length: float) -> datetime:
        """Let that much time pass, or go back."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE travel.clock SET at = at + %s RETURNING at", [timedelta(**length)])
            found: datetime = cursor.fetchone()[0]
        return found


@pytest.fixture
def clock(db: None) -> Clock:
    """The clock, at the start of a quiet day; the end of the test's transaction takes it away."""
    clock = Clock()
    clock.set("2027-01-05 00:00")
    return clock


@pytest.fixture
def agent(db: None) -> Agent:
    """An agent."""
    return AgentFactory(principal_key="fw-berlin-1")


@pytest.fixture
def kind(db: None) -> JobKind:
    """A kind whose specs are objects with a title."""
    return JobKindFactory(name="report", schema={"type": "object", "required": ["title"]})


@pytest.fixture
def make(agent: Agent, kind: JobKind) -> Callable[..., Schedule]:
    """Create a schedule that is right, apart from what is said."""

    def make(**said: Any) -> Schedule:
        return create_schedule(definition(**said), by="ada")

    return make


def definition(**said: Any) -> Definition:
    """A definition that is right, apart from what is said."""
    right = {"name": "nightly", "agent": "fw-berlin-1", "kind": "report", "spec": {"title": "x"},
             "expression": "0 * * * *"}  # fmt: skip
    return Definition(**right | said)


def slots(schedule: Schedule) -> list[tuple[str, str]]:
    """When each slot was due, and what came of it, oldest first."""
    rows = ScheduleSlot.objects.filter(schedule=schedule).order_by("due_at")
    return [(f"{slot.due_at:%m-%d %H:%M}", slot.reason or slot.outcome) for slot in rows]


def jobs_of(schedule: Schedule) -> list[AgentJob]:
    """The jobs of a schedule in the order of their slots."""
    return list(AgentJob.objects.filter(slot__schedule=schedule).order_by("slot__due_at"))


def end_jobs(schedule: Schedule) -> None:
    """Let every open job of the schedule be done, as a plain SQL client would say it."""
    for job in AgentJob.objects.unfinished().filter(schedule=schedule):
        for status in ("running", "done"):
            AgentJob.objects.filter(pk=job.pk).exclude(status=status).update(status=status)
