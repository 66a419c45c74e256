"""Two maintenance loops whose database goes while both are at work: log lines, and every duty once."""

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.commands.conftest import line_with
from tests.outages.installation import FAST, IMMEDIATE, Database, add_agent, maintenance, wait_until

LEASES = """
    CREATE TABLE duty_leases (
        id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), name text, was_by text, was_until timestamptz,
        was_term bigint, by text, until timestamptz, term bigint);
    CREATE FUNCTION note_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO duty_leases (name, was_by, was_until, was_term, by, until, term)
        VALUES (NEW.name, OLD.leased_by, OLD.leased_until, OLD.term, NEW.leased_by, NEW.leased_until, NEW.term);
        RETURN NULL; END $$;
    CREATE TRIGGER note_lease AFTER UPDATE ON maintenance_duties FOR EACH ROW EXECUTE FUNCTION note_lease();
"""
UNFOUNDED = """
    SELECT * FROM duty_leases WHERE CASE
        WHEN term > was_term THEN term > was_term + 1 OR NOT (was_until IS NULL OR was_until <= at OR was_by = by)
        ELSE was_until IS NULL OR was_by <> by END
"""
BACKLOG = 30


@pytest.fixture
def notes(postgres: Database) -> Iterator[None]:
    """Every change of a duty's lease is written down."""
    postgres.ask("DELETE FROM maintenance_duties RETURNING 1")
    with postgres.connect() as connection:
        connection.execute(LEASES)
    try:
        yield
    finally:
        with postgres.connect() as connection:
            connection.execute("DROP TABLE duty_leases; DROP FUNCTION note_lease CASCADE")


def backlog(postgres: Database) -> str:
    """Work for several duties, of one agent, whose key it returns: jobs that are late or lost, times of a schedule."""
    with postgres.connect() as connection:
        agent, _ = add_agent(connection)
        connection.execute(
            "INSERT INTO agent_jobs (principal_key, kind, spec, created_by, expires_at)"
            " SELECT %s, 'echo', '{}', 'test', now() - interval '1 hour' FROM generate_series(1, %s)",
            [agent, BACKLOG],
        )
        connection.execute(
            "INSERT INTO agent_jobs (principal_key, kind, spec, created_by, status, claim_id, lease_seconds,"
            " max_attempts, started_at, heartbeat_at)"
            " SELECT %s, 'lost', '{}', 'test', 'running', gen_random_uuid(), 60, 3, at, at"
            " FROM generate_series(1, %s), (SELECT now() - interval '1 hour' AS at)",
            [agent, BACKLOG],
        )
        connection.execute("INSERT INTO job_kinds (name, schema) VALUES (%s, '{}')", [agent])
        connection.execute(
            "INSERT INTO schedules (name, agent_id, kind, expression, misfire, overlap, catch_up_limit, settled_at,"
            " next_due_at, created_by)"
            " SELECT %(agent)s, id, %(agent)s, '0 * * * *', 'all', 'queue', 100, at, at, 'test'"
            " FROM agents, (SELECT date_trunc('hour', now()) - interval '1 day' AS at)"
            " WHERE principal_key = %(agent)s",
            {"agent": agent},
        )
    return agent


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    "how", [pytest.param(FAST, id="fast", marks=pytest.mark.soak), pytest.param(IMMEDIATE, id="immediate")]
)
def test_two_maintenance_loops_caught_at_work_lose_no_duty_and_do_none_twice(
    home: Path, postgres: Database, how: signal.Signals
) -> None:
    agent = backlog(postgres)
    with maintenance(home, postgres.url) as one, maintenance(home, postgres.url) as two:
        # Both are in the middle of a duty, and hold what takes long for an hour, when the server goes.
        with closing(psycopg.connect(postgres.url)) as blocking:
            blocking.execute("LOCK TABLE agent_jobs, agent_job_artifacts")
            held = "SELECT name, leased_by FROM maintenance_duties WHERE leased_until > now()"
            wait_until(lambda: len({by for _, by in postgres.ask(held)}) == 2, "both hold something")
            wait_until(lambda: {"sweep", "purge"} <= {name for name, _ in postgres.ask(held)}, "the long ones are held")
            caught = {name for name, _ in postgres.ask(held)}
            postgres.stop(how)
        try:
            for loop in (one, two):
                line_with(loop.stderr, "does not answer")
        finally:
            postgres.start()
        back = postgres.ask("SELECT now()")[0][0]
        # What was done right before the outage need not be due again.
        late = (
            "SELECT name FROM maintenance_duties WHERE due_at <= now()"
            " AND (last_success_at IS NULL OR last_success_at < %s)"
        )
        wait_until(lambda: not postgres.ask(late, back), "every duty was done after the outage")
        for loop in (one, two):
            line_with(loop.stderr, "The database answers again")
        left = (
            "SELECT 1 FROM agent_jobs WHERE principal_key = %s"
            " AND (status = 'running' OR status = 'queued' AND expires_at < now())"
        )
        wait_until(lambda: not postgres.ask(left, agent), "the backlog is worked off")
        assert [loop.poll() for loop in (one, two)] == [None, None]
        for loop in (one, two):
            loop.terminate()
        said = "".join(loop.communicate(timeout=60)[1] for loop in (one, two))
        assert (one.returncode, two.returncode) == (0, 0)

    assert {"sweep", "purge"} < caught
    assert "Traceback" not in said
    assert "level=error" not in said
    assert postgres.ask(UNFOUNDED) == []
    ends = (
        "SELECT kind, status, attempt, count(*) FROM agent_jobs WHERE principal_key = %s AND kind <> %s"
        " GROUP BY 1, 2, 3 ORDER BY 1, 3"
    )
    assert postgres.ask(ends, agent, agent) == [
        ("echo", "cancelled", 1, BACKLOG), ("lost", "failed", 1, BACKLOG), ("lost", "queued", 2, BACKLOG),
    ]  # fmt: skip
    times = (
        "SELECT count(*), count(DISTINCT due_at), count(DISTINCT job_id) FROM schedule_slots AS slots"
        " JOIN schedules ON schedules.id = slots.schedule_id WHERE outcome = 'enqueued' AND schedules.name = %s"
    )
    jobs = postgres.ask("SELECT count(*) FROM agent_jobs WHERE kind = %s", agent)[0][0]
    assert postgres.ask(times, agent)[0] == (jobs, jobs, jobs)
    assert jobs in (24, 25)  # an hour may pass meanwhile
