"""The peak of resident memory, as the kernel counts it."""

from bench.cpu import PROC, family


class Peak:
    """How much the processes below a root needed at most, beyond what they held when the peak was made."""

    def __init__(self, root: int) -> None:
        self._pids = family([root])
        for pid in self._pids:
            (PROC / str(pid) / "clear_refs").write_text("5")  # the peak is what is resident now
        self._before = self._highest()

    def mebibytes(self) -> float:
        """The sum of each process's own peak, less that before."""
        return (self._highest() - self._before) / 1024

    def _highest(self) -> int:
        return sum(_kibibytes(pid) for pid in self._pids)


def _kibibytes(pid: int) -> int:
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise SystemExit(f"The kernel tells no peak of process {pid}.")
