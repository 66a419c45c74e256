"""A program that works for the runner: its output in files that are read while they grow, and its end.

Files, not pipes: a runner that is killed would make restic die of a broken pipe and leave a lock in the repository.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agentstore_runner import clock
from agentstore_runner.backup import launch
from agentstore_runner.handlers import Desk

# restic removes its locks when it is interrupted once; a second signal or a kill leaves them.
GRACE_S = 30.0
_FORCED_GRACE_S = 5.0
_LOOK_S = 0.1
_NAP_S = 0.02
_LONGEST_LINE = 1024 * 1024

_NAMES = (
    "PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR SSH_AUTH_SOCK "
    "SSL_CERT_FILE SSL_CERT_DIR HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy "
    "RESTIC_CACHE_DIR RESTIC_COMPRESSION RESTIC_PACK_SIZE RESTIC_READ_CONCURRENCY GOMAXPROCS GOGC"
)
_KEPT = frozenset(_NAMES.split())


def environment(environ: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return what a child may see: no token, no password, and what is given to it on purpose."""
    return {**{name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}, **more}


class Child:
    """One child in a session of its own, so that a terminal's Ctrl-C reaches the runner only. End it by `with`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        ends_by: signal.Signals = signal.SIGINT,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._ends_by = ends_by
        self._signalled = False
        self._stdout, self._stderr = Tail(folder / "stdout"), Tail(folder / "stderr")
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), str(int(ends_by))]
        with self._stdout.path.open("wb") as stdout, self._stderr.path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                env=dict(environ),
                pass_fds=descriptors,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing behind, also when the runner's second signal interrupts the work."""
        if self._code() is None:
            self._ask_to_end()
            self._await(_FORCED_GRACE_S)
        # A child of the child may have stayed in the group. Until the wait below, the number belongs to nobody else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stdout.close()
        self._stderr.close()

    def follow(
        self, desk: Desk | None, stdout: Callable[[str], None], stderr: Callable[[str], None], limit: "Limit"
    ) -> tuple[int, str | None]:
        """Hand on every line until the child has ended; return its exit code and why it was stopped, if it was.

        Without a desk nothing but the limit stops it. It is asked to end once, and killed after GRACE_S.
        """
        reason: str | None = None
        kill_at = float("inf")
        while (code := self._code()) is None:
            self._hand_on(stdout, stderr)
            if reason is None:
                reason = limit.reached() or (None if desk is None else desk.stopped())
                if reason is not None:
                    self._ask_to_end()
                    kill_at = clock.now() + GRACE_S
            elif clock.now() >= kill_at:
                kill_at = float("inf")
                os.kill(self._process.pid, signal.SIGKILL)
            if desk is None or reason is not None:
                self._await(_LOOK_S)
            else:
                desk.wait(_LOOK_S)
        self._hand_on(stdout, stderr, last=True)
        return code, reason

    def _hand_on(self, stdout: Callable[[str], None], stderr: Callable[[str], None], *, last: bool = False) -> None:
        for tail, take in ((self._stderr, stderr), (self._stdout, stdout)):
            for line in tail.lines(last=last):
                take(line)

    def _ask_to_end(self) -> None:
        """Signal once: restic takes a second SIGINT for an order to leave its lock behind."""
        if not self._signalled:
            self._signalled = True
            os.kill(self._process.pid, self._ends_by)

    def _code(self) -> int | None:
        """Return the exit code, negative for a signal, without giving the process number back."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _await(self, seconds: float) -> None:
        until = clock.now() + seconds
        while self._code() is None and clock.now() < until:
            time.sleep(_NAP_S)


class Limit:
    """How long there may be no sign of progress; `signs` returns a number that grows with each."""

    def __init__(self, seconds: float, reason: str, signs: Callable[[], int] = lambda: 0) -> None:
        self._seconds = seconds
        self._reason = reason
        self._signs = signs
        self._seen = signs()
        self._since = clock.now()

    def reached(self) -> str | None:
        """Return the reason once the time is over."""
        if (signs := self._signs()) != self._seen:
            self._seen, self._since = signs, clock.now()
        return self._reason if clock.now() - self._since >= self._seconds else None


class Tail:
    """A file that another process writes, read in whole lines as far as it has come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(mode=0o600)
        self._file = path.open("rb")
        self._rest = b""

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the lines that have become whole; `last` adds the rest that has no end and will get none."""
        whole: list[bytes] = []
        while chunk := self._file.read(_LONGEST_LINE):
            *ended, self._rest = (self._rest + chunk).split(b"\n")
            whole += ended
            if len(self._rest) > _LONGEST_LINE:
                whole.append(self._rest)
                self._rest = b""
        if last and self._rest:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in whole]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
