"""An installation that a test owns and may break: PostgreSQL, granian workers, and the rows they need to begin with."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import psycopg

from agentstore.config import REPOSITORY, config
from agentstore.embedded_postgres.cluster import Cluster
from agentstore.embedded_postgres.guardian import READY_LINE
from agentstore.embedded_postgres.place import Place
from agentstore.supervisor import web_server
from jobs.services import token_format

PATIENCE = 60.0  # seconds; only what hangs needs them
# An immediate stop is a crash of the server, not of the machine: the system's cache survives it, commits must too.
OPTIONS = {"fsync": "off", "synchronous_commit": "on", "max_connections": "60", "log_min_messages": "warning"}
EXPECTED = re.compile("logger=django.request|The database cannot answer")  # in the log, thousands of times
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT  # as in pg_ctl stop -m


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return the first value of `condition` that is true; fail after `seconds`."""
    pulse, end = threading.Event(), monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < end, f"never: {what}"
        pulse.wait(0.02)
    return found


class Database:
    """A PostgreSQL that the test stops and starts; its socket stays where it is."""

    def __init__(self, home: Path, **options: str) -> None:
        self._place = Place.of(home)
        self._cluster = Cluster(self._place, {**OPTIONS, **options})
        with _package_on_path():
            self._cluster.prepare()
        self._server: subprocess.Popen[bytes] | None = None
        self.log: list[str] = []

    @property
    def url(self) -> str:
        """Where the application connects, as an ordinary role."""
        return f"postgresql://agentstore@/agentstore?host={quote(str(self._place.sockets), safe='')}"

    @property
    def socket(self) -> str:
        """The socket itself, for a line of the test's own in front of it."""
        return str(self._place.sockets / ".s.PGSQL.5432")

    def start(self) -> None:
        """Start, and return once connections are accepted."""
        ready = threading.Event()
        with _package_on_path():
            self._server = server = self._cluster.start()

        def read() -> None:
            assert server.stderr is not None
            with server.stderr:
                for line in server.stderr:
                    self.log.append(line.decode(errors="replace"))
                    if READY_LINE in line:
                        ready.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        assert ready.wait(PATIENCE), "".join(self.log[-20:])

    def stop(self, how: signal.Signals = FAST) -> None:
        """Stop, and return once it has ended."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait(PATIENCE)
        self._reader.join(PATIENCE)

    def restart(self, how: signal.Signals) -> None:
        """Stop and start."""
        self.stop(how)
        self.start()

    def connect(self, user: str = "agentstore", **options: Any) -> psycopg.Connection[Any]:
        """A connection in autocommit mode; `postgres` is the superuser."""
        return psycopg.connect(self.url.replace("agentstore@", f"{user}@"), autocommit=True, **options)

    def ask(self, sql: str, *values: object) -> list[Any]:
        """The rows of one statement."""
        with self.connect() as connection:
            return connection.execute(sql, values).fetchall()


def _package_on_path() -> Any:
    # The guardian gives it to the programs that it starts; here there is no guardian.
    return patch.dict(os.environ, PYTHONPATH=str(REPOSITORY))


@contextmanager
def database(home: Path, **options: str) -> Iterator[Database]:
    """A running, migrated database in `home`, which may exist already."""
    server = Database(home, **options)
    server.start()
    try:
        manage("migrate", "--verbosity", "0", database=server.url, home=home)
        yield server
    finally:
        with suppress(subprocess.TimeoutExpired):
            server.stop(IMMEDIATE)


def environment(home: Path, url: str, **more: str) -> dict[str, str]:
    """The environment of a process of this installation."""
    return {"PATH": os.environ["PATH"], "AGENTSTORE_HOME": str(home), "DATABASE_URL": url, **more}


def manage(*words: str, database: str, home: Path) -> None:
    """Run one command of manage.py to its good end."""
    subprocess.run([sys.executable, "manage.py", *words], cwd=REPOSITORY, env=environment(home, database), check=True)


class Web:
    """Granian as production runs it, on a port of its own."""

    def __init__(
        self,
        home: Path,
        url: str,
        *,
        port: int = 0,
        workers: int = 2,
        threads: int = 4,
        application: str = "",
        **more: str,
    ) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            self.port = probe.getsockname()[1]
        command = list(web_server(replace(config, port=self.port, workers=workers, threads=threads)))
        if application:
            command[-1] = application
        self._log = home / f"web-{self.port}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment(home, url, **more),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What its processes wrote."""
        return self._log.read_text(errors="replace")

    def worker_pids(self) -> list[int]:
        """The processes that answer."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def is_ready(self) -> bool:
        """Whether it says that it can serve."""
        assert self.process.poll() is None, self.log
        try:
            return ask("GET", self.port, "/readyz")[0] == 200
        except OSError:
            return False

    def stop(self) -> None:
        """End it, by force if need be."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def web(home: Path, url: str, **arguments: Any) -> Iterator[Web]:
    """A web server that is ready; what it said is printed when the test fails."""
    server = Web(home, url, **arguments)
    try:
        wait_until(server.is_ready, "the web server is ready")
        yield server
    finally:
        server.stop()
        print(*[line for line in server.log.splitlines() if not EXPECTED.search(line)][-100:], sep="\n")


@contextmanager
def maintenance(home: Path, url: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """The maintenance loop as a process, turning ten times a second; no address is probed."""
    with subprocess.Popen(
        [sys.executable, "manage.py", "maintain", "--loop", "0.1", "--probe", ""],
        cwd=REPOSITORY,
        env=environment(home, url, **more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as loop:
        try:
            yield loop
        finally:
            loop.kill()


Answer = tuple[int, dict[str, str], bytes]


def ask(method: str, port: int, path: str, *, bearer: str = "", body: Any = None, patience: float = 30) -> Answer:
    """One request on a connection of its own: status, headers with lower-case names, and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=patience)
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"} if bearer else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def add_agent(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """A registered agent: its key and a bearer."""
    key, bearer = f"agent-{uuid.uuid4()}", token_format.mint()
    connection.execute(
        "WITH agent AS (INSERT INTO agents (principal_key, registered_at) VALUES (%s, now()) RETURNING id) "
        "INSERT INTO agent_tokens (agent_id, digest, prefix, created_by) SELECT id, %s, %s, 'test' FROM agent",
        [key, token_format.digest(bearer), bearer[: token_format.SHOWN]],
    )
    return key, bearer


def add_jobs(connection: psycopg.Connection[Any], agent: str, count: int) -> None:
    """Waiting jobs, as a plain SQL client inserts them."""
    connection.execute(
        "INSERT INTO agent_jobs (principal_key, kind, spec, created_by)"
        " SELECT %s, 'echo', '{}', 'test' FROM generate_series(1, %s)",
        [agent, count],
    )
