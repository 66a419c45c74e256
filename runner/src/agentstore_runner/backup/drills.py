"""The folder of restore drills: this machine's own administrator names it, and each drill leaves it empty."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agentstore_runner.backup.configuration import Configuration
from agentstore_runner.backup.outcome import refused
from agentstore_runner.backup.session import SettledError

UNNAMED: Final = "backups.toml of this machine names no drill_folder, so no restore can be rehearsed here"
_PREFIX: Final = "drill-"
_OTHERS_WRITE: Final = 0o022


@contextmanager
def place(configured: Configuration, warn: Callable[[str], None]) -> Iterator[Path]:
    """Give an empty folder inside, which is gone afterwards whatever happens; what a dead drill left goes first.

    Raises SettledError if there is no folder that can be trusted. What cannot be removed is told to `warn`.
    """
    root = usable(configured)
    for left in root.glob(f"{_PREFIX}*"):
        with suppress(OSError), _held(left):
            _remove(left)
    try:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    except OSError as error:
        raise _unusable(f"{root}: {error.strerror}") from None
    try:
        with _held(made):
            yield made
    finally:
        _remove(made)
        if os.path.lexists(made):
            warn(f"{made} could not be removed; it holds restored files")


def usable(configured: Configuration) -> Path:
    """Return the folder that the configuration names; SettledError if it names none, or one that others may write."""
    root = configured.drill_folder
    if root is None:
        raise _unusable(UNNAMED)
    try:
        found = root.lstat()
    except OSError as error:
        raise _unusable(f"the drill_folder {root} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise _unusable(f"the drill_folder {root} is not a folder")
    # Somebody else could put a link in the place of what is restored, or read it.
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise _unusable(f"the drill_folder {root} must belong to the runner's user and be writable by nobody else")
    return root


def check_space(root: Path, needed: int) -> None:
    """Raise SettledError where so many bytes would fill the disk of the folder."""
    free = shutil.disk_usage(root).free
    if needed > free // 10 * 9:
        said = f"the sample of {needed} bytes does not fit: {free} bytes are free for drills"
        raise SettledError(refused("resource", "target_no_space", said))


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder as one that a living drill uses; OSError if another one does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder with everything in it, also folders that were restored as read-only."""
    with suppress(OSError):
        folder.chmod(stat.S_IRWXU)
    for where, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(where, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _unusable(said: str) -> SettledError:
    return SettledError(refused("configuration", "drill_folder_unusable", said))
