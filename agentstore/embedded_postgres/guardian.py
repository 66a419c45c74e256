"""The guardian: parent of `postgres`, restarts it when it dies, stops it when its last user is gone.

There are no pid files and no polling, only locks that the kernel drops with their holder:
`users`     each user holds it shared; the guardian waits for it alone and so learns that nobody is left
`guard`     the guardian holds it for its life; whoever finds it free must start one
`starting`  the guardian holds it while it brings PostgreSQL up; a user waits for it
`start`     one process at a time enters or leaves
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic

from agentstore.embedded_postgres.cluster import Cluster
from agentstore.embedded_postgres.place import EmbeddedPostgresError, Lock, Place

START_ATTEMPTS = 5
FIRST_PAUSE = 0.1  # seconds, doubled after each failed start
STEADY = 60  # seconds after which a server counts as healthy again
READY_LINE = b"database system is ready to accept connections"

Server = subprocess.Popen[bytes]


class Event(Enum):
    """What the guardian waits for."""

    READY = "ready"
    DIED = "died"
    LEAVE = "leave"


def guard(home: Path, report: int, options: Mapping[str, str]) -> int:
    """Guard the server of `home`; write "ready" or the reason of a failure to the descriptor `report`."""
    if os.fork():
        os._exit(0)  # nobody's child: the guardian outlives its starter and leaves no zombie behind
    os.chdir("/")
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    place = Place.of(home)
    # `guard` is opened before `users`, so that the kernel, should we be killed, closes it first: who then gets `users`
    # finds no guardian.
    with (
        open(report, "wb") as answer,
        place.lock("guard") as lock,
        place.lock("starting") as starting,
        place.lock("users") as users,
    ):
        if not lock.try_take():
            answer.write(b"Another guardian is running.")
            return 1
        starting.take()
        try:
            guardian = Guardian(Cluster(place, options), users)
            server = guardian.bring_up()
        except (EmbeddedPostgresError, OSError) as error:
            print(error, file=sys.stderr, flush=True)
            answer.write(str(error).encode())
            return 1
        answer.write(b"ready")
        with suppress(BrokenPipeError):  # the starter was killed; others may be waiting
            answer.close()
        starting.release()
        failed = guardian.stand_guard(server, starting)
        lock.close()  # before `users`
    return int(failed)


class Guardian:
    """Watches one server process and the lock of its users through one queue of events."""

    def __init__(self, cluster: Cluster, users: Lock) -> None:
        self._cluster = cluster
        self._users = users
        self._events: SimpleQueue[tuple[Event, Server | None]] = SimpleQueue()
        self._leaving = False

    def bring_up(self) -> Server:
        """Return a server that accepts connections, after several attempts if need be; raise with its last words."""
        self._cluster.prepare()
        signal.signal(signal.SIGTERM, lambda *_: self._events.put((Event.LEAVE, None)))
        threading.Thread(target=self._wait_for_last_user, daemon=True).start()
        return self._start()

    def stand_guard(self, server: Server, starting: Lock) -> bool:
        """Return when the server is stopped because nobody needs it (False) or cannot be kept alive (True)."""
        began, pause = monotonic(), FIRST_PAUSE
        while not self._leaving:
            event, source = self._events.get()
            if event is Event.LEAVE:
                self._leaving = True
            elif event is Event.DIED and source is server:
                print(f"postgres ended with {server.returncode}, starting it again", file=sys.stderr, flush=True)
                starting.take()
                pause = FIRST_PAUSE if monotonic() - began > STEADY else min(pause * 2, 10)
                if not self._rest(pause):
                    break
                try:
                    server, began = self._start(), monotonic()
                except EmbeddedPostgresError as error:
                    print(error, file=sys.stderr, flush=True)
                    return True
                starting.release()
        self._cluster.stop(server)
        return False

    def _start(self) -> Server:
        pause = FIRST_PAUSE
        words: list[bytes] = []
        for _ in range(START_ATTEMPTS):
            self._cluster.end_orphan()
            # Started by the main thread: the kernel ties a child to the thread that made it.
            server = self._cluster.start()
            reader = threading.Thread(target=self._read_log, args=(server, words), daemon=True)
            reader.start()
            threading.Thread(target=self._wait_for_end, args=(server, reader), daemon=True).start()
            if self._came_up(server):
                return server
            if not self._rest(pause):
                break
            pause *= 2
        last = b"".join(words[-5:]).decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"The embedded PostgreSQL does not start: {last or 'it said nothing'}")

    def _came_up(self, server: Server) -> bool:
        while True:
            event, source = self._events.get()
            if event is Event.LEAVE:
                self._leaving = True  # once it is up: a start is not interrupted halfway
            elif source is server:
                return event is Event.READY

    def _rest(self, seconds: float) -> bool:
        """Return whether the server is still wanted after a pause, which a LEAVE cuts short."""
        until = monotonic() + seconds
        while not self._leaving and (left := until - monotonic()) > 0:
            try:
                event, _ = self._events.get(timeout=left)
            except Empty:
                break
            self._leaving = event is Event.LEAVE
        return not self._leaving

    def _wait_for_last_user(self) -> None:
        self._users.take()
        self._events.put((Event.LEAVE, None))

    def _wait_for_end(self, server: Server, reader: threading.Thread) -> None:
        server.wait()
        reader.join(timeout=1)  # its last words; a stray backend may hold the pipe open longer
        self._events.put((Event.DIED, server))

    def _read_log(self, server: Server, words: list[bytes]) -> None:
        ready = False
        assert server.stderr is not None
        for line in server.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            if not ready:  # later lines may hold what a client wrote
                words.append(line)
                if READY_LINE in line:
                    ready = True
                    self._events.put((Event.READY, server))
