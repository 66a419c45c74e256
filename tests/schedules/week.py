"""A stretch of time with schedules, people, maintenance loops and runners, and with what goes wrong in one."""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import connection

from jobs.management.clockwork import Clockwork, Duty
from jobs.management.commands.maintain import _duties
from jobs.management.hearing import Hearing
from jobs.models import Agent, AgentJob, MaintenanceDuty, Schedule
from jobs.services import identities, schedule_registry, scheduling
from jobs.services.errors import Invalid
from jobs.services.schedule_registry import Definition
from jobs.services.scheduling import Overlaps
from tests.factories import AgentFactory, JobKindFactory, TokenFactory
from tests.schedules.hands import KIND, Hand
from tests.schedules.oracle import Life, Span, Told, due_times
from tests.schedules.virtual_time import Watch, World

DUTIES = ("schedules", "expire", "overdue", "reap", "notices")
PROMPT = ("schedules", "reap")
LEASE, RUN = 600, 3000  # seconds
SELDOM = 300.0  # seconds between two turns of what has nothing to do with schedules
REBIRTH = timedelta(minutes=20)  # until somebody starts a dead loop again
GRACE, CATCH_UP = 300, 2
MARGIN = timedelta(minutes=5)
DRAIN = timedelta(hours=24)  # after which whatever is still open is a fault
ZONES = ("Europe/Berlin", "UTC", "America/New_York", "Australia/Lord_Howe")
SHAPES = (  # expression and splay; zones, policies and agents go round at paces of their own
    ("30 2 * * *", 1800), ("*/30 * * * *", 0), ("7 * * * *", 600), ("0 */2 * * *", 0), ("15 1,2,3 * * *", 0),
    ("0 3 * * *", 3600), ("40 * * * *", 0), ("5 0 * * 0,6", 0), ("0-30/10 2 * * *", 0), ("20 4-8 * * 1-5", 900),
    ("55 */3 * * *", 0), ("25 18-22 * * *", 0), ("59 23 * * *", 0), ("10 */4 28-31 * *", 0),
)  # fmt: skip


class Died(BaseException):
    """The process of a loop is gone, with its connection."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it, from when to when, and when both loops are away."""

    start: datetime
    hours: float
    agents: int
    schedules: int
    hands: int  # threads of runners
    away: Sequence[tuple[float, float]]  # from when, for how long, in hours
    disabled: Sequence[tuple[float, float]]  # the same, of one agent after the other
    steps: Sequence[tuple[float, float]]  # the clock goes ahead by that much, and after twice as long back again
    deaths: int
    cuts: int
    seed: int
    pace: timedelta  # of the loops

    def at(self, hours: float) -> datetime:
        """That many hours after the start."""
        return self.start + timedelta(hours=hours)

    @property
    def end(self) -> datetime:
        """When every schedule is retired."""
        return self.at(self.hours)

    def spans(self, pairs: Sequence[tuple[float, float]]) -> list[Span]:
        """When that is."""
        return [(self.at(begin), self.at(begin + length)) for begin, length in pairs]


class Week:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.counts, self.lives = plan, Counter[str](), list[Life]()
        self.world = World(plan.start)
        self.rng = random.Random(plan.seed)
        self.closes_at = plan.end + DRAIN
        JobKindFactory(name=KIND, lease_seconds=LEASE, max_run_seconds=RUN)
        self.agents = [AgentFactory(principal_key=f"agent-{n}") for n in range(plan.agents)]
        self.bearers = {agent.principal_key: TokenFactory(agent=agent).bearer for agent in self.agents}
        self._absences = plan.spans(plan.away)
        self._stepped = plan.spans([(begin, 3 * ahead) for begin, ahead in plan.steps])
        self._deaths = [plan.at(self.rng.random() * plan.hours) for _ in range(plan.deaths)]
        self._next_death_at = plan.start  # one loop at a time: the other has to take over
        self._pid = 0

    def run(self) -> Told:
        """Live through it; what the oracle must be told."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._pid = cursor.fetchone()[0]
        self.world.add(self._fate, "fate")
        for name in ("one loop", "the other loop"):
            self.world.add(self._keep_the_clock, name)
        for hand in range(self.plan.hands):
            keys = [agent.principal_key for agent in self.agents[hand :: self.plan.hands]]
            self.world.add(Hand(self, keys).work, f"hand {hand}")
        self.world.run()
        disabled = {
            agent.principal_key: [span]
            for agent, span in zip(self.agents, self.plan.spans(self.plan.disabled), strict=False)
        }
        self.counts["acts while due"] = sum(len(life.due().intersection(life.acts)) for life in self.lives)
        # What a clock leaps over is missed as if nobody had kept it.
        leaps = self.plan.spans(self.plan.steps)
        return Told(self.lives, sorted([*self._absences, *leaps]), disabled, self._stepped, self.plan.pace)

    # -- the loops -------------------------------------------------------------------------------------------------

    def _keep_the_clock(self) -> None:
        """One maintenance process after the other: a new one after each absence, and after each death."""
        for begin, end in itertools.pairwise([self.plan.start, *itertools.chain(*self._absences), self.closes_at]):
            if (begin, end) in self._absences:
                self.world.sleep_until(end)
                continue
            while self.world.now < min(end, self.closes_at):
                try:
                    stop = Watch(self.world, lambda end=end: min(end, self.closes_at))
                    Clockwork(self._duties(), stop).run(self.plan.pace.total_seconds())
                except Died:
                    self.counts["loops that died"] += 1
                    self.world.sleep_until(self.world.now + REBIRTH)

    def _duties(self) -> list[Duty]:
        duties = [duty for duty in _duties(Hearing("")) if duty.name in DUTIES]
        assert [duty.name for duty in duties if not duty.apart] == list(DUTIES)
        acts = {"schedules": self._enqueue_due}
        return [
            replace(duty, act=acts.get(duty.name, duty.act), every=0.0 if duty.name in PROMPT else SELDOM)
            for duty in duties
        ]

    def _enqueue_due(self) -> scheduling.Worked:
        """The duty itself; it dies over it when the time for that has come."""
        if self._deaths and self.world.now >= max(min(self._deaths), self._next_death_at):
            with dagger(strikes_at=1 + len(self._deaths) % 3) as struck:
                try:
                    return scheduling.enqueue_due()
                finally:
                    if struck:
                        self._deaths.remove(min(self._deaths))
                        self._next_death_at = self.world.now + 2 * REBIRTH
        return scheduling.enqueue_due()

    # -- people, and what happens to the database --------------------------------------------------------------------

    def _fate(self) -> None:
        """Everything that people do, and each cut of connections, in order."""
        events = [*self._acts(), *self._governing(), *self._steps(), *self._cuts()]
        for at, _, act in sorted((at, number, act) for number, (at, act) in enumerate(events)):
            self.world.sleep_until(at)
            act()
        self.world.sleep_until(self.plan.end)
        for life in self.lives:
            if life.retired_at is None:
                self._retire(life)
        while AgentJob.objects.unfinished().exists() and self.world.now < self.plan.end + DRAIN:
            self.world.sleep(minutes=10)
        self.closes_at = self.world.now

    def _acts(self) -> Iterator[tuple[datetime, Callable[[], None]]]:
        for number in range(self.plan.schedules):
            expression, splay = SHAPES[number % len(SHAPES)]
            zone = ZONES[(number + number // len(SHAPES)) % len(ZONES)]
            life = Life(
                name=f"{number} {expression} {zone}", agent=f"agent-{number % self.plan.agents}",
                misfire=Schedule.Misfire.values[number % 3], overlap=Schedule.Overlap.values[number // 3 % 3],
                grace=timedelta(seconds=GRACE), catch_up=CATCH_UP,
            )  # fmt: skip
            self.lives.append(life)
            definition = Definition(
                name=life.name, agent=life.agent, kind=KIND, spec={}, expression=expression, zone=zone,
                splay_seconds=splay, misfire=life.misfire, overlap=life.overlap, catch_up_limit=CATCH_UP,
                grace_seconds=GRACE, expires_after_seconds=4 * 3600 if number % 5 == 4 else None,
            )  # fmt: skip
            born = self.plan.start + timedelta(seconds=self.rng.randrange(600))
            yield born, partial(self._create, life, definition)
            due = sorted(due_times(expression, zone, self.plan.at(0.4), self.plan.at(self.plan.hours - 0.4)))
            first, second = sorted(self._moment(due) for _ in range(2))
            match number % 7:
                case 1:
                    yield first, partial(self._pause, life, second + timedelta(minutes=1))
                case 2:
                    yield first, partial(self._pause, life, None)
                    yield second + timedelta(minutes=1), partial(self._resume, life)
                case 3:
                    other = {"expression": SHAPES[(number + 5) % len(SHAPES)][0], "splay_seconds": 0}
                    yield first, partial(self._change, life, replace(definition, zone=ZONES[number % 3], **other))
                    yield second + timedelta(minutes=1), partial(self._change, life, definition)
                case 4:
                    yield second, partial(self._retire, life)
                case 5:
                    yield first + timedelta(seconds=17), partial(self._run_now, life)

    def _moment(self, due: Sequence[datetime] = ()) -> datetime:
        """A moment of it, by preference one of those, or one at which much is due; none while the clock is wrong."""
        while True:
            minute = self.rng.randrange(20, int(self.plan.hours * 60) - 20)
            minute -= minute % 15 if self.rng.random() < 0.7 else 0
            found = self.rng.choice(due) if due and self.rng.random() < 0.7 else self.plan.at(minute / 60)
            if not any(begin - MARGIN <= found <= end + MARGIN for begin, end in self._stepped):
                return found

    def _create(self, life: Life, definition: Definition) -> None:
        life.id = schedule_registry.create_schedule(definition, by="ada").pk
        life.defined.append((self.world.now, definition.expression, definition.zone))

    def _change(self, life: Life, definition: Definition) -> None:
        schedule_registry.change_schedule(definition, schedule_id=self._touched(life), by="ada")
        life.defined.append((self.world.now, definition.expression, definition.zone))

    def _pause(self, life: Life, until: datetime | None) -> None:
        schedule_registry.pause_schedule(schedule_id=self._touched(life), by="ada", note="Wait", until=until)
        end = self.plan.end if until is None else until - timedelta(microseconds=1)  # what is due at its end runs
        life.pauses.append((self.world.now, end))

    def _resume(self, life: Life) -> None:
        schedule_registry.resume_schedule(schedule_id=self._touched(life), by="ada")
        life.pauses[-1] = (life.pauses[-1][0], self.world.now)

    def _retire(self, life: Life) -> None:
        schedule_registry.retire_schedule(schedule_id=self._touched(life), by="ada", reason="It has served")
        life.retired_at = self.world.now

    def _run_now(self, life: Life) -> None:
        try:
            scheduling.run_now(schedule_id=self._touched(life), by="grace")
        except (Overlaps, Invalid):
            self.counts["runs by hand that were refused"] += 1
        else:
            life.by_hand.add(self.world.now)

    def _touched(self, life: Life) -> uuid.UUID:
        assert life.id is not None
        life.acts.append(self.world.now)
        return life.id

    def _governing(self) -> Iterator[tuple[datetime, Callable[[], None]]]:
        for agent, (begin, end) in zip(self.agents, self.plan.spans(self.plan.disabled), strict=False):
            set_state = partial(identities.set_state, agent_id=agent.pk, by="ada")
            yield begin, partial(set_state, state=Agent.State.DISABLED, note="It is moved")
            yield end, partial(set_state, state=Agent.State.ACTIVE)

    def _steps(self) -> Iterator[tuple[datetime, Callable[[], None]]]:
        for begin, ahead in self.plan.steps:
            yield self.plan.at(begin), partial(self._step, timedelta(hours=ahead))
            yield self.plan.at(begin + 2 * ahead), partial(self._step, timedelta())

    def _step(self, ahead: timedelta) -> None:
        self.world.set_ahead(ahead)
        self.counts["steps of the clock"] += 1

    def _cuts(self) -> Iterator[tuple[datetime, Callable[[], None]]]:
        for _ in range(self.plan.cuts):
            yield self._moment(), self._cut

    def _cut(self) -> None:
        """End the connections of whoever works at this moment, and of half of those who do not."""
        with connection.cursor() as cursor:
            for is_idle in (*[False] * 20, True):
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND usename = current_user AND NOT pid = ANY(%s) AND (state = 'idle') = %s"
                    " AND (state <> 'idle' OR pid %% 2 = 0)",
                    [[self._pid, connection.connection.info.backend_pid], is_idle],
                )
                self.counts[f"connections cut {'at rest' if is_idle else 'at work'}"] += cursor.rowcount

    def duties_in_trouble(self) -> list[str]:
        """Duties that failed last, or that are held by a loop that is gone."""
        return [
            f"{duty.name}: {duty.last_error}" for duty in MaintenanceDuty.objects.all()
            if duty.failures or duty.last_error or duty.leased_until
        ]  # fmt: skip


@contextmanager
def dagger(*, strikes_at: int) -> Iterator[list[str]]:
    """Ends the process in the middle of the nth slot that it fills: the connection first, then everything else."""
    struck: list[str] = []
    slots = itertools.count(1)

    def strike(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if sql.startswith("INSERT INTO schedule_slots") and next(slots) == strikes_at:
            struck.append(sql)
            connection.connection.close()
            raise Died
        return answer

    with connection.execute_wrapper(strike):
        yield struck
