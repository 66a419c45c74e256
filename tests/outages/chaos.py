"""Runners, enqueuers, a canceller and reapers at work while the database and the web workers die under them."""

import os
import random
import signal
import sys
import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django.db import Error, connection, connections
from psycopg.conninfo import conninfo_to_dict

from agentstore.postgres.base import DatabaseWrapper
from jobs.engine.errors import EngineRefusal
from jobs.models import Agent, AgentJob, AgentTask, BackupJobRun, BackupJobSource
from jobs.services import governance, maintenance
from jobs.services.errors import Refusal
from tests.outages.history import LEASED, WAITING, Call, Event, History, Row
from tests.outages.installation import FAST, IMMEDIATE, Database, Web, add_agent, wait_until
from tests.outages.wire import Lost, Wire

AGENTS, RUNNERS_EACH, BACKLOG = 4, 2, 24
SILENT = "2 seconds"  # after which the time machine lets a lease lapse


@dataclass(frozen=True)
class Table:
    """One leased table as a runner speaks of it."""

    path: str
    kinds: str
    kind: str
    good: str

    def result(self, status: str) -> dict[str, Any]:
        """A result whose words are found again in the row."""
        said = str(uuid.uuid4())
        body: dict[str, Any] = {"status": status}
        if self.path == "jobs":
            body["results"] = {"said": said}
        elif status == self.good:
            body["backup_id_in_repository"] = said
        if status == "failed":
            body |= {"error": "broken", "failure_class": "interrupted"}
        return body


JOBS, TASKS = Table("jobs", "kinds", "echo", "done"), Table("tasks", "task_types", "backup", "succeeded")


class Chaos:
    """One run; everything random comes from `seed`, but for what threads and processes make of it."""

    def __init__(self, database: Database, server: Web, seed: int) -> None:
        self.history, self.counts = History(), Counter[str]()
        self._database, self._server, self._rng = database, server, random.Random(seed)
        self._stop, self._draining = threading.Event(), threading.Event()
        self._failures: list[BaseException] = []
        with database.connect() as setting_up:
            setting_up.execute("INSERT INTO job_kinds (name, schema) VALUES ('echo', '{}') ON CONFLICT DO NOTHING")
            self._agents = [add_agent(setting_up) for _ in range(AGENTS)]
        self._keys = [key for key, _ in self._agents]
        self._wires: list[Wire] = []
        self._held: dict[str, list[tuple[Table, str]]] = {key: [] for key in self._keys}

    def run(self, seconds: float) -> None:
        """Break things for so long, then mend everything, drain, and collect what is stored."""
        actors = [self._enqueue, self._enqueue, self._cancel, self._reap, self._reap]
        for key, bearer in self._agents * RUNNERS_EACH:
            wire = Wire(self._server.port, bearer, self._own_rng(), self.history.calls.append)
            self._wires.append(wire)
            actors.append(Runner(self, key, wire, self._own_rng()).work)
        threads = [threading.Thread(target=self._guarded, args=(actor,), daemon=True) for actor in actors]
        for thread in threads:
            thread.start()
        try:
            # In this thread: the kernel ties a server to the thread that started it.
            self._break_things(monotonic() + seconds)
            for wire in self._wires:
                wire.is_faulty = False
            self._draining.set()
            try:
                wait_until(self._is_drained, "all work has ended")
            except AssertionError as never:
                raise AssertionError(f"left over: {self._left()}\n{self._activity()}\n{stacks(threads)}") from never
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(60)
        assert not self._failures, self._failures
        # Tasks before runs, rows in one order: no two paths may lock each other out.
        assert not [line for line in self._database.log if "deadlock detected" in line]
        assert not [thread for thread in threads if thread.is_alive()], "an actor hangs"
        for wire in self._wires:
            self.counts.update(wire.faults)
        self._collect()

    @property
    def draining(self) -> bool:
        """Whether nothing new is begun and nothing broken any more."""
        return self._draining.is_set()

    @property
    def stopped(self) -> bool:
        """Whether everybody is to end."""
        return self._stop.is_set()

    def rest(self, seconds: float) -> None:
        """Let others work; a stop cuts it short."""
        self._stop.wait(seconds)

    def held(self, key: str) -> list[tuple[Table, str]]:
        """What the runners of an agent took for theirs; zombies aim at it."""
        return self._held[key]

    def _own_rng(self) -> random.Random:
        return random.Random(self._rng.random())

    def _guarded(self, actor: Callable[[], None]) -> None:
        parts = conninfo_to_dict(self._database.url)
        entry = {**connections["default"].settings_dict, "HOST": parts["host"], "NAME": "agentstore",
                 "USER": "agentstore", "CONN_MAX_AGE": 0}  # fmt: skip
        connections["default"] = DatabaseWrapper(entry, "default")
        try:
            actor()
        except BaseException as failure:  # noqa: BLE001  (told by the main thread)
            self._failures.append(failure)
            self._stop.set()
        finally:
            connection.close()

    def _repeat(self, act: Callable[[], None], pause: float) -> None:
        """Act until stopped; what the database refuses while it is away is tried again."""
        while not self.stopped:
            try:
                act()
            except Error:
                connection.close()
                self.counts["refused by the database"] += 1
            self.rest(pause)

    # -- the actors ------------------------------------------------------------------------------------------------

    def _enqueue(self) -> None:
        rng = self._own_rng()

        def act() -> None:
            if self.draining or self._waiting() >= BACKLOG:
                return
            key = rng.choice(self._keys)
            if rng.random() < 0.6:
                job = governance.enqueue(by="chaos", agent=key, kind="echo", spec={"n": rng.random()})
                self.history.enqueued.append(str(job.job_id))
            else:
                run, source = BackupJobRun.objects.create(), BackupJobSource.objects.create()
                agent = Agent.objects.get(principal_key=key)
                task = AgentTask.objects.create(agent=agent, job_run=run, job_source=source, task_payload={})
                self.history.enqueued.append(str(task.pk))

        self._repeat(act, 0.01)

    def _waiting(self) -> int:
        return sum(model.objects.waiting().filter(agent__principal_key__in=self._keys).count()
                   for model in (AgentJob, AgentTask))  # fmt: skip

    def _cancel(self) -> None:
        rng = self._own_rng()

        def act() -> None:
            if self.draining or not self.history.enqueued:
                return
            chosen = uuid.UUID(rng.choice(self.history.enqueued[-BACKLOG:]))
            rows = AgentJob.objects.all() if AgentJob.objects.filter(pk=chosen).exists() else AgentTask.objects.all()
            with suppress(Refusal, EngineRefusal):
                if rng.random() < 0.2:
                    final = governance.force_cancel(rows, chosen, by="chaos", reason="chaos")
                    self.history.cancelled.append(str(final))
                    self.counts["forced"] += 1
                else:
                    done = governance.cancel(rows, chosen, by="chaos", reason="chaos")
                    self.counts[f"cancel {done.outcome}"] += 1
                    if done.outcome == "closed":
                        self.history.cancelled.append(str(done.row_id))

        self._repeat(act, 0.3)

    def _reap(self) -> None:
        def act() -> None:
            # The time machine: nobody waits for a lease or a retry.
            with connection.cursor() as cursor:
                for table, leased in LEASED.items():
                    cursor.execute(
                        f"UPDATE {table} SET heartbeat_at = heartbeat_at - interval '1 hour'"
                        f" WHERE status = ANY(%s) AND heartbeat_at < now() - interval '{SILENT}'", [list(leased)]
                    )  # fmt: skip
                    cursor.execute(
                        f"UPDATE {table} SET not_before = NULL WHERE status = %s AND not_before IS NOT NULL",
                        [WAITING[table]],
                    )
            reaped = maintenance.reap()
            self.counts["reaped"] += reaped.jobs + reaped.tasks

        self._repeat(act, 0.2)

    def _break_things(self, end: float) -> None:
        restarts = {"fast restart": FAST, "immediate restart": IMMEDIATE}
        while monotonic() < end and not self.stopped:
            self.rest(self._rng.uniform(0.5, 2.5))
            fault = self._rng.choice([*restarts, "worker killed", "connections cut"])
            self.counts[fault] += 1
            if fault in restarts:
                self._database.stop(restarts[fault])
                self.rest(self._rng.uniform(0, 1))
                self._database.start()
            elif fault == "worker killed":
                if pids := self._server.worker_pids():
                    with suppress(ProcessLookupError):
                        os.kill(self._rng.choice(pids), signal.SIGKILL)
            else:
                with self._database.connect("postgres") as superuser:
                    superuser.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'agentstore'"
                    )

    # -- the end ---------------------------------------------------------------------------------------------------

    def _is_drained(self) -> bool:
        assert not self._failures, self._failures
        return not self._left()

    def _left(self) -> list[tuple[Any, ...]]:
        """The rows that have not ended: when, by whom and in which state they were seen last."""
        shown = "id::text, status, attempt, claim_id::text, heartbeat_at, not_before, cancel_requested_at"
        sql = (
            f"SELECT {shown} FROM agent_jobs WHERE principal_key = ANY(%s) AND status IN ('queued', 'running')"
            f" UNION ALL SELECT {shown} FROM agent_tasks WHERE agent_id IN"
            " (SELECT id FROM agents WHERE principal_key = ANY(%s)) AND status IN ('pending', 'claimed', 'running')"
        )
        return self._database.ask(sql, self._keys, self._keys)

    def _activity(self) -> list[tuple[Any, ...]]:
        shown = "pid, state, wait_event, pg_blocking_pids(pid), xact_start, left(query, 90)"
        return self._database.ask(f"SELECT {shown} FROM pg_stat_activity WHERE usename = 'agentstore'")

    def _collect(self) -> None:
        mine = "agent_id IN (SELECT id FROM agents WHERE principal_key = ANY(%s))"
        for table, agent, said, finished, chosen in (
            ("agent_jobs", "principal_key", "results", "finished_at", "principal_key = ANY(%s)"),
            ("agent_tasks", "agent_id", "backup_id_in_repository", "completed_at", mine),
        ):
            rows = self._database.ask(
                f"SELECT id::text, root_id::text, {agent}::text, status, claim_id::text, attempt, max_attempts, {said},"
                f" {finished}, heartbeat_at, ended_by FROM {table} WHERE {chosen}", self._keys
            )  # fmt: skip
            self.history.rows += [Row(table, *row) for row in rows]
            events = self._database.ask(
                f"SELECT pgh_id, id::text, {agent}::text, status, claim_id::text FROM {table[:-1]}_events"
                f" WHERE {chosen} ORDER BY pgh_id", self._keys
            )  # fmt: skip
            self.history.events += [Event(table, *event) for event in events]


class Runner:
    """One program of an agent, with a memory for what it should have forgotten."""

    def __init__(self, chaos: Chaos, key: str, wire: Wire, rng: random.Random) -> None:
        self._chaos, self._key, self._wire, self._rng = chaos, key, wire, rng
        self._dead: list[tuple[Table, str, str]] = []  # rows and claims of its former lives

    def work(self) -> None:
        """Claim, beat and finish; now and then fall silent, and come back as a zombie."""
        while not self._chaos.stopped:
            if not self._chaos.draining:
                self._wire.deliver_late()
                if self._dead and self._rng.random() < 0.2:
                    self._haunt()
            self._one_row(self._rng.choice((JOBS, TASKS)))

    def _one_row(self, table: Table) -> None:
        claim_id = str(uuid.uuid4())
        program = {"name": "chaos", "version": "1.0.0"}
        body = {"claim_id": claim_id, table.kinds: [table.kind], "runner": program}
        claimed = self._until_answered("POST", f"{table.path}/claim", "claim", "", body)
        if claimed is None or claimed.status not in (200, 201):
            self._chaos.rest(0.05)
            return
        row = claimed.answer["id"]
        held = self._chaos.held(self._key)
        held.append((table, row))
        if not self._chaos.draining and self._rng.random() < 0.08:
            self._chaos.counts["silent death"] += 1
            self._dead.append((table, row, claim_id))
            return
        status = "failed" if not self._chaos.draining and self._rng.random() < 0.15 else table.good
        for _ in range(self._rng.randrange(3)):
            beat = self._until_answered("POST", f"{table.path}/{row}/heartbeat", "heartbeat", row,
                                        {"claim_id": claim_id})  # fmt: skip
            if beat is None or beat.status != 200:
                status = ""
                break
            if beat.answer["desired"] == "cancel":
                status = "cancelled"
        if status:
            body = {"claim_id": claim_id, **table.result(status)}
            self._until_answered("PUT", f"{table.path}/{row}/result", "result", row, body)
        held.remove((table, row))
        if self._rng.random() < 0.1:
            self._dead.append((table, row, claim_id))

    def _haunt(self) -> None:
        """Write to what was its own once, and under the same old claim to what its agent holds now."""
        self._chaos.counts["zombie"] += 1
        table, row, claim_id = self._rng.choice(self._dead)
        others = [other for at, other in list(self._chaos.held(self._key)) if at is table and other != row]
        for target in [row, *others[:1]]:
            for method, what, body in (
                ("POST", "heartbeat", {"claim_id": claim_id}),
                ("PUT", "result", {"claim_id": claim_id, **table.result(table.good)}),
            ):
                with suppress(Lost):
                    self._wire.send(method, f"{table.path}/{target}/{what}", what, target, body)

    def _until_answered(self, method: str, path: str, what: str, row: str, body: dict[str, Any]) -> Call | None:
        """Ask with the same words until the answer is none of passing trouble; None when stopped."""
        while not self._chaos.stopped:
            try:
                call = self._wire.send(method, path, what, row, body)
            except Lost:
                self._chaos.rest(0.02)
                continue
            if call.status != 503:
                return call
            self._chaos.rest(0.05)
        return None


def stacks(threads: Sequence[threading.Thread]) -> str:
    """Where each of the threads that live is at this moment."""
    frames = sys._current_frames()
    living = [frames[thread.ident] for thread in threads if thread.ident in frames]
    return "\n".join("".join(traceback.format_stack(frame)[-4:]) for frame in living)


def chaos(database: Database, server: Web, *, seed: int, seconds: float) -> Chaos:
    """One run, told in one line."""
    run = Chaos(database, server, seed)
    print(f"chaos: seed {seed}, {seconds:g} s", flush=True)
    run.run(seconds)
    told = {"rows": len(run.history.rows), "requests": len(run.history.calls), **dict(sorted(run.counts.items()))}
    print(", ".join(f"{name} {count}" for name, count in told.items()), flush=True)
    return run
