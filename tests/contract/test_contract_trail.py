"""The audit trail and the histories are only ever added to, by whatever way somebody comes."""

from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, connection, models, transaction

from jobs.models import AuditEvent
from tests.engine.queues import JOBS, TASKS
from tests.factories import JobKindFactory, TokenFactory

pytestmark = pytest.mark.django_db

# Found, not listed: a history that is added later is one of them.
TRAILS: list[type[models.Model]] = [
    AuditEvent, *(model for model in apps.get_models() if hasattr(model, "pgh_tracked_model")),
]  # fmt: skip
every_trail = pytest.mark.parametrize("trail", TRAILS, ids=[model._meta.db_table for model in TRAILS])


@pytest.fixture
def written() -> None:
    """A line in the trails of the tables that every installation fills."""
    for queue in (JOBS, TASKS):
        queue.hold()
    TokenFactory()
    JobKindFactory()
    AuditEvent.objects.create(tag="forced", actor="ada", subject_table="agents", subject_id=JOBS.make().pk)


def refused(act: Any) -> None:
    with pytest.raises(DatabaseError) as raised, transaction.atomic():
        act()
    assert isinstance(raised.value.__cause__, psycopg.errors.RaiseException)


def test_every_table_that_looks_like_a_trail_is_one(written: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE '%\\_events'")
        assert {name for (name,) in cursor.fetchall()} == {model._meta.db_table for model in TRAILS}


@every_trail
def test_no_statement_changes_or_removes_a_line(trail: type[models.Model], written: None) -> None:
    table = trail._meta.db_table
    before = list(trail._default_manager.values())
    for field in trail._meta.concrete_fields:
        column = field.column
        statement = f'UPDATE "{table}" SET "{column}" = "{column}"'
        if before:
            refused(lambda statement=statement: _run(statement))
    if before:
        refused(lambda: _run(f"DELETE FROM {table}"))
    refused(lambda: _run(f"TRUNCATE {table}"))
    refused(lambda: _run(f"TRUNCATE {table} RESTART IDENTITY CASCADE"))
    assert list(trail._default_manager.values()) == before


@every_trail
def test_the_orm_changes_and_removes_no_line(trail: type[models.Model], written: None) -> None:
    rows: Any = trail._default_manager.all()
    before = list(rows.values())
    line = rows.first()
    if line is None:  # nothing of that kind happened in this test: an empty list proves nothing by itself
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = %s::regclass"
                " AND (tgname LIKE 'pgtrigger_append_only%%' OR tgname LIKE 'pgtrigger_never_emptied%%')",
                [trail._meta.db_table],
            )
            assert cursor.fetchone() == (2,)
        return
    name = next(field.name for field in trail._meta.concrete_fields if isinstance(field, models.TextField))
    setattr(line, name, "forged")
    for act in (line.save, line.delete, rows.delete, lambda: rows.update(**{name: "forged"})):
        refused(act)
    refused(lambda: rows.bulk_update([line], [name]))
    assert list(rows.values()) == before


def test_the_rows_that_a_trail_speaks_of_may_go_and_it_stays(written: None) -> None:
    told = AuditEvent.objects.count()
    events = apps.get_model("jobs", "AgentJobEvent")._default_manager
    before = events.count()
    _run("DELETE FROM agent_jobs")
    assert AuditEvent.objects.count() == told
    assert events.count() > before  # each removal is a line itself


def _run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
