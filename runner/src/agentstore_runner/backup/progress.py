"""What the server is told while restic works, and no more often than it wants to hear it."""

import posixpath

from agentstore_runner import clock
from agentstore_runner.backup.output import Output, whole
from agentstore_runner.contract.backup import Reporting
from agentstore_runner.handlers import Desk
from agentstore_runner.redaction import Redactor


class Progress:
    """Tells the desk of a run, at most once in `progress_s` seconds."""

    def __init__(self, desk: Desk, reporting: Reporting, redactor: Redactor, title: str) -> None:
        self._desk = desk
        self._reporting = reporting
        self._redactor = redactor
        self._title = title
        self._next_at = 0.0

    def backup(self, output: Output) -> None:
        """Tell of a backup."""
        status = output.status
        counters = {
            "bytes_processed": whole(status.get("bytes_done")),
            "files_processed": whole(status.get("files_done")),
            "files_skipped": len(output.items),
        }
        self._tell(output, counters)

    def restore(self, output: Output) -> None:
        """Tell of a restore, whose engine reports since 0.16."""
        status = output.status
        restored = whole(status.get("bytes_restored"))
        counters = {
            "bytes_processed": restored + whole(status.get("bytes_skipped")),
            "bytes_written": restored,
            "files_processed": whole(status.get("files_restored")) + whole(status.get("files_skipped")),
            "files_skipped": len(output.items),
        }
        self._tell(output, counters)

    def _tell(self, output: Output, counters: dict[str, int]) -> None:
        if clock.now() < self._next_at or not output.status:
            return
        self._next_at = clock.now() + self._reporting.progress_s
        status, done = output.status, counters["bytes_processed"]
        # A file that grows makes restic read more than it has announced.
        total = max(whole(status.get("total_bytes")), done)
        current = status.get("current_files")
        path = str(current[0]) if isinstance(current, list) and current else ""
        progress: dict[str, int | str] = {
            "phase": self._title,
            "title": self._title,
            "done": done,
            "total": total,
            "files_total": whole(status.get("total_files")),
        }
        if path and self._reporting.paths != "none":
            progress["current"] = self._redactor.text(shown(path, self._reporting))[:500]
        self._desk.measure(progress, counters)


def shown(path: str, reporting: Reporting) -> str:
    """Return as much of a path as the server wants to know."""
    match reporting.paths:
        case "full":
            return path
        case "basename":
            return posixpath.basename(path)
        case "none":
            return ""
