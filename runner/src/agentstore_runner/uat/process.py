"""The supervisor's side of the child: its environment, its events, and its end with everything it started."""

import contextlib
import fcntl
import json
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

_MARK: Final = "AGENTSTORE_UAT_CHILD"
_KEPT_NAMES = (
    "PATH LANG LANGUAGE TZ SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS VIRTUAL_ENV PYTHONPATH FONTCONFIG_PATH "
    "FONTCONFIG_FILE LD_LIBRARY_PATH HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy"
)
_KEPT: Final = frozenset(_KEPT_NAMES.split())
_END_SECONDS: Final = 5.0
_PREFIX: Final = "uat-"
_LOCK: Final = "runner.lock"
_SETTLED_SECONDS: Final = 60.0
# A socket's path has 107 characters at most, and Chromium's own part of it and the folder's name take about 60.
_LONGEST_PARENT: Final = 45


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with a path that leaves room for Chromium's socket, wherever TMPDIR points."""
    parent = short_place()
    _remove_abandoned(Path(parent))
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder,
        (Path(folder) / _LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)


def short_place() -> str:
    """The folder for temporary ones, or a usual one whose path is shorter."""
    usual = tempfile.gettempdir()
    places = [place for place in (usual, "/tmp", "/var/tmp") if len(place) <= _LONGEST_PARENT]  # noqa: S108  # made 0700
    return next((place for place in places if os.access(place, os.W_OK | os.X_OK)), usual)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of runners that were killed: nobody holds their lock any more."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open() as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _SETTLED_SECONDS:
                continue  # somebody else's, or just being made
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def environment(environ: Mapping[str, str], home: Path, mark: str) -> dict[str, str]:
    """Return what the child may see: no token, no secret, a home of its own.

    The path of `home` must be short: Chromium opens a socket below it, and a socket's path has 107 characters at most.
    """
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(("LC_", "PLAYWRIGHT_"))}
    places = {"HOME": home, "TMPDIR": home, "XDG_CONFIG_HOME": home / ".config", "XDG_CACHE_HOME": home / ".cache"}
    return {**kept, **{name: str(path) for name, path in places.items()}, _MARK: mark, "PYTHONUNBUFFERED": "1"}


class Child:
    """One child process in a session of its own."""

    def __init__(self, task: Mapping[str, Any], home: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._rest = b""
        self.complaints = home / "child.log"
        with self.complaints.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentstore_runner.uat.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=home,
                env=environment(os.environ, home, self._mark),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        with contextlib.suppress(BrokenPipeError):  # it died at once; the end of its output says so
            self._stdin.write(json.dumps({**task, "parent": os.getpid()}).encode())
            self._stdin.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def events(self, seconds: float) -> list[dict[str, Any]] | None:
        """Return what arrives within these seconds, or None when the output has ended."""
        if not self._selector.select(seconds):
            return []
        received = os.read(self._stdout.fileno(), 1 << 16)
        if not received:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        """Kill the child and whatever it started, and wait until nothing is left; harmless when it has ended."""
        # The browser has a process group of its own; the mark in the environment finds it, whoever its parent is now.
        # It is looked for before the first kill, because a process that is about to end shows no environment any more.
        family = _Family(self._mark)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        family.end()
        self._selector.close()
        self._stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


class _Family:
    """The processes of one mark, held by descriptors, so that a number that is used again is never killed."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._handles: dict[int, int] = {}
        self._look()

    def end(self) -> None:
        """Kill until a look finds nobody new and everybody has ended, for a few seconds at most."""
        deadline = time.monotonic() + _END_SECONDS
        while self._look() | self._living(max(0.0, deadline - time.monotonic())) and time.monotonic() < deadline:
            pass
        for handle in self._handles.values():
            os.close(handle)

    def _look(self) -> bool:
        """Take hold of processes that were not known; says whether there were any."""
        new = [pid for pid in marked(self._mark) if pid not in self._handles]
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                self._handles[pid] = os.pidfd_open(pid)
        return bool(new)

    def _living(self, seconds: float) -> bool:
        """Kill everybody and wait for the first to end; says whether somebody still lives."""
        living = []
        for handle in self._handles.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not select.select([handle], [], [], 0)[0]:
                living.append(handle)
        if living:
            select.select(living, [], [], seconds)
        return bool(living)


def marked(mark: str) -> Iterator[int]:
    """Yield the processes that carry a mark in their environment (Linux; elsewhere none)."""
    needle = f"{_MARK}={mark}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes():
                yield int(entry.name)
