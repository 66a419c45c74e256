"""Databases of their own for the contract's tests: one as its SQL makes it, one as our migrations make it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connections

CONTRACT = tuple(
    (Path(__file__).parent / f"{name}.sql").read_text() for name in ("prelude", "agent_jobs", "agent_tasks")
)
PROJECT = "contract"  # the alias under which Django reaches the database at hand


def arguments(name: str) -> dict[str, Any]:
    """How psycopg connects to a database of that name on the tests' server."""
    settings = connections["default"].settings_dict | {"NAME": name}
    found = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    return {key: settings[place] for key, place in found.items() if settings.get(place)}


def connect(name: str) -> psycopg.Connection[Any]:
    """A client of its own, in autocommit."""
    return psycopg.connect(**arguments(name), autocommit=True)


@contextmanager
def database(suffix: str) -> Iterator[str]:
    """The name of an empty database that Django reaches as PROJECT; it is dropped afterwards."""
    # Each worker of xdist has its own, also when no test of the session needed the default database.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    name = f"{connections['default'].settings_dict['TEST']['NAME']}_{worker}_{suffix}"
    with connect("postgres") as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{name}"')
        connections.settings[PROJECT] = connections.settings["default"] | {"NAME": name}
        try:
            yield name
        finally:
            connections[PROJECT].close()
            del connections[PROJECT], connections.settings[PROJECT]
            try:
                server.execute(
                    f'DROP DATABASE "{name}"'
                )  # ends an autovacuum, which FORCE may not: it is a superuser's
            except psycopg.errors.ObjectInUse:
                server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def load_contract(name: str) -> None:
    """Create the contract's tables as its own SQL says."""
    with connect(name) as client:
        for statements in CONTRACT:
            client.execute(statements)


def migrate(*target: str) -> None:
    """Run our migrations, or those up to a target, on the database at hand."""
    try:
        call_command("migrate", *target, database=PROJECT, verbosity=0, interactive=False)
    finally:
        connections[PROJECT].close()
