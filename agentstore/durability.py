"""Whether the server keeps the promise that an acknowledged result survives a crash."""

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.db import InterfaceError, OperationalError, connections

PROMISES = {
    "fsync": "a crash of the machine may damage the whole database",
    "synchronous_commit": "a crash may lose results that were acknowledged",
    "full_page_writes": "a crash of the machine may leave torn pages",
}


def check_durability(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Warn of each setting of the server that takes the promise back; asked by migrate and `check --database`."""
    return [
        checks.Warning(
            f"The PostgreSQL setting {name} is off: {PROMISES[name]}.",
            hint="Turn it on, unless nothing in this database is worth keeping.",
            id=f"agentstore.{name}",
        )
        for alias in databases or ()
        for name in _turned_off(alias)
    ]


def _turned_off(alias: str) -> list[str]:
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting = 'off'", [list(PROMISES)])
            return sorted(name for (name,) in cursor.fetchall())
    except (OperationalError, InterfaceError):
        return []  # the command that follows says in its own words that the database does not answer
