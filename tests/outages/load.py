"""Runners that claim, beat and finish over HTTP as fast as they are answered, and remember every answer."""

import json
import threading
import uuid
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tests.outages.installation import Answer, Database, add_agent, add_jobs, ask, wait_until

PROBLEM = "application/problem+json"


@dataclass
class Load:
    """What the runners did and heard; each list only grows."""

    port: int
    acknowledged: dict[str, Any] = field(default_factory=dict)  # job id → the results that were answered with 200
    refusals: list[tuple[float, Answer]] = field(default_factory=list)  # when the request was sent, and what came
    waits: list[tuple[float, float]] = field(default_factory=list)  # when a request was sent, how long its answer took
    strange: list[object] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def unavailable(self) -> int:
        """How often 503 was answered so far."""
        return len(self.refusals)

    def progress(self, of: int) -> Any:
        """A condition: `of` more results are acknowledged than now."""
        goal = len(self.acknowledged) + of
        return lambda: self._sound() and len(self.acknowledged) >= goal

    def outage(self, of: int) -> Any:
        """A condition: `of` more requests were refused than now."""
        goal = self.unavailable + of
        return lambda: self._sound() and self.unavailable >= goal

    def _sound(self) -> bool:
        assert not self.strange, self.strange
        return True

    def start(self, bearers: list[str]) -> None:
        """One runner per bearer."""
        for bearer in bearers:
            self._threads.append(threading.Thread(target=self._work, args=(bearer,), daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """End the runners after the request that they are at."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request hangs"

    def _work(self, bearer: str) -> None:
        try:
            while not self._stop.is_set():
                claim = {
                    "claim_id": str(uuid.uuid4()), "kinds": ["echo"], "runner": {"name": "load", "version": "1.0.0"},
                }  # fmt: skip
                job = self._until_answered("POST", "jobs/claim", bearer, claim)
                if job is None:
                    return
                held, path = {"claim_id": claim["claim_id"]}, f"jobs/{job['id']}"
                self._until_answered("POST", f"{path}/heartbeat", bearer, held)
                results = {"said": str(uuid.uuid4())}
                told = self._until_answered(
                    "PUT", f"{path}/result", bearer, {**held, "status": "done", "results": results}
                )
                if told is not None:
                    self.acknowledged[job["id"]] = results
        except Exception as error:  # noqa: BLE001  (the test looks at what the threads met)
            self.strange.append(error)

    def _until_answered(self, method: str, path: str, bearer: str, body: Any) -> Any:
        """Ask again while it is 503; None when stopped before."""
        while not self._stop.is_set():
            sent = monotonic()
            status, headers, text = ask(method, self.port, f"/api/v1/{path}", bearer=bearer, body=body)
            self.waits.append((sent, monotonic() - sent))
            if status in (200, 201):
                return json.loads(text)
            self.refusals.append((sent, (status, headers, text)))
            if status != 503:
                self.strange.append((method, path, status, text[:500]))
                return None
            self._stop.wait(0.05)
        return None


def begin_load(database: Database, port: int, *, runners: int = 6, jobs: int = 5000) -> Load:
    """Runners at work, the first of their results acknowledged."""
    load, bearers = Load(port), []
    with database.connect() as connection:
        for _ in range(runners):
            agent, bearer = add_agent(connection)
            add_jobs(connection, agent, jobs // runners)
            bearers.append(bearer)
    load.start(bearers)
    wait_until(load.progress(2 * runners), "the load begins")
    return load


def assert_clean(load: Load, database: Database) -> None:
    """Nothing but 503 was refused, each as a problem with Retry-After, and what was acknowledged is stored."""
    assert not load.strange
    for _, (status, headers, text) in load.refusals:
        assert status == 503
        assert headers["content-type"] == PROBLEM
        assert int(headers["retry-after"]) > 0
        assert json.loads(text)["code"] == "unavailable"
    stored = dict(database.ask("SELECT id::text, results FROM agent_jobs WHERE status = 'done'"))
    assert {job: stored.get(job) for job in load.acknowledged} == load.acknowledged
