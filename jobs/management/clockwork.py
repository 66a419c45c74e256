"""The loop that does the clock's duties: each at its own pace, through faults of single duties and of the database.

Any number of loops on any number of machines share the duties through their rows (`jobs.services.duties`).
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import structlog
from django.db import Error, close_old_connections, connection

from jobs.services import duties as rows
from jobs.services.duties import DutyLease

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FIRST_PAUSE, LONGEST_OUTAGE_PAUSE = 1.0, 8.0  # seconds; leases go on lapsing, so the loop is back soon
LONGEST_WAIT = 60.0  # seconds between two looks at who does what, so that a dead loop's duties are taken over

log = structlog.get_logger(__name__)


class DatabaseAwayError(Exception):
    """The database does not answer."""


@dataclass(frozen=True, kw_only=True)
class Duty:
    """One thing to do; `act` returns a dataclass of counts or None.

    `every` is its interval in seconds, 0 the pace of the loop. `lease` is how long another loop waits, in seconds,
    before it takes the duty over from one that died; an act that takes longer may be done twice at once and must bear
    that. A duty that is `apart` has a thread and a connection of its own: it may take long, or wait for others, and
    keeps no other from its time.
    """

    name: str
    act: "Callable[[], DataclassInstance | None]"
    every: float = 0.0
    lease: float = 15.0
    apart: bool = False


class Clockwork:
    """Does duties until `stop` is set."""

    def __init__(self, duties: Iterable[Duty], stop: threading.Event) -> None:
        self._duties = tuple(duties)
        self._stop = stop
        # Unique, since a loop may take up again what it held itself.
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._fault: BaseException | None = None

    def once(self) -> tuple[dict[str, Any], list[str], list[str]]:
        """Do every duty now; return the counts by duty, the duties that failed, and those that another loop is doing.

        A failure is logged and stops no other duty. Raises DatabaseAwayError if it was the connection that failed.
        """
        counts: dict[str, Any] = {}
        failed: list[str] = []
        held: list[str] = []
        rows.register(duty.name for duty in self._duties)
        for duty in self._duties:
            if self._stop.is_set():
                break
            lease = rows.take(name=duty.name, owner=self._owner, lease_seconds=duty.lease, early=True)
            if lease is None:
                held.append(duty.name)
            elif (done := self._do(duty, lease)) is None:
                failed.append(duty.name)
            else:
                counts[duty.name] = done
        return counts, failed, held

    def run(self, pace: float) -> None:
        """Do what is due until stopped, nothing oftener than every `pace` seconds."""
        apart = [duty for duty in self._duties if duty.apart]
        threads = [threading.Thread(target=self._go_apart, args=(duty, pace), name=duty.name) for duty in apart]
        for thread in threads:
            thread.start()
        try:
            self._go_on([duty for duty in self._duties if not duty.apart], pace, speaks=True)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._fault is not None:
            raise self._fault

    def _go_apart(self, duty: Duty, pace: float) -> None:
        try:
            self._go_on([duty], pace, speaks=False)
        except BaseException as fault:  # noqa: BLE001  (raised again where the loop ends)
            self._fault = fault
            self._stop.set()
        finally:
            connection.close()

    def _go_on(self, duties: Sequence[Duty], pace: float, *, speaks: bool) -> None:
        """Do these duties until stopped; while the database is away, wait longer after each try.

        One thread speaks of an outage: the others see the same one.
        """
        pause, is_tidy = 0.0, not speaks
        while not self._stop.is_set():
            try:
                if not is_tidy:
                    rows.forget_others(duty.name for duty in self._duties)
                    is_tidy = True
                close_old_connections()
                wait = self._turn(duties, pace)
            except (DatabaseAwayError, Error) as error:
                connection.close()
                pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_OUTAGE_PAUSE)
                if speaks:
                    log.warning("The database does not answer.", error=_first_line(error), next_try_in_s=pause)
                self._stop.wait(pause)
                continue
            if pause:
                pause = 0.0
                if speaks:
                    log.info("The database answers again.")
            if wait >= LONGEST_WAIT:
                connection.close()
            self._stop.wait(wait)

    def _turn(self, duties: Sequence[Duty], pace: float) -> float:
        """Do each duty that is due; return the seconds until the next one is."""
        waits = self._waits(duties)
        for duty in duties:
            if self._stop.is_set() or waits[duty.name] > 0:
                continue
            every = max(duty.every, pace)
            lease = rows.take(name=duty.name, owner=self._owner, lease_seconds=duty.lease, every_seconds=every)
            if lease is not None:
                self._do(duty, lease)
        return max(0.0, min([LONGEST_WAIT, *self._waits(duties).values()]))

    def _waits(self, duties: Sequence[Duty]) -> Mapping[str, float]:
        names = [duty.name for duty in duties]
        found = rows.waits(names=names, owner=self._owner)
        if len(found) < len(names):
            rows.register(name for name in names if name not in found)
            found = rows.waits(names=names, owner=self._owner)
        return found

    def _do(self, duty: Duty, lease: DutyLease) -> dict[str, Any] | None:
        """Do a duty and note how it went; return its counts, or None after a failure, which is logged.

        Raises DatabaseAwayError if it was the connection that failed; the lease is this loop's to take up again.
        """
        began, link = time.monotonic(), connection.connection
        counts: dict[str, Any] | None = None
        try:
            done = duty.act()
            told = asdict(done) if done is not None else {}
        except Exception as error:  # one duty must never stop another
            if isinstance(error, Error) and not _answers(link):
                connection.close()
                raise DatabaseAwayError(_first_line(error)) from error
            log.error("A duty of the maintenance failed.", duty=duty.name, exc_info=error)
            said = f"{type(error).__name__}: {error}"
            is_ours = rows.failed(lease, seconds=time.monotonic() - began, error=said)
        else:
            counts = told
            is_ours = rows.succeeded(lease, seconds=time.monotonic() - began)
            if any(counts.values()):
                log.info("maintenance", duty=duty.name, **counts)
        if not is_ours:
            log.warning("A duty took longer than its lease; another loop has it now.", duty=duty.name)
        return counts


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _answers(link: object) -> bool:
    # A lock timeout or a full disk is a fault of one duty. A transaction whose connection was cut leaves none, or has
    # made a new one: Django sets that back to autocommit.
    return connection.connection is not None and connection.connection is link and connection.is_usable()
