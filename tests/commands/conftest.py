"""What the commands' tests stand on: an agent, a kind, and for real processes a database of their own."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command

from jobs.models import Agent
from jobs.services import identities, shipped_kinds
from tests.factories import TargetFactory

REPOSITORY = Path(__file__).resolve().parents[2]
API_SPEC = REPOSITORY / "examples" / "uat" / "api-contract.json"


@pytest.fixture
def agent(db: None) -> Agent:
    """A registered agent, and the shipped kinds and the target of the examples beside it."""
    shipped_kinds.sync_kinds()
    TargetFactory(base_url="http://127.0.0.1:8999", allow_local=True)
    return identities.create_agent(key="ci", by="test")


@contextmanager
def _database() -> Iterator[str]:
    entry: dict[str, Any] = settings.DATABASES["default"]
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    server = {word: str(entry[name]) for name, word in names.items() if entry.get(name)}
    name = f"test_commands_{uuid.uuid4().hex}"
    with psycopg.connect(**server, dbname="postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"postgresql:///{name}?{urlencode(server)}"
        finally:
            try:
                connection.execute(f'DROP DATABASE "{name}"')  # ends an autovacuum, which FORCE may not
            except psycopg.errors.ObjectInUse:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty_database() -> Iterator[str]:
    """The URL of a database without tables, for processes of their own."""
    with _database() as url:
        yield url


@pytest.fixture(scope="module")
def migrated_database() -> Iterator[str]:
    """The URL of a migrated database that the tests of a module share, for processes of their own."""
    with _database() as url:
        words = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(words, cwd=REPOSITORY, env={**os.environ, "DATABASE_URL": url}, check=True)
        yield url


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `manage.py` with arguments and a database; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, database: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *words],
            cwd=REPOSITORY,
            env={**os.environ, "DATABASE_URL": database},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process and return its standard output."""

    def run(name: str, *words: str) -> str:
        capsys.readouterr()
        call_command(name, *words)
        return capsys.readouterr().out

    return run


def line_with(stream: Any, part: str) -> str:
    """Return the first line that holds `part`; fail with what came instead when the stream ends."""
    seen = []
    for line in stream:
        if part in line:
            return str(line)
        seen.append(line)
    raise AssertionError(f"{part!r} did not come: {''.join(seen)}")
