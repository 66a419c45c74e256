"""Whether the storage does what evidence needs: it keeps, it serves who has a signed address, and nobody else."""

import threading
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from django.conf import settings
from django.core.files.base import ContentFile

from .refusals import StorageUnavailable
from .storage import Step, calling

PREFIX = "self-check/"  # beside the evidence, where the sweep does not look
INTERVAL = 60.0  # seconds between two probes of one process
UNAVAILABLE = "unavailable"


def set_up() -> Sequence[Step]:
    """Make the storage what it must be. Raises SetupRefused or StorageUnavailable."""
    with calling() as store:
        return store.set_up(origin=settings.PUBLIC_URL)


def self_check() -> str:
    """Write an object, read it through a signed address, fail to read it without one: `ok`, or what is wrong.

    Raises StorageUnavailable.
    """
    content = uuid4().bytes
    with calling() as store:
        key = store.save(f"{PREFIX}{uuid4()}", ContentFile(content))
        try:
            if store.fetch(key, signed=False) is not None:
                return "public: an object can be read without a signature"
            if store.fetch(key, signed=True) != content:
                return "unreadable: a signed address does not give the bytes"
        finally:
            store.delete(key)
    return "ok"


class Probe:
    """The latest self-check, for readiness: a check runs beside the requests, at most once in `INTERVAL`.

    An outage of the storage must neither stop heartbeats nor hold a probe up, so nobody waits for it.
    """

    def __init__(self, check: Callable[[], str] = self_check, clock: Callable[[], float] = time.monotonic) -> None:
        self._check, self._clock = check, clock
        self._lock = threading.Lock()
        self._next = -1.0
        self._latest = "not checked yet"
        self.running: threading.Thread | None = None

    def latest(self) -> str:
        """What the latest check found; starts the next one when it is due and none runs."""
        with self._lock:
            latest = self._latest
            due = self._clock() >= self._next and not (self.running and self.running.is_alive())
            if due:
                self._next = self._clock() + INTERVAL
                self.running = threading.Thread(target=self._run, name="storage-probe", daemon=True)
                self.running.start()
            return latest

    def _run(self) -> None:
        try:
            self._latest = self._check()
        except StorageUnavailable:
            self._latest = UNAVAILABLE
