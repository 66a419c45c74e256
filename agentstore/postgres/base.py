"""A database that falls silent costs a request seconds, not minutes, and a thread nothing once it is known.

`statement_timeout` is kept by the server, and TCP's own limits by the kernel at the other end: neither helps against a
pooler, a proxy or a machine that keeps its sockets open and says nothing more. So the wait itself has a limit here.
"""

import select
import threading
from time import monotonic
from typing import Any

from django.db.backends.postgresql import base
from psycopg import Connection, OperationalError
from psycopg.errors import _WaitTimeout as WaitTimeout  # what `Connection.wait` is documented to raise

from .moments import read_every_moment

REST_SECONDS = 2.0  # after a silence: so long nobody else of this process tries to connect


class PunctualConnection(Connection[Any]):
    """A connection that is closed when the server says nothing for `patience` seconds (None: waits for ever)."""

    patience: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer; raise OperationalError when none came in time."""
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except WaitTimeout:
            if timeout is not None:
                raise
            self.pgconn.finish()
            outage.begin()
            raise OperationalError(f"the server said nothing for {self.patience:g} seconds") from None


class Outage:
    """What the threads of this process know of a server that falls silent, so that not all of them wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0

    def begin(self) -> None:
        """Note that the server was silent just now."""
        with self._lock:
            self._until = monotonic() + REST_SECONDS

    def check(self) -> None:
        """Raise OperationalError while it is too early to try again."""
        if monotonic() < self._until:
            raise OperationalError("the server was silent a moment ago")


outage = Outage()


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own, with the limit SILENCE_SECONDS of its entry in DATABASES, if that is set."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect, or raise OperationalError at once while the server is known to be silent."""
        connection = self._connect(conn_params)
        read_every_moment(connection)
        return connection

    def _connect(self, conn_params: dict[str, Any]) -> PunctualConnection:
        patience: float | None = self.settings_dict.get("SILENCE_SECONDS")
        if patience is None:
            return PunctualConnection.connect(**conn_params)
        outage.check()
        began = monotonic()
        try:
            connection = PunctualConnection.connect(**conn_params)
        except OperationalError:
            if monotonic() - began >= 1:  # no refusal, which is quick: a time-out
                outage.begin()
            raise
        connection.patience = patience
        return connection

    def close_if_unusable_or_obsolete(self) -> None:
        """Between requests: also drop a connection that the server ended meanwhile, which costs no statement."""
        if self.connection is not None and not self.in_atomic_block and _was_ended(self.connection):
            self.close()
        super().close_if_unusable_or_obsolete()


def _was_ended(connection: PunctualConnection) -> bool:
    """Whether bytes wait on an idle connection: its end, or the words that announce it."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
