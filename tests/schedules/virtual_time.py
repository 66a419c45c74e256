"""Time that passes only while everybody sleeps: `now()` in the database, and the threads that live by it.

A week takes as long as the work in it. At each moment all who have something to do then are awake at once, on
connections of their own, and race in earnest; when the last one sleeps, the clock goes to the next moment.
"""

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

PATIENCE = 120.0  # real seconds without anybody falling asleep: somebody hangs

# Like PostgreSQL's own, `now()` stands still within a transaction.
CLOCK = """
    CREATE SCHEMA travel;
    CREATE TABLE travel.clock (at timestamptz NOT NULL);
    CREATE FUNCTION travel.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
      'SELECT at FROM travel.clock';
    CREATE FUNCTION travel.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
    DECLARE
      seen text := current_setting('travel.at', true);
    BEGIN
      IF seen <> '' THEN
        RETURN seen;
      END IF;
      RETURN set_config('travel.at', (SELECT at::text FROM travel.clock), true);
    END $$;
"""
# A column's default was bound to PostgreSQL's own function when it was made.
DEFAULTS = """
    DO $$
    DECLARE found record;
    BEGIN
      FOR found IN
        SELECT def.adrelid::regclass AS place, att.attname AS name FROM pg_attrdef AS def
        JOIN pg_attribute AS att ON att.attrelid = def.adrelid AND att.attnum = def.adnum
        JOIN pg_class AS class ON class.oid = def.adrelid
        WHERE class.relnamespace = 'public'::regnamespace AND pg_get_expr(def.adbin, def.adrelid) = '{old}'
      LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT {new}', found.place, found.name);
      END LOOP;
    END $$
"""


class WorldEnded(BaseException):
    """There is no more time: somebody failed."""


@contextmanager
def time_travel(start: datetime) -> Iterator[None]:
    """Let every connection that is made meanwhile see a clock that stands at `start` and goes when it is set."""
    with connection.cursor() as cursor:
        cursor.execute(CLOCK)
        cursor.execute("INSERT INTO travel.clock VALUES (%s)", [start])
        cursor.execute(DEFAULTS.format(old="now()", new="travel.now()"))
    options = connection.settings_dict["OPTIONS"]
    before = options["options"]
    options["options"] = f"{before} -c search_path=travel,pg_catalog,public"
    connection.close()
    try:
        yield
    finally:
        options["options"] = before
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(DEFAULTS.format(old="travel.now()", new="now()"))
            cursor.execute("DROP SCHEMA travel CASCADE")


class World:
    """The clock, and everybody who lives by it."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self._lock = threading.Condition()
        self._awake = 0
        self._beds: list[tuple[datetime, int, threading.Event]] = []
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        self._is_over = False
        self._ahead = timedelta()

    def add(self, actor: Callable[[], Any], name: str) -> None:
        """Somebody who lives from `run` on."""
        self._threads.append(threading.Thread(target=self._live, args=(actor,), name=name, daemon=True))

    def run(self) -> None:
        """Let time pass until everybody has ended; raises what ended somebody early."""
        self._awake = len(self._threads)
        for thread in self._threads:
            thread.start()
        try:
            while self._dawn():
                pass
        finally:
            with self._lock:
                self._is_over = True
                for _, _, bed in self._beds:
                    bed.set()
            for thread in self._threads:
                thread.join(PATIENCE)

    def sleep(self, **length: float) -> None:
        """Sleep so long."""
        self.sleep_until(self.now + timedelta(**length))

    def sleep_until(self, moment: datetime) -> None:
        """Sleep until that moment of the world; not at all if it has passed."""
        bed = threading.Event()
        with self._lock:
            if self._is_over:
                raise WorldEnded
            heapq.heappush(self._beds, (max(moment, self.now), next(self._numbers), bed))
            self._awake -= 1
            self._lock.notify_all()
        bed.wait()
        if self._is_over:
            raise WorldEnded

    def set_ahead(self, ahead: timedelta) -> None:
        """Step the database's clock, at once, to so far ahead of the time in which everybody lives."""
        self._ahead = ahead
        self._show()

    def _show(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE travel.clock SET at = %s", [self.now + self._ahead])

    def _dawn(self) -> bool:
        """Go to the next moment at which somebody wakes; False when nobody will."""
        with self._lock:
            is_quiet = self._lock.wait_for(lambda: self._awake == 0 or self._faults, PATIENCE)
            if self._faults:
                raise self._faults[0]
            assert is_quiet, "somebody hangs"
            if not self._beds:
                return False
            self.now = self._beds[0][0]
        self._show()
        with self._lock:
            while self._beds and self._beds[0][0] <= self.now:
                self._awake += 1
                heapq.heappop(self._beds)[2].set()
        return True

    def _live(self, actor: Callable[[], Any]) -> None:
        try:
            actor()
        except WorldEnded:
            pass
        except BaseException as fault:  # noqa: BLE001  (told by `run`)
            self._faults.append(fault)
        finally:
            connection.close()
            with self._lock:
                self._awake -= 1
                self._lock.notify_all()


class Watch(threading.Event):
    """A stop for whoever waits on it: its waits are the world's, and it is set from a moment on."""

    def __init__(self, world: World, until: Callable[[], datetime]) -> None:
        super().__init__()
        self._world, self._until = world, until

    def is_set(self) -> bool:
        """Whether it was set, or its moment has come."""
        return super().is_set() or self._world.now >= self._until()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep in the world's time."""
        assert timeout is not None
        if not self.is_set():
            self._world.sleep_until(min(self._until(), self._world.now + timedelta(seconds=timeout)))
        return self.is_set()
