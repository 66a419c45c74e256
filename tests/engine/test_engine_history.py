"""Every change of status leaves exactly one line of history, whoever made it."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.utils import InternalError
from django.utils import timezone

from jobs.models import AgentJob, AgentTask
from tests.engine.queues import Queue

pytestmark = pytest.mark.django_db


def history(queue: Queue, row_id: uuid.UUID) -> list[tuple[str, str]]:
    events = queue.model.pgh_event_model.objects.filter(pgh_obj_id=row_id).order_by("pgh_id")
    return [(event.pgh_label, event.status) for event in events]


def test_a_chains_whole_life_is_in_its_history_in_order(queue: Queue) -> None:
    row, holder = queue.hold()
    for _ in range(3):
        queue.model.objects.heartbeat(holder, progress={"done": 1})
    queue.model.objects.request_cancel(row.pk, by="ada", reason="stop")
    queue.model.objects.heartbeat(holder)
    queue.model.objects.heartbeat(holder)
    queue.finish(holder, queue.life.cancelled)
    held = queue.life.leased[0]
    assert history(queue, row.pk) == [
        ("insert", queue.life.waiting),
        ("update", held),
        ("update", held),  # the request
        ("update", held),  # its delivery
        ("update", queue.life.cancelled),
    ]


def test_the_reaper_and_plain_sql_are_in_the_history_too(queue: Queue) -> None:
    lost, _ = queue.hold()
    queue.fall_silent()
    queue.model.objects.reap()
    retry = queue.rows.get(retry_of=lost)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {queue.model._meta.db_table} SET status = 'cancelled', {queue.life.finished_at} = now()"
            " WHERE id = %s",
            [retry.pk],
        )
    assert [status for _, status in history(queue, lost.pk)] == [
        queue.life.waiting, queue.life.leased[0], queue.life.failed,
    ]  # fmt: skip
    assert [status for _, status in history(queue, retry.pk)] == [queue.life.waiting, queue.life.cancelled]


def test_a_deleted_row_leaves_its_history(queue: Queue) -> None:
    row = queue.make()
    queue.rows.filter(pk=row.pk).delete()
    assert history(queue, row.pk)[-1] == ("delete", queue.life.waiting)


@pytest.mark.parametrize("model", [AgentJob, AgentTask])
def test_history_cannot_be_rewritten(model: Any, queue: Queue) -> None:
    queue.make()
    events = queue.model.pgh_event_model.objects
    for act in (lambda: events.update(status="done"), lambda: events.all().delete()):
        with pytest.raises((ProgrammingError, InternalError)), transaction.atomic():
            act()


def test_a_finished_row_refuses_every_column_but_says_yes_to_what_it_says_already(queue: Queue) -> None:
    row, holder = queue.hold()
    queue.finish(holder)
    stored = queue.stored(row)
    queue.rows.filter(pk=row.pk).update(status=stored.status, **{queue.life.error: getattr(stored, queue.life.error)})
    changed = {"heartbeat_at": timezone.now() + timedelta(days=1), "priority": 9, "claim_id": uuid.uuid4(),
               "status": queue.life.waiting, "progress": {"done": 2}, "cancel_reason": "x"}  # fmt: skip
    for column, value in changed.items():
        with pytest.raises(Exception, match="never changes") as raised, transaction.atomic():
            queue.rows.filter(pk=row.pk).update(**{column: value})
        assert raised.value.__cause__.sqlstate == "23514"
