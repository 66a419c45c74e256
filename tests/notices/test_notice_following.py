"""The history is read once and in full, although transactions commit in another order than they took their ids."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, transaction

from jobs.models import AgentJob, NoticeBookmark
from jobs.services.notices import following
from jobs.services.notices.following import ended_since_last_time
from tests.notices.conftest import ended

pytestmark = pytest.mark.django_db(transaction=True)


def read() -> list[Any]:
    """One turn."""
    with transaction.atomic():
        return list(ended_since_last_time(AgentJob))


@pytest.fixture
def client() -> Iterator[psycopg.Connection[Any]]:
    """An SQL client of its own, in a transaction."""
    entry = connection.settings_dict
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    read()
    with psycopg.connect(**{word: str(entry[name]) for name, word in names.items() if entry.get(name)}) as other:
        yield other


def end_in(client: psycopg.Connection[Any]) -> Any:
    """End a new job in the client's open transaction; its id."""
    row = client.execute(
        "INSERT INTO agent_jobs (principal_key, kind, status) VALUES ('sql', 'x', 'failed') RETURNING id"
    ).fetchone()
    assert row
    return row[0]


def test_what_commits_late_with_an_older_id_is_not_missed_and_nothing_is_read_twice(
    client: psycopg.Connection[Any],
) -> None:
    late = end_in(client)
    early = ended(kind="early").pk
    assert read() == []  # the client may still add what is older than the newest
    more = ended(kind="more").pk
    assert read() == []
    client.commit()
    assert read() == [late, early, more]
    assert read() == []


def test_a_transaction_that_rolls_back_holds_up_nothing(client: psycopg.Connection[Any]) -> None:
    end_in(client)
    early = ended().pk
    read()
    client.rollback()
    assert early in read() + read()
    assert read() == []


def test_without_open_writers_everything_is_read_at_once() -> None:
    read()
    made = [ended().pk for _ in range(3)]
    assert read() == made
    assert read() == []


def test_a_long_history_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    read()
    monkeypatch.setattr(following, "BATCH", 4)
    made = [ended().pk for _ in range(10)]
    seen: list[Any] = []
    for _ in range(20):
        seen += read()
    assert seen == made


def test_what_is_made_of_the_events_and_the_bookmark_stand_and_fall_together() -> None:
    read()
    job = ended().pk
    with transaction.atomic():
        assert ended_since_last_time(AgentJob) == [job]
        transaction.set_rollback(True)
    assert read() == [job]


def test_of_two_readers_at_once_one_reads_and_the_other_does_not_wait(client: psycopg.Connection[Any]) -> None:
    made = ended().pk
    client.execute("SELECT 1 FROM notice_bookmarks WHERE source = 'agent_jobs' FOR NO KEY UPDATE")
    assert read() == []
    client.rollback()
    assert read() == [made]


def test_many_writers_and_readers_at_once_lose_and_double_nothing() -> None:
    read()
    made: list[Any] = []
    seen: list[Any] = []
    done = threading.Event()
    start = threading.Barrier(6)

    def write() -> None:
        start.wait()
        for _ in range(15):
            with transaction.atomic():
                job = AgentJob(id=uuid4(), agent_id="ci", kind="x", status="failed")
                AgentJob.objects.bulk_create([job])
                made.append(job.pk)
        connection.close()

    def follow() -> None:
        start.wait()
        while not done.is_set():
            seen.extend(read())
        connection.close()

    ended()
    read()
    writers = [threading.Thread(target=write) for _ in range(4)]
    readers = [threading.Thread(target=follow) for _ in range(2)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    for _ in range(3):
        seen.extend(read())
    assert sorted(seen) == sorted(made)
    assert len(made) == 60
    assert NoticeBookmark.objects.get(source="agent_jobs").writers == []
