"""What the engine's tests share: one view of both leased tables, and races over real connections."""

import itertools
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from jobs.engine.answers import Holder, Leasing
from jobs.models import Agent, AgentJob, AgentTask, BackupJobRun, BackupJobSource
from tests.factories import AgentFactory, AgentJobFactory, AgentTaskFactory

ticks = itertools.count()


@dataclass(frozen=True)
class Queue:
    """One leased table as the suite sees it."""

    model: Any
    kind: str
    other_kind: str

    @property
    def rows(self) -> Any:
        return self.model.objects.all()

    @property
    def life(self) -> Any:
        return self.model.lifecycle

    @property
    def good(self) -> str:
        return self.life.finished[0]

    def make(self, agent: Agent | None = None, **columns: Any) -> Any:
        """A waiting row; each is queued a little later than the one before."""
        factory = AgentJobFactory if self.model is AgentJob else AgentTaskFactory
        moment = timezone.now() - timedelta(days=1) + timedelta(milliseconds=next(ticks))
        return factory(
            **{"agent": agent or AgentFactory(), self._kind: self.kind, self.life.queued_at: moment} | columns
        )

    def insert(self, agent: Agent, count: int) -> None:
        """Many waiting rows at once."""
        if self.model is AgentJob:
            rows = [AgentJob(agent=agent, kind=self.kind) for _ in range(count)]
        else:
            run, source = BackupJobRun.objects.create(), BackupJobSource.objects.create()
            rows = [AgentTask(agent=agent, job_run=run, job_source=source, task_payload={}) for _ in range(count)]
        self.model.objects.bulk_create(rows)

    def key(self, agent: Agent) -> object:
        return agent.principal_key if self.model is AgentJob else agent.pk

    def claim(self, agent: Agent, claim_id: uuid.UUID | None = None, **arguments: Any) -> Leasing[Any] | None:
        given = {"kinds": [self.kind], "digest": "request"} | arguments
        return self.model.objects.claim(claim_id or uuid.uuid4(), agent=self.key(agent), **given)

    def hold(self, agent: Agent | None = None, **columns: Any) -> tuple[Any, Holder]:
        """A leased row and its holder."""
        agent = agent or AgentFactory()
        row = self.make(agent, **columns)
        claim_id = uuid.uuid4()
        leasing = self.claim(agent, claim_id, row_id=row.pk)
        assert leasing is not None
        assert leasing.is_new
        return leasing.row, Holder(row.pk, claim_id, self.key(agent))

    def holder(self, row: Any) -> Holder:
        """Who holds a leased row."""
        return Holder(row.pk, row.claim_id, self.key(row.agent))

    def insert_silent(self, count: int) -> set[uuid.UUID]:
        """Leased rows of as many agents, all fallen silent; whatever waited before is among them."""
        agents = Agent.objects.bulk_create(
            Agent(pk=uuid.uuid4(), principal_key=f"silent-{uuid.uuid4()}") for _ in range(count)
        )
        for agent in agents:
            self.insert(agent, 1)
        silent = timezone.now() - timedelta(hours=1)
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {self.model._meta.db_table} SET status = '{self.life.leased[0]}', heartbeat_at = %s,"
                f" claim_id = gen_random_uuid(), {self.life.claimed_at} = %s WHERE status = %s RETURNING id",
                [silent, silent, self.life.waiting],
            )
            return {row_id for (row_id,) in cursor.fetchall()}

    def finish(self, holder: Holder, status: str | None = None, **arguments: Any) -> tuple[Any, bool]:
        status = status or self.good
        failed = status == self.life.failed
        given = {
            "digest": "body",
            "failure_class": "internal" if failed else None,
            "error": "broken" if failed else None,
        }
        return self.model.objects.finish(holder, status, **given | arguments)

    def fail(self, holder: Holder, failure_class: str, **arguments: Any) -> Any:
        return self.finish(holder, self.life.failed, failure_class=failure_class, error="broken", **arguments)[0]

    def fall_silent(self, **where: Any) -> None:
        """Let every leased row's last sign of life lie an hour back."""
        self.rows.leased().filter(**where).update(heartbeat_at=timezone.now() - timedelta(hours=1))

    def end(self, row: Any, status: str, **columns: Any) -> None:
        """Close a row as a plain SQL client would."""
        failure = {"failure_class": "internal", self.life.error: "broken"} if status == self.life.failed else {}
        self.rows.filter(pk=row.pk).update(status=status, **{self.life.finished_at: timezone.now()} | failure | columns)

    def stored(self, row: Any) -> Any:
        return self.model.objects.get(pk=getattr(row, "pk", row))

    @property
    def _kind(self) -> str:
        return self.life.kind


JOBS = Queue(AgentJob, "echo", "other")
TASKS = Queue(AgentTask, "backup", "restore")


_idle: list[BaseDatabaseWrapper] = []  # connections of past racers, for the next ones


def race(*calls: Callable[[], Any], patience: float = 60) -> list[Any]:
    """The answers of calls that start together, each on a connection of its own; an exception is an answer.

    A call that takes longer than `patience` seconds hangs.
    """
    barrier, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            with suppress(IndexError):
                connections["default"] = _idle.pop()
            connection.ensure_connection()
            barrier.wait(30)
            answers[place] = call()
        except Exception as error:  # noqa: BLE001  (an answer like any other)
            answers[place] = error
        finally:
            connection.inc_thread_sharing()
            _idle.append(connections["default"])

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
        assert not thread.is_alive(), "a racer hangs"
    return answers


def close_racers() -> None:
    """Close the connections of past racers: a database that is in use cannot be dropped."""
    while _idle:
        _idle.pop().close()


def unexpected(answers: list[Any], *known: type) -> list[Any]:
    """The exceptions among the answers that are not of the known kinds."""
    return [answer for answer in answers if isinstance(answer, Exception) and not isinstance(answer, known)]
