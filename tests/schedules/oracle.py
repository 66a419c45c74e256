"""What a time full of schedules must have left, found without the product's calendar and without its scheduler.

Each minute is looked at on the wall of the schedule's zone. What people did and when, and when nobody kept the clock,
says which times must have a slot and which reasons it may give.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

from jobs.models import AgentJob, ScheduleSlot

MINUTE = timedelta(minutes=1)
WARM_UP = timedelta(hours=4)  # longer than any change of the clocks
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
# How often a failure of each class is tried again, as the operators' page says.
TRIED_AGAIN = {"transient": 99, "locked": 99, "resource": 1, "lost": 2, "interrupted": 2, "timeout": 1, "internal": 1}
ENDED = ("done", "failed", "cancelled")

Span = tuple[datetime, datetime]


@dataclass
class Life:
    """A schedule as people made it: what it was from when to when, and its pauses."""

    name: str
    agent: str
    misfire: str
    overlap: str
    grace: timedelta
    catch_up: int
    id: UUID | None = None
    defined: list[tuple[datetime, str, str]] = field(default_factory=list)  # from when on, expression, zone
    pauses: list[Span] = field(default_factory=list)  # later than the first moment, up to the second
    acts: list[datetime] = field(default_factory=list)
    by_hand: set[datetime] = field(default_factory=set)
    retired_at: datetime | None = None

    def due(self) -> set[datetime]:
        """Every time that must have a slot of the clock."""
        assert self.retired_at is not None
        edges = [*self.defined, (self.retired_at, "", "")]
        return {
            due for (begin, text, zone), (end, *_) in pairwise(edges) for due in due_times(text, zone, begin, end)
        }  # fmt: skip

    def is_paused(self, at: datetime) -> bool:
        """Whether that time falls into a pause."""
        return any(begin < at <= end for begin, end in self.pauses)


def due_times(expression: str, zone: str, after: datetime, until: datetime) -> set[datetime]:
    """The times later than `after`, up to `until`: as the wall shows them; fixed ones never lost, never twice."""
    texts = expression.split()
    fields = [_numbers(text, *bounds) for text, bounds in zip(texts, BOUNDS, strict=True)]
    is_fixed = not any(text.startswith("*") for text in texts[:2])
    place, found = ZoneInfo(zone), set()
    minute = after.replace(second=0, microsecond=0) - WARM_UP
    furthest = minute.astimezone(place).replace(tzinfo=None)
    while minute <= until:
        shown = [minute.astimezone(place).replace(tzinfo=None, fold=0)]
        if is_fixed:
            now, shown = shown[0], []
            while furthest < now:
                furthest += MINUTE
                shown.append(furthest)
        if minute > after and any(_matches(fields, wall) for wall in shown):
            found.add(minute)
        minute += MINUTE
    return found


def _numbers(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = ("0", "", "") if span == "*" else span.partition("-")
        begin, end = (low, high) if span == "*" else (int(first), int(last or first))
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


def _matches(fields: Sequence[set[int]], wall: datetime) -> bool:
    minutes, hours, days, months, weekdays = fields
    return (
        wall.minute in minutes and wall.hour in hours and wall.day in days and wall.month in months
        and bool({wall.isoweekday(), wall.isoweekday() % 7} & weekdays)
    )  # fmt: skip


@dataclass(frozen=True)
class Told:
    """What happened besides the schedules: when nobody kept the clock, or it went wrong, and whom people disabled."""

    lives: Sequence[Life]
    absences: Sequence[Span]
    disabled: dict[str, Sequence[Span]]
    stepped: Sequence[Span]  # what the clock showed out of order
    pace: timedelta

    def violations(self) -> list[str]:
        """Everything that is there and must not be, or is not there and must be."""
        return [*self._slots(), *self._jobs()]

    # -- slots -----------------------------------------------------------------------------------------------------

    def _slots(self) -> Iterator[str]:
        of: dict[UUID, list[ScheduleSlot]] = defaultdict(list)
        for slot in ScheduleSlot.objects.order_by("due_at"):
            of[slot.schedule_id].append(slot)
        known = {life.id for life in self.lives}
        yield from (f"a schedule {pk} that nobody made" for pk in of if pk not in known)
        jobs = {job.pk: job for job in AgentJob.objects.defer("spec", "results")}
        jobs_of: dict[UUID | None, list[AgentJob]] = defaultdict(list)
        for job in jobs.values():
            jobs_of[job.schedule_id].append(job)
        for life in self.lives:
            assert life.id is not None
            slots = of[life.id]
            yield from _differences(f"{life.name} by the clock", life.due(),
                                    [slot.due_at for slot in slots if slot.requested_by is None])  # fmt: skip
            yield from _differences(f"{life.name} by hand", life.by_hand,
                                    [slot.due_at for slot in slots if slot.requested_by])  # fmt: skip
            for slot in slots:
                if fault := self._fault(life, slot, jobs):
                    yield f"{life.name} at {slot.due_at}: {slot.outcome} {slot.reason}, {fault}"
                yield from self._overlaps(life, slot, jobs_of[life.id])
            yield from self._caught_up(life, [slot for slot in slots if slot.requested_by is None])

    def _fault(self, life: Life, slot: ScheduleSlot, jobs: dict[UUID, AgentJob]) -> str:
        """What is wrong with one slot; nothing if it is as it must be."""
        is_paused = life.is_paused(slot.due_at) and slot.requested_by is None
        if is_paused or slot.reason == "paused":
            return "" if is_paused and slot.reason == "paused" else "and the pauses say otherwise"
        delay = slot.recorded_at - slot.due_at
        if delay < timedelta():
            return "before its time"
        if delay > life.grace and not _within(slot.due_at, self.absences, before=self.pace):
            return f"{delay} late while the clock was kept"
        job = jobs.get(slot.job_id) if slot.job_id else None
        holder = jobs.get(slot.open_job_id) if slot.open_job_id else None
        match slot.reason:
            case "":
                return "" if job and _is_first_of(job, life, slot) else f"with {job} for its job"
            case _ if job:
                return "with a job all the same"
            case "overlap":
                is_open = holder and (_was_open(holder, slot.recorded_at) or _within(slot.recorded_at, self.stepped))
                is_right = is_open and holder.schedule_id == life.id and life.overlap == "skip"
                return "" if is_right else f"held by {holder} under {life.overlap}"
            case "invalid":
                return "" if _within(slot.recorded_at, self.disabled.get(life.agent, ())) else slot.note
            case "late" | "superseded" | "over_limit":
                policy = {"late": "skip", "superseded": "latest", "over_limit": "all"}[slot.reason]
                return "" if delay > life.grace and policy == life.misfire else f"{delay} late under {life.misfire}"
        return "which is no reason here"

    def _overlaps(self, life: Life, slot: ScheduleSlot, jobs: Sequence[AgentJob]) -> Iterator[str]:
        """Jobs that were open before and after a new one came, although the policy says otherwise."""
        at = slot.recorded_at
        if slot.reason or life.overlap == "queue" or _within(at, self.stepped):
            return
        for job in jobs:
            is_open = job.queued_at < at and (job.finished_at is None or job.finished_at > at)
            if is_open and (life.overlap == "skip" or job.cancel_requested_at is None or job.cancel_requested_at > at):
                yield f"{life.name} at {slot.due_at}: {job.pk} went on under {life.overlap}"

    def _caught_up(self, life: Life, slots: Sequence[ScheduleSlot]) -> Iterator[str]:
        """After an absence in which nobody touched the schedule: its policy, time for time."""
        for begin, end in self.absences:
            if any(begin <= act <= end + self.pace for act in life.acts):
                continue
            missed = [
                slot.reason in ("late", "superseded", "over_limit") for slot in slots
                if begin - self.pace <= slot.due_at <= end and slot.reason != "paused"
                and slot.recorded_at - slot.due_at > life.grace
            ]  # fmt: skip
            match life.misfire:
                case "skip":
                    is_right = all(missed)
                case "latest":
                    is_right = all(missed[:-1])
                case _:
                    is_right = all(missed[: -life.catch_up]) and not any(missed[-life.catch_up :])
            if not is_right:
                yield f"{life.name} from {begin} to {end}: {missed} under {life.misfire}"

    # -- jobs ------------------------------------------------------------------------------------------------------

    def _jobs(self) -> Iterator[str]:
        filled = set(ScheduleSlot.objects.exclude(job=None).values_list("job_id", flat=True))
        chains: dict[UUID, list[AgentJob]] = defaultdict(list)
        for job in AgentJob.objects.defer("spec", "results").order_by("attempt", "queued_at"):
            chains[job.chain_id].append(job)
        yield from (f"the chain {root} belongs to no time" for root in chains.keys() - filled)
        yield from (f"the chain {root} is not there" for root in filled - chains.keys())
        asked: Counter[tuple[UUID | None, object]] = Counter(
            (chain[0].schedule_id, chain[0].labels.get("slot")) for chain in chains.values()
        )
        yield from (f"{count} chains for {time}" for time, count in asked.items() if count > 1)
        for root, chain in chains.items():
            if fault := _chain_fault(chain):
                yield f"the chain {root} of {chain[0].labels}: {fault}"


def _is_first_of(job: AgentJob, life: Life, slot: ScheduleSlot) -> bool:
    time = f"{slot.due_at:%Y-%m-%dT%H:%M:%SZ}"
    return (job.schedule_id, job.retry_of_id, job.labels.get("slot")) == (life.id, None, time)


def _was_open(job: AgentJob, at: datetime) -> bool:
    return job.queued_at <= at and (job.finished_at is None or job.finished_at >= at)


def _chain_fault(chain: Sequence[AgentJob]) -> str:
    if [job.attempt for job in chain] != list(range(1, len(chain) + 1)):
        return f"attempts {[job.attempt for job in chain]}"
    if any(later.retry_of_id != job.pk for job, later in pairwise(chain)):
        return "an attempt follows no other"
    if any(job.status != "failed" for job in chain[:-1]):
        return f"it went on after {[job.status for job in chain]}"
    last = chain[-1]
    if last.status not in ENDED or last.finished_at is None:
        return f"left {last.status}"
    if last.status == "cancelled" and not last.cancel_reason:
        return "cancelled without a reason"
    if last.status == "failed":
        failures = sum(job.failure_class == last.failure_class for job in chain)
        may_go_on = last.attempt < last.max_attempts and failures <= TRIED_AGAIN.get(last.failure_class or "", 0)
        if may_go_on and last.cancel_requested_by in (None, "agentstore"):
            return f"given up after {[job.failure_class for job in chain]}"
    return ""


def _differences(what: str, expected: set[datetime], found: Sequence[datetime]) -> Iterator[str]:
    yield from (f"{what}: {at} has no slot" for at in sorted(expected - set(found)))
    yield from (f"{what}: {at} was never due" for at in sorted(set(found) - expected))
    yield from (f"{what}: {at} has {count} slots" for at, count in Counter(found).items() if count > 1)


def _within(at: datetime, spans: Sequence[Span], before: timedelta = timedelta()) -> bool:
    return any(begin - before <= at <= end for begin, end in spans)


def utc(text: str) -> datetime:
    """A moment of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
