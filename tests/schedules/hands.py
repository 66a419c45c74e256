"""Runners of a simulated week: they ask, beat and report, fall silent and come late."""

import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from django.db import InterfaceError, OperationalError, connection

from jobs.engine.errors import EngineRefusal
from jobs.models import AgentJob
from jobs.services import execution
from jobs.services.errors import AgentNotActive
from jobs.services.reports import Report

if TYPE_CHECKING:
    from tests.schedules.week import Week

KIND, RUNNER = "report", execution.Runner(name="week", version="1.0.0")
LOOK = timedelta(minutes=2)  # how often runners ask
BEAT = timedelta(minutes=4)

Answer = TypeVar("Answer")


@dataclass
class Held:
    """What a runner holds, and what will become of it."""

    key: str
    job_id: uuid.UUID
    claim_id: uuid.UUID
    fate: str
    beats_at: datetime
    ends_at: datetime


class Hand:
    """One thread that is the runner of several agents."""

    def __init__(self, week: "Week", keys: Sequence[str]) -> None:
        self._week, self._keys, self._world = week, keys, week.world
        self._held: list[Held] = []

    def work(self) -> None:
        """Ask, beat and report until the week is over."""
        while self._world.now < self._week.closes_at:
            for key in _surely(self._asked):
                with suppress(AgentNotActive):
                    self._claim(key)
            for held in list(self._held):
                if self._world.now >= held.ends_at:
                    self._held.remove(held)
                    self._finish(held)
                elif self._world.now >= held.beats_at and held.fate != "silent":
                    self._beat(held)
            self._world.sleep_until(min(self._world.now + LOOK, self._week.closes_at))

    def _asked(self) -> list[str]:
        """The agents for which something waits; the others need not ask."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT principal_key FROM agent_jobs WHERE status = 'queued' AND principal_key = ANY(%s)"
                " AND (not_before IS NULL OR not_before <= now())",
                [self._keys],
            )
            return [key for (key,) in cursor.fetchall()]

    def _claim(self, key: str) -> None:
        claim_id = uuid.uuid4()
        claimed = _surely(
            lambda: execution.claim(
                caller=self._caller(key), rows=AgentJob.objects.all(), claim_id=claim_id, kinds=[KIND],
                request={"claim_id": str(claim_id)}, runner=RUNNER,
            )
        )  # fmt: skip
        if claimed is None:
            return
        job = claimed.row
        labels = _surely(lambda: AgentJob.objects.values_list("labels", flat=True).get(pk=job.pk))
        rng = random.Random(f"{self._week.plan.seed} {labels} {job.attempt}")
        fate = rng.choices(
            ("done", "transient", "interrupted", "configuration", "silent", "overrun"), (80, 6, 4, 2, 5, 3)
        )[0]
        minutes = rng.choice((1, 2, 3, 5, 8)) if rng.random() < 0.88 else rng.randrange(20, 45)
        minutes = {"silent": 60, "overrun": 180}.get(fate, minutes)
        self._week.counts[fate] += 1
        now = self._world.now
        self._held.append(Held(key, job.pk, claim_id, fate, now + BEAT, now + timedelta(minutes=minutes)))

    def _beat(self, held: Held) -> None:
        held.beats_at = self._world.now + BEAT
        try:
            beat = _surely(
                lambda: execution.heartbeat(
                    caller=self._caller(held.key), rows=AgentJob.objects.all(), row_id=held.job_id,
                    claim_id=held.claim_id,
                )
            )  # fmt: skip
        except EngineRefusal:
            self._week.counts["heartbeats refused"] += 1
            self._held.remove(held)
            return
        if beat.pulse.cancel_requested_at:
            self._held.remove(held)
            held.fate = "cancelled"
            self._finish(held)

    def _finish(self, held: Held) -> None:
        """Report; whoever was silent for an hour finds that it holds nothing any more."""
        status = held.fate if held.fate in ("done", "cancelled") else "failed"
        if held.fate in ("silent", "overrun"):
            status = "done"
        failure = {"error": "broken", "failure_class": held.fate} if status == "failed" else {}
        report = Report(digest=str(held.claim_id), status=status, **failure)
        try:
            _surely(
                lambda: execution.finish(
                    caller=self._caller(held.key), rows=AgentJob.objects.all(), row_id=held.job_id,
                    claim_id=held.claim_id, report=report,
                )
            )  # fmt: skip
        except EngineRefusal:
            self._week.counts["reports that came too late"] += 1

    def _caller(self, key: str) -> execution.Caller:
        return execution.authenticate(bearer=self._week.bearers[key])


def _surely(ask: Callable[[], Answer]) -> Answer:
    """The answer; a request whose connection was cut is asked again, in the same words."""
    for _ in range(30):
        try:
            return ask()
        except (OperationalError, InterfaceError):
            connection.close()
    return ask()
