"""The restic that is installed here, and what its version can do."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentstore_runner.backup.child import environment
from agentstore_runner.contract import backup_words as words

INSTALL_HINT: Final = "install restic 0.14 or later (apt-get install restic), or name it in backups.toml"
LEAST: Final = (0, 14, 0)
RECOMMENDED: Final = (0, 17, 1)
_OVERWRITE: Final = (0, 17, 0)
_SECONDS: Final = 30


class EngineError(Exception):
    """There is no restic that can be used; `code` is of the closed list."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Engine:
    """One restic."""

    path: str
    version: tuple[int, int, int]

    @property
    def release(self) -> str:
        """Return the version as text."""
        return ".".join(map(str, self.version))

    @property
    def chooses_overwrite(self) -> bool:
        """Say whether `restore` knows --overwrite and --delete."""
        return self.version >= _OVERWRITE

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the requirements of payloads that this version meets."""
        lacking = () if self.chooses_overwrite else (words.IF_CHANGED, words.DELETE_EXTRA)
        return words.REQUIREMENTS - set(lacking)


def find(name: str, environ: Mapping[str, str]) -> Engine:
    """Return the restic of this name or path; EngineError if it is missing, does not start or is too old."""
    path = shutil.which(name, path=environ.get("PATH"))
    if path is None:
        raise EngineError("engine_missing", f"{name} was not found: {INSTALL_HINT}")
    try:
        said = subprocess.run(
            [path, "version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
            env=environment(environ, {}), text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("engine_missing", f"{path} does not start: {error}") from None
    version = re.match(r"restic (\d+)\.(\d+)\.(\d+)", said.stdout)
    if version is None:
        raise EngineError("engine_missing", f"{path} does not say its version: {(said.stdout or said.stderr)[:200]!r}")
    found = Engine(path, (int(version[1]), int(version[2]), int(version[3])))
    if found.version < LEAST:
        raise EngineError("engine_too_old", f"{path} is version {found.release}: {INSTALL_HINT}")
    return found
