"""What a restore is going to bring: the files of the snapshot below the folders that were asked for."""

import json
import os
import posixpath
import random
import re
from dataclasses import dataclass, field
from typing import Any

from agentstore_runner.backup.outcome import refused
from agentstore_runner.backup.output import Output, whole
from agentstore_runner.backup.session import Session, SettledError
from agentstore_runner.contract.backup import Sample

_MOST_TOLD = 20
# Characters that restic's listing stands for others, or that a pattern cannot hold.
_ODD = re.compile("[\x00-\x1f\x7f\ufffd\ud800-\udfff]")
_LETTERS = 200_000  # of all names together, so that they fit into one command line
_TRIES = 20  # looks for files that fit, for each that is wanted


@dataclass
class Plan:
    """The files (everything but folders) with their sizes; None is the size of what is no regular file."""

    include: tuple[str, ...]
    files: dict[str, int | None] = field(default_factory=dict)
    snapshot_seen: bool = False

    def take(self, line: str) -> None:
        """Take one line of `restic ls --json`; other lines are no part of the plan."""
        try:
            node = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(node, dict):
            return
        if "snapshot" in (node.get("struct_type"), node.get("message_type")):
            self.snapshot_seen = True
            return
        path, kind = node.get("path"), node.get("type")
        if isinstance(path, str) and isinstance(kind, str) and kind != "dir" and self._wanted(path):
            self.files[path] = whole(node.get("size")) if kind == "file" else None

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(size or 0 for size in self.files.values())

    def sampled(self, sample: Sample) -> "Plan":
        """Return a plan of some regular files that the sample's seed chooses, of what is too large the smallest alone.

        SettledError if there is none that a pattern can name.
        """
        known = [path for path, size in self.files.items() if size is not None and _ODD.search(path) is None]
        if not known:
            said = "the snapshot holds no regular file whose name a pattern can hold"
            raise SettledError(refused("configuration", "invalid_invocation", said))
        chosen: dict[str, int | None] = {}
        left, letters = sample.bytes, _LETTERS
        some = min(len(known), sample.files * _TRIES)
        for path in random.Random(sample.seed).sample(known, some):  # noqa: S311  (no secret)
            size = self.files[path] or 0
            if len(chosen) < sample.files and size <= left and len(path) <= letters:
                chosen[path], left, letters = size, left - size, letters - len(path)
        if not chosen:
            smallest = min(known, key=lambda path: self.files[path] or 0)
            chosen[smallest] = self.files[smallest]
        return Plan(tuple(chosen), chosen, snapshot_seen=True)

    def conflicts(self, target: str) -> list[str]:
        """Return the files that are in the way in the target."""
        return [path for path in self.files if os.path.lexists(in_target(target, path))]

    def absent(self, target: str, *, sizes: bool) -> list[str]:
        """Return the files that are not in the target after the restore, or, if asked, not in their size."""
        return [path for path, size in self.files.items() if not _arrived(in_target(target, path), size, sizes=sizes)]

    def document(self, conflicts: list[str]) -> dict[str, Any]:
        """Return the plan for the result."""
        found: dict[str, Any] = {"files": len(self.files), "bytes": self.size, "conflicts": len(conflicts)}
        return {**found, "first_conflicts": conflicts[:_MOST_TOLD]} if conflicts else found

    def _wanted(self, path: str) -> bool:
        return not self.include or any(
            path == folder or path.startswith(folder.rstrip("/") + "/") for folder in self.include
        )


def read(session: Session, snapshot: str, include: tuple[str, ...]) -> Plan:
    """Read the plan; SettledError if there is no such snapshot, or nothing in it that was asked for."""
    plan = Plan(tuple(posixpath.normpath(path) for path in include))
    ended = session.call(["ls", "--json", "--no-lock", "--", snapshot], Output(), stdout=plan.take)
    if ended.code != 0 or ended.stopped is not None:
        raise SettledError(ended.failure)
    if not plan.snapshot_seen:
        # restic before 0.16 takes the id for a filter, and a filter that matches nothing for a success.
        raise SettledError(refused("configuration", "snapshot_not_found", f"there is no snapshot {snapshot}"))
    if not plan.files:
        said = "the snapshot holds no file below the paths that were asked for"
        raise SettledError(refused("configuration", "nothing_matched", said))
    return plan


def in_target(target: str, path: str) -> str:
    """Return where a file of the snapshot goes."""
    return path if target == "/" else target.rstrip("/") + path


def _arrived(path: str, size: int | None, *, sizes: bool) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return not sizes or size is None or found.st_size == size
