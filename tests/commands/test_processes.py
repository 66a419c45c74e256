"""Commands as real processes: exit codes, migrations at once, the maintenance loop under signals and outages."""

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.commands.conftest import line_with

Start = Callable[..., subprocess.Popen[str]]
DEADLINE = 120  # seconds; only a process that hangs needs them
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('agentstore migrate', 0))"


def test_four_processes_that_migrate_an_empty_database_at_once_all_end_well(start: Start, empty_database: str) -> None:
    processes = [start("migrate", database=empty_database) for _ in range(4)]
    ends = [(*process.communicate(timeout=DEADLINE), process.returncode) for process in processes]

    assert [code for _, _, code in ends] == [0, 0, 0, 0], [errors for _, errors, _ in ends]
    assert sum("Applying jobs.0001" in said for said, _, _ in ends) == 1
    check = start("migrate", "--check", database=empty_database)
    assert check.wait(timeout=DEADLINE) == 0


def test_migrate_waits_while_another_process_migrates_but_looking_does_not(start: Start, empty_database: str) -> None:
    with psycopg.connect(empty_database) as other:
        other.execute(LOCK)
        waiting = start("migrate", database=empty_database)
        line_with(waiting.stderr, "Another process is migrating")
        assert start("migrate", "--check", database=empty_database).wait(timeout=DEADLINE) == 1
        assert waiting.poll() is None
    said, errors = waiting.communicate(timeout=DEADLINE)
    assert waiting.returncode == 0, errors
    assert "Applying jobs.0001" in said


def test_a_database_that_is_not_there_is_one_sentence_and_exit_code_1(start: Start, empty_database: str) -> None:
    missing = empty_database.replace("test_commands_", "test_missing_")
    for words in (["migrate"], ["reap"], ["maintain"], ["create_agent", "ci"]):
        process = start(*words, database=missing)
        _, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert errors.splitlines()[-1].startswith("CommandError: The database does not answer: ")
        assert "Traceback" not in errors


def test_a_database_without_tables_is_one_sentence_and_exit_code_1(start: Start, empty_database: str) -> None:
    process = start("reap", database=empty_database)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert errors == "CommandError: The database lacks a table: run manage.py migrate first.\n"


def test_maintain_takes_one_turn_and_says_what_it_did_as_json(start: Start, migrated_database: str) -> None:
    process = start("maintain", "--json", database=migrated_database)
    said, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    told = json.loads(said)
    assert told["reap"] == told["expire"] == {"jobs": 0, "tasks": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_maintenance_loop_while_it_waits(
    start: Start, migrated_database: str, number: signal.Signals
) -> None:
    # Port 9 of loopback answers nobody; the loop says so once a turn began, and then waits for half a minute.
    process = start("maintain", "--loop", "30", "--probe", "http://127.0.0.1:9/", database=migrated_database)
    line_with(process.stderr, "Agents cannot be heard")
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert errors == ""


def test_the_maintenance_loop_waits_out_an_outage_with_one_line_a_try(start: Start, migrated_database: str) -> None:
    name = migrated_database.partition("?")[0].rpartition("/")[2]
    server = migrated_database.replace(f"/{name}?", "/postgres?")
    process = start("maintain", "--loop", "0.1", "--probe", "", database=migrated_database)
    with psycopg.connect(server, autocommit=True) as admin:
        with psycopg.connect(migrated_database, autocommit=True) as connection:
            while connection.execute("SELECT count(*) FROM uptime").fetchone() != (1,):
                assert process.poll() is None
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        first = line_with(process.stderr, "level=")
        second = line_with(process.stderr, "level=")
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        third = line_with(process.stderr, "The database answers again")
    assert "does not answer" in first
    assert "next_try_in_s=1.0" in first
    assert "does not answer" in second
    assert "next_try_in_s=2.0" in second
    assert "level=info" in third
    process.terminate()
    assert process.wait(timeout=DEADLINE) == 0


def duty(connection: "psycopg.Connection[Any]", name: str) -> Any:
    """Owner's process, term and whether it is held, of one duty."""
    found = connection.execute(
        "SELECT split_part(leased_by, ':', 2)::int, term, leased_until > now() FROM maintenance_duties"
        " WHERE name = %s AND term > 0",
        [name],
    ).fetchone()
    return found or (0, 0, None)


def test_two_loops_share_the_duties_and_one_takes_over_what_the_other_was_killed_at(
    start: Start, migrated_database: str
) -> None:
    loops = {
        process.pid: process
        for process in (start("maintain", "--loop", "0.1", "--probe", "", database=migrated_database) for _ in range(2))
    }
    with (
        psycopg.connect(migrated_database, autocommit=True) as looking,
        psycopg.connect(migrated_database) as blocking,
    ):
        while {duty(looking, "expire")[0], duty(looking, "reap")[0]} != set(loops):  # each has had one of them
            assert [process.poll() for process in loops.values()] == [None, None]
        blocking.execute("LOCK TABLE uptime")
        while not (at_work := duty(looking, "reap"))[2]:
            assert [process.poll() for process in loops.values()] == [None, None]
        killed, term, _ = at_work
        loops.pop(killed).kill()
        (survivor,) = loops
        blocking.rollback()

        # The other one goes on with the rest, and leaves alone what the dead one holds.
        before = duty(looking, "expire")[1]
        while duty(looking, "expire")[1] < before + 5:
            assert loops[survivor].poll() is None
        assert duty(looking, "reap")[:2] == (killed, term)

        looking.execute("UPDATE maintenance_duties SET leased_until = now() WHERE name = 'reap'")
        while duty(looking, "reap")[0] != survivor:
            assert loops[survivor].poll() is None
    loops[survivor].terminate()
    assert loops[survivor].wait(timeout=DEADLINE) == 0
