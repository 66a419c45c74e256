"""The thread that says "still working" until the server has the result, whatever the work itself is doing."""

import json
import threading
from collections.abc import Callable
from typing import Any

from agentstore_runner import clock
from agentstore_runner.backoff import Backoff
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.desk import Desk, Logger
from agentstore_runner.envelope import Beat, Job, beat
from agentstore_runner.shutdown import Shutdown

# What a handler gets to end in after its lease or its run time is over; a cancel brings its own grace.
GRACE_S = 30.0
_SHORTEST_INTERVAL_S = 0.05
_LONGEST_REQUEST_S = 15.0
_LONGEST_PAUSE_S = 3600.0


class Heartbeats:
    """A context in which a job's lease is renewed, and in which its handler learns why to stop."""

    def __init__(
        self,
        job: Job,
        desk: Desk,
        *,
        client: Client,
        shutdown: Shutdown,
        backoff: Backoff,
        log: Logger,
    ) -> None:
        self._job = job
        self._desk = desk
        self._client = client
        self._shutdown = shutdown
        self._backoff = backoff
        self._log = log
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._force_at: float | None = None

    def __enter__(self) -> None:
        if self._job.cancel is not None:
            self._desk.ask_to_cancel(self._job.cancel)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        next_at = clock.now() + self._job.heartbeat_s
        while not self._closed.wait(self._pause(next_at)):
            self._enforce()
            if self._desk.lost is None and clock.now() >= next_at:
                next_at = self._guarded(self._beat)

    def _pause(self, next_at: float) -> float:
        """Return the seconds until there is something to do: a beat, a limit to watch, a handler to force."""
        moments = [] if self._desk.lost is not None else [next_at - clock.now()]
        if self._desk.stopped() is None:
            moments.append(self._desk.seconds_to_limit())
        elif self._force_at is not None:
            moments.append(self._force_at - clock.now())
        return min(max(min(moments, default=_LONGEST_PAUSE_S), 0.0), _LONGEST_PAUSE_S)

    def _enforce(self) -> None:
        """Interrupt a handler that has been told to stop and did not; a shutdown leaves it the time it needs."""
        reason = self._desk.stopped()
        if reason is None or reason == "shutdown" or self._desk.cleared:
            return
        if self._force_at is None:
            grace = self._desk.cancel.grace_s if reason == "cancel" and self._desk.cancel is not None else GRACE_S
            self._force_at = clock.now() + grace
        elif clock.now() >= self._force_at:
            self._force_at = float("inf")
            self._log.warning("the handler did not stop in time (%s) and is interrupted", reason)
            self._shutdown.force()

    def _guarded(self, send: Callable[[], float]) -> float:
        """Return when to beat next; no fault of ours may end this thread before the job ends."""
        try:
            return send()
        except UnansweredError as error:
            return self._later(str(error), error.retry_after)
        except Exception as error:  # noqa: BLE001 - a thread that ends silently loses the lease
            self._log.exception("the heartbeat failed")
            return self._later(f"{type(error).__name__}: {error}", None)

    def _beat(self) -> float:
        content: dict[str, Any] = {"claim_id": self._job.claim_id}
        if (steps := self._desk.steps) is not None:
            content["progress"] = steps
        if counters := self._desk.counters:
            content["counters"] = counters
        # A request that hangs must leave time for another one inside the lease.
        limit_s = min(_LONGEST_REQUEST_S, max(self._job.lease_seconds / 4, 1.0))
        answer = self._client.heartbeat(self._job.table, self._job.id, json.dumps(content).encode(), limit_s=limit_s)
        if not answer.ok:
            return self._refused(answer)
        reply = beat(answer, self._job.lease_seconds)
        self._backoff.reset()
        self._follow(reply)
        return answer.sent_at + max(reply.next_in_s, _SHORTEST_INTERVAL_S)

    def _follow(self, reply: Beat) -> None:
        self._desk.extend(reply.fence)
        if reply.cancel is not None:
            if self._desk.cancel is None:
                self._log.info("a cancel was asked for by %s: %s", reply.cancel.by or "somebody", reply.cancel.reason)
            self._desk.ask_to_cancel(reply.cancel)

    def _refused(self, answer: Answer) -> float:
        if answer.status in (404, 409, 410):
            if self._desk.cleared:
                self._log.info("the job has ended for the server (%s)", answer.sentence)
            else:
                self._log.warning("the job was taken away (%s)", answer.sentence)
            self._desk.lose(answer)
            return float("inf")
        # A revoked token, say, may be replaced before the lease ends; the fence stops the work if it is not.
        return self._later(answer.sentence, answer.retry_after)

    def _later(self, why: str, retry_after: float | None) -> float:
        """Return when to try again, soon enough to get several tries out of what is left of the lease."""
        left = self._desk.seconds_of_lease()
        pause = self._backoff.next(retry_after)
        if left > 0:
            pause = min(pause, max(left / 3, 1.0))
        self._log.warning("heartbeat not acknowledged, next try in %.1f s: %s", pause, why)
        return clock.now() + pause
