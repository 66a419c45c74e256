"""What people do with schedules: define, change, pause, resume, retire. Nothing that was due is lost to a change."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice, pairwise
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction

from jobs import audit
from jobs.engine.leases import violated
from jobs.models import BackupJob, Schedule

from .calendar import BadExpression, BadZone, Calendar, calendar
from .database_clock import database_now
from .documents import UNSTORABLE
from .errors import Invalid
from .governance import MAX_LABELS, check_reason, find_agent, find_kind, job_problems
from .scheduling import MAX_CATCH_UP, ScheduleRetired, locked, settle

MAX_NAME, MAX_NOTE = 100, 500
SPLAY_SECONDS, GRACE_SECONDS, CATCH_UP = range(43201), range(60, 86401), range(1, MAX_CATCH_UP + 1)
EXPIRY_SECONDS = range(60, 30 * 86400 + 1)
BACKUP = "backup"  # what the kind of a schedule of backups says
OWN_LABELS = ("schedule", "slot")  # what each job of a schedule carries
SHOWN = 10  # times


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What is enqueued, when, and what happens when a time was missed or the last job is still open."""

    name: str
    agent: str
    kind: str
    spec: object
    expression: str
    zone: str = "UTC"
    splay_seconds: int = 0
    misfire: str = Schedule.Misfire.LATEST
    catch_up_limit: int = 10
    grace_seconds: int = 300
    overlap: str = Schedule.Overlap.SKIP
    priority: int = 0
    concurrency_key: str = ""
    expires_after_seconds: int | None = None
    labels: object = None


@dataclass(frozen=True, kw_only=True)
class BackupDefinition:
    """When a backup job is run. A time that falls into an open run is left out, and of missed ones one is caught up."""

    name: str
    backup_job: UUID
    expression: str
    zone: str = "UTC"
    splay_seconds: int = 0
    misfire: str = Schedule.Misfire.LATEST  # or skip
    grace_seconds: int = 300


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A calendar in words, and the next times it is due, in UTC."""

    calendar: Calendar
    words: str
    times: tuple[datetime, ...]


@transaction.atomic
def create_schedule(definition: Definition | BackupDefinition, *, by: str) -> Schedule:
    """Add a schedule; its first time is the next one from now on. Raises Invalid."""
    columns, dates = _columns(definition)
    now = database_now()
    try:
        with transaction.atomic():
            schedule = Schedule.objects.create(**columns, settled_at=now, next_due_at=dates.next(now), created_by=by)
    except IntegrityError as conflict:
        raise _name_taken(conflict) from None
    audit.record(audit.Tag.SCHEDULE_STATE, schedule, actor=by, details={"act": "created", "name": schedule.name})
    return schedule


@transaction.atomic
def change_schedule(definition: Definition | BackupDefinition, *, schedule_id: UUID, by: str) -> None:
    """Change a schedule for the times from now on; what was due until now is enqueued as it was defined before.

    Raises NotFound, ScheduleRetired or Invalid.
    """
    columns, dates = _columns(definition)
    schedule, now = _live(schedule_id)
    if bool(schedule.backup_job_id) != isinstance(definition, BackupDefinition):
        raise Invalid([Problem("/kind", "A schedule of jobs stays one, and so does a schedule of backups.")])
    settle(schedule, now)
    try:
        with transaction.atomic():
            Schedule.objects.filter(pk=schedule.pk).update(**columns, settled_at=now, next_due_at=dates.next(now))
    except IntegrityError as conflict:
        raise _name_taken(conflict) from None
    audit.record(audit.Tag.SCHEDULE_STATE, schedule, actor=by, details={"act": "changed", "name": definition.name})


@transaction.atomic
def pause_schedule(*, schedule_id: UUID, by: str, note: str, until: datetime | None = None) -> None:
    """Let the times from now on pass without a job, until that time or until somebody resumes.

    Raises NotFound, ScheduleRetired or Invalid.
    """
    schedule, now = _live(schedule_id)
    problems = _note_problems(note)
    if until and until <= now:
        problems.append(Problem("/until", "Must lie ahead."))
    if problems:
        raise Invalid(problems)
    settle(schedule, now)
    _set(schedule, now, by, note, state=Schedule.State.PAUSED, state_note=note, state_until=until)


@transaction.atomic
def resume_schedule(*, schedule_id: UUID, by: str) -> None:
    """End a pause; times that fell into it stay skipped. Raises NotFound or ScheduleRetired."""
    schedule, now = _live(schedule_id)
    settle(schedule, now)
    _set(schedule, now, by, "", state=Schedule.State.ACTIVE, state_note="", state_until=None)


@transaction.atomic
def retire_schedule(*, schedule_id: UUID, by: str, reason: str) -> None:
    """End a schedule for good; its slots and jobs stay. Raises NotFound, ScheduleRetired or Invalid."""
    check_reason(reason)
    schedule, now = _live(schedule_id)
    settle(schedule, now)
    retired = {"state": Schedule.State.RETIRED, "state_note": reason, "state_until": None, "next_due_at": None}
    _set(schedule, now, by, reason, **retired)


def outlook(expression: str, zone: str) -> Outlook:
    """What an expression means, and its next times from the database's now. Raises BadExpression or BadZone."""
    dates = calendar(expression, zone)
    return Outlook(calendar=dates, words=dates.words, times=tuple(islice(dates.after(database_now()), SHOWN)))


def _live(schedule_id: UUID) -> tuple[Schedule, datetime]:
    schedule, now = locked(schedule_id)
    if schedule.state == Schedule.State.RETIRED:
        raise ScheduleRetired
    return schedule, now


def _set(schedule: Schedule, now: datetime, by: str, reason: str, **columns: Any) -> None:
    Schedule.objects.filter(pk=schedule.pk).update(**columns)
    until = columns["state_until"]
    details = {
        "act": str(columns["state"]), "until": until.isoformat() if until else None, "name": schedule.name,
    }  # fmt: skip
    audit.record(audit.Tag.SCHEDULE_STATE, schedule, actor=by, reason=reason, details=details)


def _columns(definition: Definition | BackupDefinition) -> tuple[dict[str, Any], Calendar]:
    """The columns of a definition that holds, and its calendar. Raises Invalid with every problem found."""
    if isinstance(definition, BackupDefinition):
        return _backup_columns(definition)
    said = asdict(definition)
    labels = definition.labels if isinstance(definition.labels, dict) else {}
    agent, kind = find_agent(definition.agent), find_kind(definition.kind)
    problems = [
        *_text_problems(definition),
        *job_problems(
            agent, kind, spec=definition.spec, priority=definition.priority, labels=labels,
            keys={"concurrency_key": definition.concurrency_key},
        ),
        *_label_problems(definition.labels),
        *_number_problems(said),
        *_word_problem("overlap", definition.overlap, Schedule.Overlap.values),
        *_word_problem("misfire", definition.misfire, Schedule.Misfire.values),
    ]  # fmt: skip
    dates = _dates(definition, problems)
    said |= {
        "labels": labels,
        "agent": agent,
        "concurrency_key": definition.concurrency_key or None,
        "expression": dates.expression,
    }
    return said, dates


def _backup_columns(definition: BackupDefinition) -> tuple[dict[str, Any], Calendar]:
    said = asdict(definition)
    job = BackupJob.objects.filter(pk=definition.backup_job).exclude(state=BackupJob.State.RETIRED).first()
    once = [word for word in Schedule.Misfire.values if word != Schedule.Misfire.ALL]  # never two runs at once
    problems = [
        *_text_problems(definition), *_number_problems(said), *_word_problem("misfire", definition.misfire, once),
    ]  # fmt: skip
    if job is None:
        problems.append(Problem("/backup_job", "There is no such backup job."))
    dates = _dates(definition, problems)
    return said | {"backup_job": job, "kind": BACKUP, "expression": dates.expression}, dates


def _dates(definition: Definition | BackupDefinition, problems: list[Problem]) -> Calendar:
    """The calendar of a definition without problems. Raises Invalid with those that it has, and the calendar's own."""
    dates: Calendar | None = None
    try:
        dates = calendar(definition.expression, definition.zone)
    except BadExpression as error:
        problems.append(Problem("/expression", str(error)))
    except BadZone as error:
        problems.append(Problem("/zone", str(error)))
    else:
        problems += _splay_problems(dates, definition.splay_seconds)
    if problems or dates is None:
        raise Invalid(problems)
    return dates


def _text_problems(definition: Definition | BackupDefinition) -> list[Problem]:
    problems = []
    name = definition.name
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME or any(ord(c) < 32 for c in name):
        problems.append(Problem("/name", f"1 to {MAX_NAME} characters without control characters, not only spaces."))
    elif UNSTORABLE.search(name):
        problems.append(Problem("/name", "It holds half a surrogate pair."))
    return problems


def _word_problem(field: str, word: str, known: Sequence[str]) -> list[Problem]:
    return [] if word in known else [Problem(f"/{field}", f"One of {', '.join(known)}.")]


def _label_problems(labels: object) -> list[Problem]:
    if labels is None:
        return []
    if not isinstance(labels, dict):
        return [Problem("/labels", "Labels are a JSON object.")]
    problems = [
        Problem("/labels", f"The schedule itself gives the label {key}.") for key in OWN_LABELS if key in labels
    ]
    if len(labels) + len(OWN_LABELS) > MAX_LABELS:
        problems.append(Problem("/labels", f"At most {MAX_LABELS - len(OWN_LABELS)} labels."))
    return problems


def _number_problems(said: dict[str, Any]) -> list[Problem]:
    bounds = {"splay_seconds": SPLAY_SECONDS, "grace_seconds": GRACE_SECONDS, "catch_up_limit": CATCH_UP}
    bounds |= {"expires_after_seconds": EXPIRY_SECONDS} if said.get("expires_after_seconds") is not None else {}
    return [
        Problem(f"/{field}", f"From {allowed[0]} to {allowed[-1]}.")
        for field, allowed in bounds.items()
        if field in said and said[field] not in allowed
    ]


def _splay_problems(dates: Calendar, splay_seconds: int) -> list[Problem]:
    times = list(islice(dates.after(database_now()), SHOWN))
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    if pauses and splay_seconds >= min(pauses):
        return [Problem("/splay_seconds", f"Less than the {min(pauses):.0f} seconds between two times.")]
    return []


def _note_problems(note: str) -> list[Problem]:
    if not note.strip():
        return [Problem("/note", "Say why; whoever waits for the job reads it.")]
    if len(note) > MAX_NOTE or UNSTORABLE.search(note):
        return [Problem("/note", f"At most {MAX_NOTE} characters, without NUL or half surrogate pairs.")]
    return []


def _name_taken(conflict: IntegrityError) -> Exception:
    if violated(conflict) != "schedules_name_key":
        return conflict
    return Invalid([Problem("/name", "There is a schedule of that name already.")])
