"""Random histories on the real database, against a model of the rules in plain Python."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs.engine.answers import Cancel, Holder
from jobs.engine.errors import AgentBusy, Ended, EngineRefusal, LeaseLost, ResultMismatch
from jobs.services import governance
from jobs.services.errors import AlreadyRetried, Invalid
from tests.engine.queues import JOBS, TASKS, Queue
from tests.engine.test_engine_retries import EXPECTED_MINUTES
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

PICK = st.integers(0, 10**6)


@dataclass
class Row:
    """What the model knows of one attempt."""

    pk: uuid.UUID
    root: uuid.UUID
    agent: int
    priority: int
    queued_at: datetime
    status: str
    attempt: int = 1
    claim_id: uuid.UUID | None = None
    delayed: bool = False
    silent: bool = False
    asked: bool = False
    failure_class: str | None = None
    ended_by: str | None = None
    digest: str | None = None
    retried: bool = False


class Chains(RuleBasedStateMachine):
    """Two agents, any order of calls; `queue` is set by the test."""

    queue: Queue

    @initialize()
    def begin(self) -> None:
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.agents = [AgentFactory(), AgentFactory()]
        self.rows: list[Row] = []

    def teardown(self) -> None:
        if hasattr(self, "atomic"):
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    # -- the model's own questions --

    @property
    def life(self) -> Any:
        return self.queue.life

    def some(self, pick: int, *, held: bool = False) -> Row:
        among = [row for row in self.rows if row.claim_id] if held else self.rows
        return among[pick % len(among)]

    def holder(self, row: Row) -> Holder:
        assert row.claim_id is not None
        return Holder(row.pk, row.claim_id, self.queue.key(self.agents[row.agent]))

    def refusal(self, row: Row) -> type[EngineRefusal] | None:
        if row.status in self.life.leased:
            return None
        return LeaseLost if row.ended_by == "reaper" else Ended

    def note_retry(self, row: Row, *, wanted: bool, delayed: bool) -> None:
        stored = self.queue.rows.filter(retry_of=row.pk).first()
        assert (stored is not None) == wanted, row
        if stored is not None:
            assert (stored.not_before is not None) == delayed
            row.retried = True
            self.rows.append(
                Row(stored.pk, row.root, row.agent, row.priority, getattr(stored, self.life.queued_at),
                    self.life.waiting, row.attempt + 1, delayed=delayed)
            )  # fmt: skip

    def failed(self, row: Row, failure_class: str, by: str) -> None:
        row.status, row.failure_class, row.ended_by = self.life.failed, failure_class, by
        failures = sum(other.root == row.root and other.failure_class == failure_class for other in self.rows)
        minutes = EXPECTED_MINUTES[failure_class]
        wait = minutes[min(failures, len(minutes)) - 1]
        wanted = wait is not None and row.attempt < 3 and not row.asked
        self.note_retry(row, wanted=wanted, delayed=bool(wait))

    # -- what may happen --

    @rule(agent=st.integers(0, 1), priority=st.integers(-1, 1))
    def enqueue(self, agent: int, priority: int) -> None:
        row = self.queue.make(self.agents[agent], priority=priority)
        self.rows.append(Row(row.pk, row.pk, agent, priority, getattr(row, self.life.queued_at), self.life.waiting))

    @rule(agent=st.integers(0, 1))
    def claim(self, agent: int) -> None:
        claim_id = uuid.uuid4()
        mine = [row for row in self.rows if row.agent == agent]
        if self.life.exclusive and any(row.status in self.life.leased for row in mine):
            with pytest.raises(AgentBusy):
                self.queue.claim(self.agents[agent], claim_id)
            return
        open_rows = [row for row in mine if row.status == self.life.waiting and not row.delayed]
        leasing = self.queue.claim(self.agents[agent], claim_id)
        if not open_rows:
            assert leasing is None
            return
        head = min(open_rows, key=lambda row: (-row.priority, row.queued_at, row.pk))
        assert leasing is not None
        assert (leasing.row.pk, leasing.is_new) == (head.pk, True)
        head.status, head.claim_id = self.life.leased[0], claim_id

    @precondition(lambda self: any(row.claim_id for row in self.rows))
    @rule(pick=PICK)
    def claim_again(self, pick: int) -> None:
        row = self.some(pick, held=True)
        if refusal := self.refusal(row):
            with pytest.raises(refusal):
                self.queue.claim(self.agents[row.agent], row.claim_id)
        else:
            leasing = self.queue.claim(self.agents[row.agent], row.claim_id)
            assert leasing is not None
            assert (leasing.row.pk, leasing.is_new) == (row.pk, False)

    @precondition(lambda self: any(row.claim_id for row in self.rows))
    @rule(pick=PICK, starts=st.booleans())
    def beat(self, pick: int, starts: bool) -> None:
        row = self.some(pick, held=True)
        act = self.queue.model.objects.start if starts else self.queue.model.objects.heartbeat
        if refusal := self.refusal(row):
            with pytest.raises(refusal):
                act(self.holder(row))
            return
        pulse = act(self.holder(row))
        assert (pulse.cancel_requested_at is not None) == row.asked
        row.silent = False
        row.status = self.life.leased[-1] if starts else row.status

    @precondition(lambda self: any(row.claim_id for row in self.rows))
    @rule(pick=PICK, end=PICK, failure_class=st.sampled_from(sorted(EXPECTED_MINUTES)), digest=st.sampled_from("ab"))
    def finish(self, pick: int, end: int, failure_class: str, digest: str) -> None:
        row, status = self.some(pick, held=True), self.life.finished[end % len(self.life.finished)]
        said = {"failure_class": failure_class} if status == self.life.failed else {}
        if refusal := self.refusal(row):
            if row.digest == digest:
                assert self.queue.finish(self.holder(row), status, digest=digest, **said)[1] is False
                return
            with pytest.raises(ResultMismatch if row.digest else refusal):
                self.queue.finish(self.holder(row), status, digest=digest, **said)
            return
        assert self.queue.finish(self.holder(row), status, digest=digest, **said)[1] is True
        row.digest = digest
        if status == self.life.cancelled and not row.asked:
            self.failed(row, "interrupted", "runner")
        elif status == self.life.failed:
            self.failed(row, failure_class, "runner")
        else:
            row.status, row.ended_by = status, "runner"

    @precondition(lambda self: self.rows)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        row = self.some(pick)
        answer = self.queue.model.objects.request_cancel(row.pk, by="ada", reason="model")
        if row.status == self.life.waiting:
            assert answer is Cancel.CLOSED
            row.status, row.ended_by, row.asked = self.life.cancelled, "person", True
        elif row.status in self.life.leased and not row.asked:
            assert answer is Cancel.ASKED
            row.asked = True
        else:
            assert answer is Cancel.UNCHANGED

    @precondition(lambda self: self.rows)
    @rule(pick=PICK)
    def force(self, pick: int) -> None:
        row = self.some(pick)
        unfinished = row.status in self.life.unfinished
        assert self.queue.model.objects.force_cancel(row.pk, by="ada", reason="model") is unfinished
        if unfinished:
            row.status, row.ended_by, row.asked = self.life.cancelled, "person", True

    @rule()
    def silence(self) -> None:
        self.queue.fall_silent()
        for row in self.rows:
            row.silent = row.status in self.life.leased

    @rule()
    def reap(self) -> None:
        expected = {row.pk: row for row in self.rows if row.status in self.life.leased and row.silent}
        assert {row.pk for row in self.queue.model.objects.reap()} == set(expected)
        for row in expected.values():
            if row.asked:
                row.status, row.ended_by = self.life.cancelled, "reaper"
            else:
                self.failed(row, "lost", "reaper")

    @rule()
    def wait(self) -> None:
        """The time of every retry comes."""
        self.queue.rows.waiting().update(not_before=timezone.now() - timedelta(days=1))
        for row in self.rows:
            row.delayed = False

    @precondition(lambda self: self.rows)
    @rule(pick=PICK)
    def retry(self, pick: int) -> None:
        row = self.some(pick)
        if row.retried or row.status not in ("failed", "partial_failure"):
            with pytest.raises((AlreadyRetried, Invalid)):
                governance.retry(self.queue.rows, row.pk, by="ada", reason="model")
        else:
            governance.retry(self.queue.rows, row.pk, by="ada", reason="model")
            self.note_retry(row, wanted=True, delayed=False)

    @invariant()
    def the_table_says_what_the_model_says(self) -> None:
        if hasattr(self, "rows"):
            columns = ("pk", "status", "attempt", "claim_id", "failure_class", "ended_by", "root_id", "result_digest")
            assert set(self.queue.rows.values_list(*columns)) == {
                (row.pk, row.status, row.attempt, row.claim_id, row.failure_class, row.ended_by, row.root, row.digest)
                for row in self.rows
            }


def sizes() -> Iterator[Any]:
    yield pytest.param(12, 25, id="12 histories")
    yield pytest.param(500, 40, id="500 histories", marks=pytest.mark.soak)


@pytest.mark.parametrize(("examples", "steps"), sizes())
@pytest.mark.parametrize("table", [JOBS, TASKS], ids=["agent_jobs", "agent_tasks"])
def test_every_history_ends_as_the_model_says(table: Queue, examples: int, steps: int) -> None:
    machine = type("ChainsOfOneTable", (Chains,), {"queue": table})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
