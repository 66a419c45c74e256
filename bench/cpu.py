"""Time on a processor, in nanoseconds, as the kernel's scheduler counts it."""

from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


class Meter:
    """Measures the processes below some roots; one that ends meanwhile is left out, one that begins counts in full."""

    def __init__(self, *roots: int) -> None:
        self._roots = roots
        self._before = self._now()

    def microseconds(self) -> float:
        """What the processes used since the meter was made."""
        return sum(used - self._before.get(pid, 0) for pid, used in self._now().items()) / 1000

    def _now(self) -> dict[int, int]:
        return {pid: _used(pid) for pid in family(self._roots)}


def _used(pid: int) -> int:
    """The time of all threads of a process; 0 when it has ended."""
    used = 0
    for thread in (PROC / str(pid) / "task").glob("*"):
        try:
            used += int((thread / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            continue
    return used


def family(roots: Iterable[int]) -> set[int]:
    """The roots and everything below them."""
    parents: dict[int, int] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    family, fresh = set(roots), set(roots)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - family
        family |= fresh
    return family
