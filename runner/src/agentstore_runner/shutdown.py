"""Signals: the first asks the runner to stop, the second to stop at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# A workflow's cancel may arrive as any of the three (actions/runner#1309).
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FORCING = signal.SIGUSR1


class Forced(BaseException):
    """Raised inside a handler that did not end in time; a handler's own `except Exception` does not catch it."""


class Shutdown:
    """What the signals have asked for so far."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.hurried = threading.Event()
        self.signum: int | None = None
        self._listening = False
        self._main = 0
        self._armed = False
        self._tell: Callable[[], None] | None = None

    @property
    def exit_code(self) -> int:
        """Return 128 + the first signal's number."""
        return 128 + (self.signum or signal.SIGTERM)

    def request(self, signum: int) -> None:
        """Note one more signal."""
        if self.asked.is_set():
            self.hurried.set()
            self.force()
        else:
            self.signum = signum
            self.asked.set()
            if (tell := self._tell) is not None:
                tell()

    def force(self) -> None:
        """Interrupt the handler that runs in the main thread; without one, nothing happens."""
        if self._listening:
            # To the thread, so that it also leaves a system call.
            signal.pthread_kill(self._main, _FORCING)

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` once a stop is asked for, also if that was before this block; it may be called twice."""
        self._tell = tell
        if self.asked.is_set():
            tell()
        try:
            yield
        finally:
            self._tell = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Receive the signals of this process; the main thread only.

        Python runs signal handlers between two instructions of the main thread, where setting an Event may deadlock
        with a wait on the same Event. So the handlers do nothing, and a thread reads the numbers from a pipe.
        """
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(reader, True)
        before = {signum: signal.signal(signum, _ignore) for signum in _STOPPING}
        before[_FORCING] = signal.signal(_FORCING, self._raise)
        previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        listener = threading.Thread(target=self._read, args=(reader,), name="signals", daemon=True)
        listener.start()
        self._main = threading.get_ident()
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            signal.set_wakeup_fd(previous)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            os.close(writer)
            listener.join()
            os.close(reader)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let `force` raise Forced inside this block."""
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def _raise(self, _signum: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise Forced

    def _read(self, reader: int) -> None:
        while received := os.read(reader, 64):
            for signum in received:
                if signum != _FORCING:
                    self.request(signum)


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """Stand in for the default action; the wakeup pipe has the number already."""
