"""The runner's memory on disk: the claim in progress, and every report until the server has it."""

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from agentstore_runner.tables import Table

# Reports that no server took are evidence, but not for ever.
KEPT_REFUSALS = 100


class InUseError(Exception):
    """Another process works with this folder."""


@dataclass(frozen=True)
class Held:
    """A claim without its definite answer (`job_id` empty), or with work that had begun."""

    claim_id: str
    request: str
    job_id: str = ""
    table: str = "jobs"


@dataclass(frozen=True)
class Letter:
    """A result to be posted, byte for byte as it is here; `reduced` if it stands in for one that was refused."""

    job_id: str
    claim_id: str
    body: str
    reduced: bool = False
    table: str = "jobs"


_Form = TypeVar("_Form", Held, Letter)


class Spool:
    """One folder for one server and one runner's name, used by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports = folder / "reports"
        self._refused = folder / "refused"
        self._scratch = folder / "scratch"

    @classmethod
    @contextmanager
    def opened(cls, state: Path, server: str, name: str) -> Iterator[Self]:
        """Lock the folder for this process; InUseError if another one has it, OSError if it cannot be written."""
        spool = cls(state / _file_name(urlsplit(server).netloc) / _file_name(name))
        for folder in (spool.folder, spool._reports, spool._refused):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (spool.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(
                    f"another runner uses {spool.folder}: give this one another --name or --state"
                ) from None
            # What a killed process left of its work is of no use to anybody.
            shutil.rmtree(spool._scratch, ignore_errors=True)
            spool._scratch.mkdir(mode=0o700)
            yield spool

    def held(self, table: Table) -> Held | None:
        """Return the claim on a table that a process began and did not bring to an end."""
        return self._read(self._claim(table.name), Held)

    def hold(self, held: Held) -> None:
        """Remember a claim before its first request leaves."""
        self._write(self._claim(held.table), asdict(held))

    def release(self, table: Table) -> None:
        """Forget the claim on a table: it was answered for good, or its report has taken over."""
        self._claim(table.name).unlink(missing_ok=True)

    def letters(self) -> list[Letter]:
        """Return the reports that wait for the server, the oldest first."""
        paths = sorted(self._reports.glob("*.json"), key=lambda path: path.stat().st_mtime)
        return [letter for path in paths if (letter := self._read(path, Letter)) is not None]

    def keep(self, letter: Letter) -> None:
        """Store a report durably before it is posted; it replaces an earlier one of the same job."""
        self._write(self._path(letter), asdict(letter))

    def delivered(self, letter: Letter) -> None:
        """Forget a report that the server has acknowledged."""
        self._path(letter).unlink(missing_ok=True)

    def set_aside(self, letter: Letter, why: str) -> Path:
        """Keep a report that the server will not take, for people to read, and return where; OSError if it cannot."""
        kept = self._refused / self._path(letter).name
        self._write(kept, {"why": why, **asdict(letter)})
        self._path(letter).unlink(missing_ok=True)
        for old in sorted(self._refused.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT_REFUSALS]:
            old.unlink(missing_ok=True)
        return kept

    def new_scratch(self) -> Path:
        """Make an empty folder for one job."""
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def discard(self, scratch: Path) -> None:
        """Remove a scratch folder and everything in it."""
        shutil.rmtree(scratch, ignore_errors=True)

    def _claim(self, table: str) -> Path:
        return self.folder / f"claim-{_file_name(table)}.json"

    def _path(self, letter: Letter) -> Path:
        return self._reports / f"{_file_name(letter.job_id)}.json"

    @staticmethod
    def _read(path: Path, form: type[_Form]) -> _Form | None:
        """Read one of our files; a broken one is put out of the way, because it must not stop every later start."""
        try:
            return form(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            path.replace(path.with_suffix(".broken"))
            return None

    @staticmethod
    def _write(path: Path, document: dict[str, Any]) -> None:
        """Replace a file so that a crash leaves the old one or the new one, never a part."""
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _file_name(text: str) -> str:
    """Return the text as a single, harmless part of a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)[:100] or "_"
