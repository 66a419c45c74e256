"""Where the embedded PostgreSQL keeps its files, and the locks that say who uses it."""

import fcntl
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SOCKET_NAME = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 107  # bytes, from the kernel's sockaddr_un
# Not $TMPDIR: all users of one server must find the same folder. Whose it is gets checked before it is used.
TEMPORARY = Path("/tmp")  # noqa: S108


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot run; the text says why and what to do."""


@dataclass(frozen=True)
class Place:
    """The files of one embedded server, all in `home` but for the socket folder if its path would be too long."""

    home: Path

    @classmethod
    def of(cls, home: Path) -> Self:
        """Return the place of a home folder, however its path is written."""
        return cls(Path(home).resolve())

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.home / "postgres"

    @property
    def log(self) -> Path:
        """What the server and its guardian say."""
        return self.home / "postgres.log"

    @property
    def sockets(self) -> Path:
        """The folder of the socket; beside the data, or in /tmp under a name of its own."""
        folder = self.home / "postgres-run"
        if len(os.fsencode(folder / SOCKET_NAME)) <= LONGEST_SOCKET_PATH:
            return folder
        name = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return TEMPORARY / f"agentstore-{os.geteuid()}-{name}"

    def lock(self, name: str) -> "Lock":
        """Open one of the locks: `users`, `start`, `guard`, `starting` (see `guardian`)."""
        return Lock(self.home / f"postgres.{name}")


class Lock:
    """A flock on a file of its own; the kernel drops it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        owner = path.parent.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            # Root may lend a hand in a user's folder; the user must still be able to open the file afterwards.
            os.fchown(self._descriptor, owner.st_uid, owner.st_gid)

    def take(self, *, shared: bool = False) -> None:
        """Wait for the lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_take(self, *, shared: bool = False) -> bool:
        """Return whether the lock was free for us, without waiting."""
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock back, also for children that inherited the descriptor by a fork."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock back and close its file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
