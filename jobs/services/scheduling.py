"""Working off what schedules owe: each time that was due gets its slot, exactly once, with a job or with a reason.

Only the database's clock decides. Whoever works a schedule off holds its row locked, so any number of schedulers may
run; the unique key of the slots decides what is left, such as a clock that was set back.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TypeAlias
from uuid import UUID

import structlog
from agentstore_runner.contract.problem import Problem
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import DateTimeField, F, QuerySet

from jobs import audit
from jobs.engine.ddl import SqlNow
from jobs.models import AgentJob, BackupJob, BackupJobRun, Schedule, ScheduleSlot

from . import governance
from .backups import launching
from .calendar import calendar, splay_offset
from .errors import AlreadyEnded, Invalid, NotFound, Refusal, RunActive

BATCH = 5000  # times that are looked at in one transaction; an outage of months is worked off in pieces
MAX_CATCH_UP = 100  # the database's own bound of catch_up_limit
MAX_OPEN = 100  # jobs of one schedule; an agent that comes back must not find thousands
STEPS = 200  # transactions for one schedule in one turn, so that the others get theirs
MAX_NOTE = 1000

Outcome: TypeAlias = ScheduleSlot.Outcome
Reason: TypeAlias = ScheduleSlot.Reason
OUTCOME_OF = {
    Reason.OVERLAP: Outcome.SKIPPED, Reason.QUEUE_FULL: Outcome.SKIPPED, Reason.PAUSED: Outcome.SKIPPED,
    Reason.LATE: Outcome.MISSED, Reason.SUPERSEDED: Outcome.MISSED, Reason.OVER_LIMIT: Outcome.MISSED,
    Reason.INVALID: Outcome.REFUSED,
}  # fmt: skip

log = structlog.get_logger(__name__)


class Overlaps(Refusal):
    """A job of this schedule is still open, and the schedule does not run twice at once."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__()
        self.job_id = job_id


class ScheduleRetired(Refusal):
    """The schedule is retired; nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class Worked:
    """How many times got their slot, by outcome."""

    enqueued: int = 0
    skipped: int = 0
    missed: int = 0
    refused: int = 0


@dataclass(frozen=True)
class _Filled:
    """What came of one slot."""

    reason: str = ""
    note: str = ""
    job_id: UUID | None = None
    run_id: UUID | None = None
    open_job_id: UUID | None = None
    open_run_id: UUID | None = None

    @property
    def outcome(self) -> Outcome:
        return OUTCOME_OF[Reason(self.reason)] if self.reason else Outcome.ENQUEUED


def enqueue_due() -> Worked:
    """Give every time that is due its slot and its job, one transaction for each job.

    A schedule that fails stops no other; raises an ExceptionGroup in the end. Schedules that somebody else works off
    at this moment are left to them.
    """
    total: Counter[str] = Counter()
    failures: list[Exception] = []
    due = Schedule.objects.filter(next_due_at__lte=SqlNow()).order_by("next_due_at")
    for schedule_id in due.values_list("pk", flat=True):
        try:
            for _ in range(STEPS):
                worked = _step(schedule_id)
                if worked is None:
                    break
                total += worked
        except (OperationalError, InterfaceError):
            raise  # the database, not the schedule
        except Exception as error:  # one schedule must never stop another
            log.error("A schedule could not be worked off.", schedule=str(schedule_id), exc_info=error)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} schedules could not be worked off", failures)
    return Worked(**{outcome: total[outcome] for outcome in Outcome.values})


@transaction.atomic
def run_now(*, schedule_id: UUID, by: str) -> UUID:
    """Enqueue the schedule's job at once, paused or not, as a slot of its own; returns the job's id, or its run's.

    The overlap policy holds here too. Raises NotFound, ScheduleRetired, Overlaps, RunActive, or Invalid when the job
    could not be enqueued.
    """
    schedule, now = locked(schedule_id)
    if schedule.state == Schedule.State.RETIRED:
        raise ScheduleRetired
    filled = _fill(schedule, now, begins=now, now=now, by=by, by_clock=False)
    if filled.open_job_id:
        raise Overlaps(filled.open_job_id)
    if filled.open_run_id:
        raise RunActive(filled.open_run_id)
    made = filled.job_id or filled.run_id
    if made is None:
        raise Invalid([Problem("", filled.note)])
    ScheduleSlot.objects.create(
        schedule=schedule, due_at=now, outcome=Outcome.ENQUEUED, job_id=filled.job_id, run_id=filled.run_id,
        requested_by=by,
    )  # fmt: skip
    audit.record(audit.Tag.SCHEDULE_RUN, schedule, actor=by, details={"run" if filled.run_id else "job": str(made)})
    return made


def locked(schedule_id: UUID) -> tuple[Schedule, datetime]:
    """A schedule that nobody else works off or changes until the transaction ends, and the database's time.

    Raises NotFound.
    """
    schedule = _timed(Schedule.objects.filter(pk=schedule_id)).select_for_update(no_key=True).first()
    if schedule is None:
        raise NotFound
    return schedule, schedule.now  # type: ignore[attr-defined]  # the annotation


def settle(schedule: Schedule, now: datetime) -> None:
    """Give what a locked schedule owes up to now its slots, so that it can change without a loss."""
    while schedule.next_due_at and schedule.next_due_at <= now:
        _work_off(schedule, now)


def is_paused(schedule: Schedule, at: datetime) -> bool:
    """Whether a time that is due `at` falls into a pause."""
    until = schedule.state_until
    return schedule.state == Schedule.State.PAUSED and (until is None or at < until)


def _timed(schedules: QuerySet[Schedule]) -> QuerySet[Schedule]:
    return schedules.annotate(now=SqlNow(output_field=DateTimeField()))


@transaction.atomic
def _step(schedule_id: UUID) -> Counter[str] | None:
    due = _timed(Schedule.objects.filter(pk=schedule_id, next_due_at__lte=SqlNow()))
    schedule = due.select_for_update(no_key=True, skip_locked=True).first()
    return _work_off(schedule, schedule.now) if schedule else None  # type: ignore[attr-defined]  # the annotation


def _work_off(schedule: Schedule, now: datetime) -> Counter[str]:
    """Record what is left out, run at most one time that is not, and note how far the schedule is settled."""
    dates = calendar(schedule.expression, schedule.zone)
    due = list(islice(takewhile(lambda at: at <= now, dates.after(schedule.settled_at)), BATCH))
    if len(due) == BATCH:
        due = due[:-MAX_CATCH_UP]  # what comes after this batch decides about its last ones
        is_all = False
    else:
        is_all = True
    worked: Counter[str] = Counter()
    left_out, run = _judge(schedule, due, now, is_all=is_all)
    ScheduleSlot.objects.bulk_create(
        [
            ScheduleSlot(schedule=schedule, due_at=at, outcome=OUTCOME_OF[reason], reason=reason)
            for at, reason in left_out
        ],
        ignore_conflicts=True,
    )
    worked.update(OUTCOME_OF[reason] for _, reason in left_out)
    if run:
        worked.update(_run(schedule, run, now))
    settled = run or (left_out[-1][0] if left_out else schedule.settled_at)
    schedule.settled_at, schedule.next_due_at = settled, dates.next(settled)
    Schedule.objects.filter(pk=schedule.pk).update(settled_at=settled, next_due_at=schedule.next_due_at)
    return worked


def _judge(
    schedule: Schedule, due: Sequence[datetime], now: datetime, *, is_all: bool
) -> tuple[list[tuple[datetime, Reason]], datetime | None]:
    """The times to leave out with their reasons, and the first one after them that is to be run."""
    waiting = [at for at in due if not is_paused(schedule, at)]
    late = [at for at in waiting if _is_late(schedule, at, now)]
    match schedule.misfire:
        case Schedule.Misfire.SKIP:
            caught_up, reason = set[datetime](), Reason.LATE
        case Schedule.Misfire.LATEST:
            caught_up, reason = set(waiting[-1:] if is_all else ()), Reason.SUPERSEDED
        case _:
            caught_up, reason = set(late[-schedule.catch_up_limit :] if is_all else ()), Reason.OVER_LIMIT
    left_out: list[tuple[datetime, Reason]] = []
    for at in due:
        if is_paused(schedule, at):
            left_out.append((at, Reason.PAUSED))
        elif _is_late(schedule, at, now) and at not in caught_up:
            left_out.append((at, reason))
        else:
            return left_out, at
    return left_out, None


def _run(schedule: Schedule, due_at: datetime, now: datetime) -> Iterable[str]:
    """Fill the slot of one time; nothing if it has been filled before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO schedule_slots (schedule_id, due_at, outcome) VALUES (%s, %s, 'enqueued')"
            " ON CONFLICT (schedule_id, due_at) DO NOTHING RETURNING id",
            [schedule.pk, due_at],
        )
        found = cursor.fetchone()
    if found is None:
        return []
    # Agents that all come back after an outage are spread like at any other time.
    begins = now if _is_late(schedule, due_at, now) else due_at
    if schedule.agent:
        begins += splay_offset(schedule.agent.principal_key, schedule.splay_seconds)
    filled = _fill(schedule, due_at, begins=begins, now=now, by=f"schedule:{schedule.name}", by_clock=True)
    ScheduleSlot.objects.filter(pk=found[0]).update(
        outcome=filled.outcome, reason=filled.reason, note=filled.note, job_id=filled.job_id,
        run_id=filled.run_id, open_job_id=filled.open_job_id, open_run_id=filled.open_run_id,
    )  # fmt: skip
    return [filled.outcome]


def _is_late(schedule: Schedule, due_at: datetime, now: datetime) -> bool:
    return due_at < now - timedelta(seconds=schedule.grace_seconds)


def _fill(schedule: Schedule, due_at: datetime, *, begins: datetime, now: datetime, by: str, by_clock: bool) -> _Filled:
    """Enqueue the job of one time as the overlap policy allows; it waits until it `begins`."""
    if schedule.backup_job_id is not None:
        return _launch(schedule, schedule.backup_job_id, due_at, now=now, by=by, by_clock=by_clock)
    open_jobs = list(
        AgentJob.objects.unfinished().filter(schedule=schedule).order_by("queued_at", "id").values_list("pk", flat=True)
    )
    if open_jobs and schedule.overlap == Schedule.Overlap.SKIP:
        return _Filled(reason=Reason.OVERLAP, open_job_id=open_jobs[-1])
    if len(open_jobs) >= MAX_OPEN and schedule.overlap == Schedule.Overlap.QUEUE:
        return _Filled(reason=Reason.QUEUE_FULL, open_job_id=open_jobs[-1])
    expires = schedule.expires_after_seconds
    try:
        job = governance.enqueue(
            by=by, agent=schedule.agent.principal_key if schedule.agent else "", kind=schedule.kind, spec=schedule.spec,
            schedule=schedule,
            priority=schedule.priority, not_before=begins if begins > now else None,
            expires_at=max(begins, now) + timedelta(seconds=expires) if expires else None,
            # Whatever the policy lets in, jobs of one schedule run one after the other.
            concurrency_key=schedule.concurrency_key or f"schedule:{schedule.pk}",
            labels=schedule.labels | {"schedule": schedule.name, "slot": f"{due_at:%Y-%m-%dT%H:%M:%SZ}"},
        )  # fmt: skip
    except Invalid as refusal:
        return _refused(refusal)
    if schedule.overlap == Schedule.Overlap.CANCEL:
        for job_id in open_jobs:
            with suppress(AlreadyEnded):
                governance.cancel(
                    AgentJob.objects.all(), job_id, by=by, reason=f"The next time of {schedule.name} is due."
                )
    return _Filled(job_id=job.job_id)


def _launch(schedule: Schedule, job_id: UUID, due_at: datetime, *, now: datetime, by: str, by_clock: bool) -> _Filled:
    """Launch the backup job of one time; a time that falls into an open run is left out, and counted on that run."""
    if by_clock and BackupJob.objects.filter(pk=job_id, state=BackupJob.State.PAUSED).exists():
        return _Filled(reason=Reason.PAUSED, note="The backup job is paused.")
    trigger = BackupJobRun.Trigger.MANUAL
    if by_clock:
        trigger = BackupJobRun.Trigger.CATCH_UP if _is_late(schedule, due_at, now) else BackupJobRun.Trigger.SCHEDULE
    try:
        launched = launching.launch_backup(
            job_id=job_id, by=by, trigger=trigger, scheduled_for=due_at, splay_seconds=schedule.splay_seconds
        )
    except Invalid as refusal:
        return _refused(refusal)
    except RunActive as refusal:
        if refusal.run_id:
            BackupJobRun.objects.filter(pk=refusal.run_id).update(slots_collapsed=F("slots_collapsed") + 1)
        return _Filled(reason=Reason.OVERLAP, open_run_id=refusal.run_id)
    return _Filled(run_id=launched.run_id)


def _refused(refusal: Invalid) -> _Filled:
    problems = (f"{problem.pointer.lstrip('/')}: {problem.message}".removeprefix(": ") for problem in refusal.problems)
    return _Filled(reason=Reason.INVALID, note="; ".join(problems)[:MAX_NOTE])
