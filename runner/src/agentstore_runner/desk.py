"""The handler's desk: why to stop, how far the work is, and where its files go."""

import logging
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentstore_runner import clock, direct_uploads
from agentstore_runner.backoff import Backoff
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.envelope import Cancel, Job
from agentstore_runner.redaction import Redactor

# A file is worth a minute of trying; after that the work itself matters more.
UPLOAD_PATIENCE_S = 60.0
# Files of a text type are redacted before they leave; larger ones are not evidence but dumps, and stay here.
LARGEST_TEXT = 4 * 1024 * 1024
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "image/svg+xml")

Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


@dataclass(frozen=True)
class Note:
    """A file that did not reach the server, and why."""

    artifact: str
    problem: str


class Desk:
    """The supervisor's side of `handlers.Desk`, for one job; used by the main thread and the heartbeat's."""

    def __init__(
        self,
        job: Job,
        *,
        client: Client,
        scratch: Path,
        redactor: Redactor,
        backoff: Callable[[], Backoff],
        log: Logger,
    ) -> None:
        self._job = job
        self._scratch = scratch
        self._client = client
        self._redactor = redactor
        self._backoff = backoff
        self._log = log
        self._changed = threading.Condition()
        self._reason: str | None = None
        self._fence = job.fence
        self.cleared = False
        self.lost: Answer | None = None
        self.cancel: Cancel | None = None
        self.steps: dict[str, int | str] | None = None
        self.counters: dict[str, int] = {}
        self.notes: list[Note] = []

    def stopped(self) -> str | None:
        """Return None, or why to stop; the first reason stays."""
        with self._changed:
            return self._stopped()

    def wait(self, seconds: float) -> str | None:
        """Sleep at most so many seconds; return early with the reason to stop."""
        until = clock.now() + seconds
        with self._changed:
            while (reason := self._stopped()) is None and (left := until - clock.now()) > 0:
                self._changed.wait(min(left, max(self._next_limit() - clock.now(), 0.0)))
            return reason

    def progress(self, done: int, total: int, title: str) -> None:
        """Remember how far the work is; the next heartbeat carries it."""
        self.steps = {"done": done, "total": total, "title": self._redactor.text(title)}

    def measure(self, progress: Mapping[str, int | str], counters: Mapping[str, int]) -> None:
        """Remember how far a backup or restore is; the next heartbeat carries it."""
        words = {
            name: self._redactor.text(value) if isinstance(value, str) else value for name, value in progress.items()
        }
        self.steps, self.counters = words, dict(counters)

    def log(self, message: str) -> None:
        """Write one redacted line to the runner's log."""
        self._log.info("%s", message)

    def attach(self, path: Path, *, name: str, content_type: str) -> None:
        """Upload a file now, with retries; a failure becomes a note in the result and never an exception."""
        name = self._redactor.text(name)
        try:
            problem = self._upload(self._safe(path, content_type), name, content_type)
        except (OSError, ValueError) as error:
            problem = self._redactor.text(f"{type(error).__name__}: {error}")
        if problem is not None:
            self.notes.append(Note(name, problem))
            self._log.warning("the file %s was not uploaded: %s", name, problem)

    def stop(self, reason: str) -> None:
        """Tell the handler to stop, unless it has been told already."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def lose(self, answer: Answer) -> None:
        """Tell the handler that the server has taken the job away: nothing more may be uploaded."""
        self.lost = answer
        self.stop("lease")

    def clear(self) -> None:
        """Note that the handler has left: from here on only its report matters."""
        self.cleared = True

    def ask_to_cancel(self, cancel: Cancel) -> None:
        """Tell the handler that a person wants the work to end."""
        self.cancel = self.cancel or cancel
        self.stop("cancel")

    def extend(self, fence: float) -> None:
        """Move the fence to where the last acknowledged heartbeat has put it."""
        with self._changed:
            self._fence = fence
            self._changed.notify_all()

    def seconds_to_limit(self) -> float:
        """Return the seconds until fence or deadline, whichever comes first; negative afterwards."""
        with self._changed:
            return self._next_limit() - clock.now()

    def seconds_of_lease(self) -> float:
        """Return the seconds until the fence; negative afterwards."""
        with self._changed:
            return self._fence - clock.now()

    def _next_limit(self) -> float:
        return min(self._fence, self._job.deadline)

    def _stopped(self) -> str | None:
        if self._reason is None and clock.now() >= self._next_limit():
            self._reason = "lease" if clock.now() >= self._fence else "deadline"
        return self._reason

    def _safe(self, path: Path, content_type: str) -> Path:
        """Return the file, or a redacted copy of a text; ValueError if it is too large to be redacted."""
        if not content_type.lower().startswith(_TEXT_TYPES):
            return path
        if path.stat().st_size > LARGEST_TEXT:
            raise ValueError(f"a text of more than {LARGEST_TEXT} bytes is not uploaded")
        text = self._redactor.text(path.read_text(encoding="utf-8", errors="replace"))
        with tempfile.NamedTemporaryFile("w", dir=self._scratch, delete=False, encoding="utf-8") as copy:
            copy.write(text)
        return Path(copy.name)

    def _upload(self, path: Path, name: str, content_type: str) -> str | None:
        """Return None when the server has the file, or why it has not."""
        until, backoff = clock.now() + UPLOAD_PATIENCE_S, self._backoff()
        while True:
            if self.lost is not None:
                return f"the job was taken away ({self.lost.sentence})"
            try:
                answer = self._send(path, name, content_type)
                if answer.ok:
                    # The runner's own record of the evidence: the client has compared it with the bytes it sent.
                    self._log.info("uploaded %s, sha256 %s", name, answer.body["sha256"])
                    return None
                return answer.sentence
            except UnansweredError as error:
                pause = backoff.next(error.retry_after)
                # A handler that has been told to stop gets its files one try each: it is short of time.
                if self.stopped() is not None or clock.now() + pause > until:
                    return f"{error}"
            self.wait(pause)

    def _send(self, path: Path, name: str, content_type: str) -> Answer:
        job = self._job
        if path.stat().st_size >= direct_uploads.LEAST:
            answer = direct_uploads.send(self._client, job.id, job.claim_id, path, name=name)
            if answer is not None:
                return answer
        return self._client.artifact(job.id, job.claim_id, path, name=name, content_type=content_type)
