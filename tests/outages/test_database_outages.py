"""The database goes away under load: stopped, crashed, silent, full of other clients."""

import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from agentstore.config import REPOSITORY
from tests.commands.conftest import line_with
from tests.outages.installation import FAST, IMMEDIATE, Database, ask, environment, maintenance, wait_until, web
from tests.outages.line import Line
from tests.outages.load import assert_clean, begin_load


@pytest.mark.parametrize("how", [FAST, IMMEDIATE], ids=["fast", "immediate"])
def test_a_stopped_database_is_503_and_everything_resumes_by_itself(
    home: Path, postgres: Database, how: signal.Signals
) -> None:
    with web(home, postgres.url) as server:
        load = begin_load(postgres, server.port)
        postgres.stop(how)
        wait_until(load.outage(20), "requests are refused while the database is away")
        assert [ask("GET", server.port, path)[0] for path in ("/healthz", "/readyz")] == [200, 503]
        postgres.start()
        back = monotonic()
        wait_until(load.progress(20), "work goes on")
        # Past the five seconds that the return may take, nobody is refused any more.
        wait_until(lambda: monotonic() > back + 5, "the five seconds pass")
        wait_until(load.progress(40), "work goes on")
        load.stop()
    assert_clean(load, postgres)
    assert [sent - back for sent, _ in load.refusals if sent > back + 5] == []


def test_a_line_that_falls_silent_costs_seconds_and_then_nothing(home: Path, postgres: Database) -> None:
    with Line(postgres.socket) as line, web(home, line.url, threads=2) as server:
        load = begin_load(postgres, server.port, runners=8)
        line.fall_silent()
        silent = monotonic()
        wait_until(load.outage(16), "requests are refused while the line is silent")
        assert ask("GET", server.port, "/healthz")[0] == 200
        line.speak()
        wait_until(load.progress(40), "work goes on")
        load.stop()
    assert_clean(load, postgres)
    # Every request that the silence caught was answered by 503 within ten seconds, those that had to queue too.
    waits = [wait for sent, wait in load.waits if sent + wait > silent]
    assert waits
    assert max(waits) < 10


def take_all(postgres: Database, hoard: ExitStack) -> None:
    """Hold every connection that an ordinary role can get."""
    with suppress(psycopg.OperationalError):
        while True:
            hoard.enter_context(postgres.connect())


def test_a_full_database_is_503_and_the_pool_of_the_web_server_is_bounded(home: Path, postgres: Database) -> None:
    workers, threads = 2, 3
    with web(home, postgres.url, workers=workers, threads=threads) as server, ExitStack() as hoard:
        load = begin_load(postgres, server.port, runners=30)
        counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentstore-web'"
        wait_until(load.progress(60), "work goes on")
        assert 1 <= postgres.ask(counted)[0][0] <= workers * threads

        # What is free, and then what the web server had.
        take_all(postgres, hoard)
        with postgres.connect("postgres") as superuser:
            superuser.execute(counted.replace("count(*)", "pg_terminate_backend(pid)"))
        take_all(postgres, hoard)
        wait_until(load.outage(60), "requests are refused while there is no connection to be had")
        hoard.close()
        wait_until(load.progress(60), "work goes on")
        assert postgres.ask(counted)[0][0] <= workers * threads
        load.stop()
    assert_clean(load, postgres)


def test_the_limits_of_a_tcp_connection_are_set_by_configuration(home: Path, postgres: Database) -> None:
    code = (
        "import socket; from agentstore.settings import DATABASES; from django.db import connection;"
        "connection.ensure_connection(); s = socket.socket(fileno=connection.connection.fileno());"
        "names = 'TCP_USER_TIMEOUT', 'TCP_KEEPIDLE', 'TCP_KEEPINTVL', 'TCP_KEEPCNT';"
        "print(*(s.getsockopt(socket.IPPROTO_TCP, getattr(socket, n)) for n in names), connection.connection.patience);"
        "s.detach()"
    )
    with Line(postgres.socket) as line:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env=environment(home, line.url, DJANGO_SETTINGS_MODULE="agentstore.settings", AGENTSTORE_PROCESS="web"),
            capture_output=True,
            text=True,
            check=True,
        )
    user_timeout, idle, interval, count, patience = map(float, done.stdout.split())
    assert user_timeout <= 10_000
    assert idle + interval * count <= 10
    assert patience <= 8


@pytest.mark.soak
def test_the_maintenance_loop_gives_a_silent_line_up_and_goes_on(home: Path, postgres: Database) -> None:
    with Line(postgres.socket) as line, maintenance(home, line.url, AGENTSTORE_MAINTENANCE_TIMEOUT="1") as loop:
        seen = "SELECT seen_at FROM uptime"
        before = wait_until(lambda: postgres.ask(seen), "the loop turns")
        wait_until(lambda: postgres.ask(seen) != before, "the loop turns again")
        line.fall_silent()
        assert "the server " in line_with(loop.stderr, "does not answer")
        line.speak()
        line_with(loop.stderr, "The database answers again")
        before = postgres.ask(seen)
        wait_until(lambda: postgres.ask(seen) != before, "the loop turns again")


def test_the_maintenance_loop_lives_through_a_stopped_server(home: Path, postgres: Database) -> None:
    with maintenance(home, postgres.url) as loop:
        wait_until(lambda: postgres.ask("SELECT seen_at FROM uptime"), "the loop turns")
        postgres.stop(FAST)
        try:
            tries = [line_with(loop.stderr, "level=") for _ in range(3)]
        finally:
            postgres.start()
        line_with(loop.stderr, "The database answers again")
        assert loop.poll() is None
    assert ["does not answer" in line for line in tries] == [True, True, True]
    assert ["next_try_in_s=1.0" in tries[0], "next_try_in_s=2.0" in tries[1], "next_try_in_s=4.0" in tries[2]] == [
        True, True, True,
    ]  # fmt: skip
