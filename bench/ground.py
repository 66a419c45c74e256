"""What the figures stand on: one durable PostgreSQL of the bench's own, its databases, workers and web servers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Self

import psycopg

from agentstore import embedded_postgres
from agentstore.config import REPOSITORY, config
from agentstore.supervisor import Parts, web_server
from bench.cpu import Meter

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
BENCH = REPOSITORY / "var" / "bench"
HOME = BENCH / "home"


def say(*words: object) -> None:
    """Tell a person how far it is."""
    print(*words, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Database:
    """One database of the bench's server."""

    name: str

    @property
    def url(self) -> str:
        """Where it is."""
        return embedded_postgres.connection_url(HOME).replace("/agentstore?", f"/{self.name}?")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the product's processes that use it."""
        return {**os.environ, "DATABASE_URL": self.url, "AGENTSTORE_HOME": str(HOME), "AGENTSTORE_PROCESS": "web",
                "AGENTSTORE_WEB_STATEMENT_TIMEOUT": "3600", "DJANGO_SETTINGS_MODULE": "agentstore.settings",
                "PRODUCTION": "", "DEBUG": ""}  # fmt: skip

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What a statement returns."""
        with psycopg.connect(self.url, autocommit=True) as line:
            cursor = line.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def copy(self, name: str) -> "Database":
        """A new database with the same contents."""
        Database("postgres").run(f'CREATE DATABASE "{name}" TEMPLATE "{self.name}"')
        return Database(name)


def postmaster() -> int:
    """The process that all of PostgreSQL's are children of."""
    return int((HOME / "postgres" / "postmaster.pid").read_text().split()[0])


@dataclass(frozen=True, kw_only=True)
class Used:
    """What one round of work took, for each piece of it."""

    cpu: float  # microseconds, of the worker and of PostgreSQL
    seconds: float


class Worker:
    """A process that works when told to; see bench.worker."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @classmethod
    def of_engine(cls, database: Database, act: str, *kinds: str) -> Self:
        """Our own engine."""
        return cls([sys.executable, "-m", "bench.worker", act, *kinds], database.environment)

    def arm(self, count: int) -> None:
        """Let it enqueue."""
        self._say(count)
        assert self._hear() == "armed"

    def go(self) -> None:
        """Let it start."""
        self._say("go")

    def done(self) -> dict[str, float]:
        """What it took, as it says itself."""
        used: dict[str, float] = json.loads(self._hear())
        return used

    def round(self, count: int) -> Used:
        """Work alone, with PostgreSQL's share."""
        self.arm(count)
        meter = Meter(postmaster())
        self.go()
        used = self.done()
        return Used(cpu=(used["cpu"] + meter.microseconds()) / count, seconds=used["seconds"] / count)

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _say(self, word: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"A worker ended: {self._process.args}")
        return line


class Web:
    """A web server with one worker process, and one client that keeps its connection."""

    def __init__(self, parts: Parts, port: int, environment: Mapping[str, str], target: str) -> None:
        command = web_server(replace(config, workers=1, threads=1, host="127.0.0.1", port=port))
        self.pid = parts.start(target, (*command[:-1], target), environment=environment).pid
        parts.wait_for_answer("127.0.0.1", port)
        self._client = HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: Mapping[str, Any], bearer: str) -> Any:
        """Send one request; the answer's document. Any answer but 2xx ends the bench."""
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        answer, content = self.exchange(method, f"/api/v1/{path}", json.dumps(body), headers)
        if answer.status not in (200, 201):
            raise SystemExit(f"{method} {path} was answered with {answer.status}: {content[:500]!r}")
        return json.loads(content)

    def exchange(
        self, method: str, path: str, body: str | bytes | Iterable[bytes] | None, headers: Mapping[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        """Send anything; the answer and its content."""
        self._client.request(method, path, body, headers)
        answer = self._client.getresponse()
        return answer, answer.read()

    def meter(self) -> Meter:
        """Of this server and PostgreSQL."""
        return Meter(self.pid, postmaster())


@contextmanager
def ground() -> Iterator[Database]:
    """The database of an installation, freshly migrated, on a server that is as durable as in production."""
    with embedded_postgres.server(HOME, options=DURABLE):
        database = Database("agentstore")
        subprocess.run(
            [sys.executable, str(REPOSITORY / "manage.py"), "migrate", "--verbosity=0"], env=database.environment,
            cwd=REPOSITORY, check=True, stdout=sys.stderr,
        )  # fmt: skip
        yield database


def peers() -> dict[str, Path]:
    """Where `make` put the peers that it could install."""
    places = {"procrastinate": BENCH / "venv" / "bin" / "python", "graphile-worker": BENCH / "npm" / "node_modules"}
    return {name: place for name, place in places.items() if place.exists()}
