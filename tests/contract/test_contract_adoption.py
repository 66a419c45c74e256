"""A database that holds the contract's tables, with rows in every state, is adopted by migrating."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError

from tests.contract import databases

# The contract's columns, in its order.
JOBS = (
    "id, principal_key, kind, spec, status, verdict, results, error, run_ref, queued_at, started_at, finished_at,"
    " created_by, created_at, updated_at"
)
TASKS = (
    "id, agent_id, job_run_id, job_source_id, task_type, status, task_payload, bytes_processed, bytes_written,"
    " files_processed, files_skipped, backup_id_in_repository, error_code, error_message, failure_class, heartbeat_at,"
    " claimed_at, started_at, completed_at, created_at"
)
ARTIFACTS = "id, job_id, name, content_type, storage_path, size_bytes, created_at"

FILL = """
INSERT INTO agents SELECT FROM generate_series(1, 50);
INSERT INTO backup_job_runs DEFAULT VALUES;
INSERT INTO backup_job_sources DEFAULT VALUES;
INSERT INTO agent_jobs (principal_key, kind, spec, status, verdict, error, queued_at, created_by, updated_at)
    SELECT 'principal ' || n % 97, 'kind ' || n % 5, jsonb_build_object('n', n, 'list', '[1, null, "x"]'::jsonb),
        (ARRAY['queued', 'running', 'done', 'failed', 'cancelled'])[1 + n % 5],
        (ARRAY['pass', 'fail', 'risk', NULL])[1 + n % 4],
        CASE WHEN n % 7 = 0 THEN 'because' END, now() - n * interval '1 second', NULL,
        '2020-01-01Z'::timestamptz + n * interval '1 s'
    FROM generate_series(1, {count}) AS n;
INSERT INTO agent_job_artifacts (job_id, name, storage_path, size_bytes)
    SELECT id, 'same name.png', 'key', 7 FROM agent_jobs WHERE status = 'done';
INSERT INTO agent_job_artifacts (job_id, name, storage_path)
    SELECT id, 'same name.png', 'key' FROM agent_jobs WHERE status = 'done';
INSERT INTO agent_tasks (agent_id, job_run_id, job_source_id, task_payload, status, completed_at, failure_class,
        files_skipped)
    SELECT agents.id, backup_job_runs.id, backup_job_sources.id, '{{"version": 1}}', status,
        CASE WHEN status IN ('succeeded', 'partial_failure', 'failed', 'cancelled') THEN now() END,
        CASE WHEN status = 'failed' THEN 'a word of their own' END,
        CASE WHEN status = 'partial_failure' THEN 3 ELSE 0 END
    FROM agents, backup_job_runs, backup_job_sources,
        unnest(ARRAY['pending', 'claimed', 'succeeded', 'partial_failure', 'failed', 'cancelled']) AS status;
"""


@pytest.fixture(params=[3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def adopted(request: pytest.FixtureRequest, contract_database: str) -> str:
    """A database with the contract and many rows of it, not migrated yet."""
    with databases.connect(contract_database) as client:
        client.execute(FILL.format(count=request.param))
    return contract_database


@pytest.fixture
def client(contract_database: str) -> Iterator[psycopg.Connection[Any]]:
    with databases.connect(contract_database) as connection:
        yield connection


def fingerprints(client: psycopg.Connection[Any], before: str = "infinity") -> list[tuple[Any, ...]]:
    """Per table the count and a digest of every value of the contract's columns, of rows made until a moment."""
    found = []
    for table, columns in (("agent_jobs", JOBS), ("agent_tasks", TASKS), ("agent_job_artifacts", ARTIFACTS)):
        found += client.execute(
            f"SELECT '{table}', count(*), md5(string_agg(md5(ROW({columns})::text), '' ORDER BY id)) FROM {table}"
            " WHERE created_at <= %s",
            [before],
        ).fetchall()
    return found


def test_an_adopted_row_loses_and_changes_nothing_while_sql_clients_go_on(
    adopted: str, client: psycopg.Connection[Any]
) -> None:
    moment = client.execute("SELECT now()::text").fetchone()[0]
    before = fingerprints(client, moment)
    stop, written, troubles = threading.Event(), [], []

    def go_on() -> None:
        with databases.connect(adopted) as writer:
            while not stop.is_set():
                try:
                    row = writer.execute(
                        "INSERT INTO agent_jobs (principal_key, kind) VALUES ('written meanwhile', 'k') RETURNING id"
                    ).fetchone()
                    writer.execute("UPDATE agent_jobs SET status = 'running' WHERE id = %s", row)
                    writer.execute("UPDATE agent_jobs SET status = 'done' WHERE id = %s", row)
                    written.append(row[0])
                except psycopg.Error as trouble:
                    troubles.append(trouble)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        databases.migrate()
    finally:
        stop.set()
        thread.join(30)
    assert troubles == []
    assert written
    assert fingerprints(client, moment) == before
    for table in ("agent_jobs", "agent_tasks"):
        assert client.execute(f"SELECT count(*) FROM {table} WHERE root_id IS DISTINCT FROM id").fetchone() == (0,)
    unregistered = "SELECT count(*) FROM agents WHERE registered_at IS NULL AND principal_key LIKE 'principal %'"
    assert client.execute(unregistered).fetchone() == (97,)
    kept = client.execute("SELECT count(*) FROM agent_jobs WHERE id = ANY(%s) AND status = 'done'", [written])
    assert kept.fetchone() == (len(written),)
    assert client.execute("SELECT tgenabled FROM pg_trigger WHERE tgname = 'agent_jobs_set_updated_at'").fetchone() == (
        "O",
    )


def test_a_reader_who_takes_long_makes_migrate_give_up_and_a_second_one_succeed(
    adopted: str, client: psycopg.Connection[Any]
) -> None:
    before = fingerprints(client)
    with databases.connect(adopted) as reader, reader.transaction():
        reader.execute("SELECT count(*) FROM agent_jobs")
        with pytest.raises(OperationalError, match="lock timeout"):
            databases.migrate()
        assert fingerprints(client) == before
        client.execute("INSERT INTO agent_jobs (principal_key, kind) VALUES ('goes on', 'k')")
        client.execute("DELETE FROM agent_jobs WHERE principal_key = 'goes on'")
    databases.migrate()
    assert fingerprints(client) == before


def test_a_writer_who_holds_rows_in_the_last_step_makes_it_give_up_and_a_second_one_adopts_every_row(
    adopted: str, client: psycopg.Connection[Any]
) -> None:
    databases.migrate("jobs", "0002")
    with databases.connect(adopted) as writer, writer.transaction():
        writer.execute("SELECT FROM agent_tasks FOR UPDATE")
        with pytest.raises(OperationalError, match="lock timeout"):
            databases.migrate()
    databases.migrate()
    for table in ("agent_jobs", "agent_tasks"):
        assert client.execute(f"SELECT count(*) FROM {table} WHERE root_id IS NULL").fetchone() == (0,)
    invalid = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
    assert client.execute(invalid).fetchall() == []


@pytest.mark.soak
def test_migrating_back_to_nothing_and_forth_again_leaves_the_clients_own_function_alone(
    contract_database: str, client: psycopg.Connection[Any]
) -> None:
    client.execute(
        "CREATE OR REPLACE FUNCTION iam_set_updated_at() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.updated_at = '1999-01-01Z'; RETURN NEW; END $$"
    )
    source = "SELECT prosrc FROM pg_proc WHERE proname = 'iam_set_updated_at'"
    before = client.execute(source).fetchall()
    databases.migrate()
    databases.migrate("artifacts", "zero")
    databases.migrate("jobs", "zero")
    tables = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^(agent|artifact|audit|backup|job|uptime)'"
    )
    assert client.execute(tables).fetchall() == []
    databases.migrate()
    client.execute("INSERT INTO agent_jobs (principal_key, kind) VALUES ('a', 'k')")
    assert client.execute(source).fetchall() == before


@pytest.mark.soak
def test_migrating_back_never_drops_a_table_that_holds_rows(adopted: str, client: psycopg.Connection[Any]) -> None:
    databases.migrate()
    with pytest.raises(ProgrammingError, match="agent_job_artifacts holds rows"):
        databases.migrate("artifacts", "zero")
    client.execute("DELETE FROM agent_job_artifacts")
    databases.migrate("artifacts", "zero")
    kept = client.execute("SELECT count(*) FROM agent_jobs").fetchone()
    with pytest.raises(ProgrammingError, match="agent_jobs and agent_tasks hold rows"):
        databases.migrate("jobs", "zero")
    assert client.execute("SELECT count(*) FROM agent_jobs").fetchone() == kept != (0,)
