"""`manage.py migrate`, one process at a time: the later ones of several find everything done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from jobs.engine.migrating import TRIGGER_RIGHTS

PAUSE = 0.2  # seconds between two looks

log = structlog.get_logger(__name__)


class Command(migrate.Command):
    """Django's migrate under a lock in the database; afterwards triggers have the rights that they need."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Take the lock, then migrate; `--plan` and `--check` only look and need none."""
        if options["plan"] or options["check_unapplied"]:
            super().handle(*args, **options)
            return
        with _alone(options["database"]):
            super().handle(*args, **options)
            with connections[options["database"]].cursor() as cursor:
                cursor.execute(TRIGGER_RIGHTS)


@contextmanager
def _alone(database: str) -> Iterator[None]:
    """Hold the migration lock on a connection of its own, since migrations open and close transactions."""
    own = connections[database].copy()
    try:
        waited = False
        while not _taken(own):
            if not waited:
                log.info("Another process is migrating; waiting for it.")
            waited = True
            time.sleep(PAUSE)
        yield
    except (OperationalError, InterfaceError) as error:
        if own.connection is not None:
            raise
        raise CommandError(f"The database does not answer: {str(error).strip().partition(chr(10))[0]}") from None
    finally:
        own.close()


def _taken(own: BaseDatabaseWrapper) -> bool:
    # Never a waiting lock statement: it would hold a snapshot, and the CREATE INDEX CONCURRENTLY of the process that
    # migrates waits for older snapshots, so for us, for ever. For the same reason READ COMMITTED: an idle transaction
    # then holds none. The lock ends with the transaction, also behind a pooler that hands connections around.
    with own.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('agentstore migrate', 0))")
        row = cursor.fetchone()
        if row and row[0]:
            return True
        cursor.execute("ROLLBACK")
        return False
