"""What people do: enqueue, cancel, retry. Each act stands or falls with its line in the audit trail."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, datetime, timedelta
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.engine.answers import Cancel
from jobs.engine.errors import KeyHeld
from jobs.engine.leased import Leased
from jobs.engine.leases import LeaseQuerySet, violated
from jobs.models import Agent, AgentJob, AgentTask, JobKind, Schedule

from . import targets
from .backups import settling
from .database_clock import database_now
from .documents import UNSTORABLE, storable_problems
from .errors import AlreadyEnded, AlreadyRetried, Duplicate, Invalid, NotFound
from .kinds import CONTRACTS, spec_problems

MAX_KEY, MAX_REASON, MAX_LABELS = 200, 500, 50
PRIORITIES = range(-100, 101)
TRIES = 5  # a chain may gain an attempt between the look and the write


@dataclass(frozen=True, kw_only=True)
class Enqueued:
    """A job that waits now."""

    job_id: UUID
    kind: str
    agent: str


@dataclass(frozen=True, kw_only=True)
class Cancellation:
    """What a cancel came to, and at which attempt of the chain."""

    outcome: Cancel
    row_id: UUID


@transaction.atomic
def enqueue(
    *,
    by: str,
    agent: str,
    kind: str,
    spec: object,
    priority: int = 0,
    not_before: datetime | None = None,
    expires_at: datetime | None = None,
    dedupe_key: str = "",
    concurrency_key: str = "",
    labels: dict[str, Any] | None = None,
    root_of: UUID | None = None,
    schedule: Schedule | None = None,
    is_own: bool = False,
) -> Enqueued:
    """Queue a job of `kind` with `spec` for the agent of that key.

    Without `expires_at` it waits as long as its kind says; its retries share that time. `root_of` names the job that
    this one repeats ("enqueue again"), for the audit trail only; `schedule` is the one whose slot this fills; `is_own`:
    the product itself made the spec. Raises Invalid with every problem found (pointers start with the argument's name)
    or Duplicate when a live job holds `dedupe_key`.
    """
    labels = labels or {}
    found_agent, found_kind = find_agent(agent), find_kind(kind)
    problems = job_problems(
        found_agent, found_kind, spec=spec, priority=priority, labels=labels,
        keys={"dedupe_key": dedupe_key, "concurrency_key": concurrency_key}, is_own=is_own,
    )  # fmt: skip
    if expires_at and (expires_at <= database_now() or (not_before and expires_at <= not_before)):
        problems.append(Problem("/expires_at", "Must lie ahead, and after “not before”."))
    if problems or found_agent is None or found_kind is None:
        raise Invalid(problems)
    try:
        with transaction.atomic():
            job = AgentJob.objects.create(
                agent=found_agent, kind=kind, spec=spec, priority=priority, not_before=not_before,
                expires_at=expires_at or _expiry(found_kind, not_before), dedupe_key=dedupe_key or None,
                concurrency_key=concurrency_key or None,
                labels=labels, created_by=by, max_attempts=found_kind.max_attempts,
                lease_seconds=found_kind.lease_seconds or found_agent.lease_seconds, schedule=schedule,
            )  # fmt: skip
    except IntegrityError as conflict:
        if violated(conflict) != "agent_jobs_dedupe_idx":
            raise
        holder = AgentJob.objects.unfinished().filter(dedupe_key=dedupe_key).first()
        raise Duplicate(holder.pk if holder else None) from None
    details = {"repeats": str(root_of)} if root_of else {}
    audit.record(audit.Tag.ENQUEUED, job, actor=by, details=details)
    return Enqueued(job_id=job.pk, kind=kind, agent=agent)


def job_problems(
    agent: Agent | None,
    kind: JobKind | None,
    *,
    spec: object,
    priority: int,
    labels: dict[str, Any],
    keys: Mapping[str, str],
    is_own: bool = False,
) -> list[Problem]:
    """Everything that keeps such a job from being enqueued, now or by a schedule; pointers start with `/agent` …"""
    problems = list(agent_problems(agent)) + list(_kind_problems(kind))
    if kind:
        if kind.name in CONTRACTS and CONTRACTS[kind.name].is_own and not is_own:
            problems.append(Problem("/kind", "Jobs of this kind are made by the product itself, from its own pages."))
        found = spec_problems(kind, spec)
        if agent and not found:
            found = targets.problems(kind=kind.name, spec=spec, agent=agent.principal_key)
        problems += [Problem(f"/spec{problem.pointer}", problem.message) for problem in found]
    if priority not in PRIORITIES:
        problems.append(Problem("/priority", f"From {PRIORITIES[0]} to {PRIORITIES[-1]}."))
    for name, key in keys.items():
        if len(key) > MAX_KEY or UNSTORABLE.search(key):
            problems.append(Problem(f"/{name}", f"At most {MAX_KEY} characters, without NUL or half surrogate pairs."))
    problems += storable_problems(labels, "/labels")
    if len(labels) > MAX_LABELS:
        problems.append(Problem("/labels", f"At most {MAX_LABELS} labels."))
    return problems


def find_agent(key: str) -> Agent | None:
    """The agent of that key, whatever the text holds."""
    return Agent.objects.filter(principal_key=key).first() if not UNSTORABLE.search(key) else None


def find_kind(name: str) -> JobKind | None:
    """The registered kind of that name, whatever the text holds."""
    return JobKind.objects.filter(name=name).first() if not UNSTORABLE.search(name) else None


@transaction.atomic
def cancel(rows: LeaseQuerySet[Any], row_id: UUID, *, by: str, reason: str) -> Cancellation:
    """Cancel the latest attempt of the row's chain: at once if it waits, by asking its runner if it is held.

    A second cancel changes nothing. Raises NotFound, AlreadyEnded, or Invalid for the reason.
    """
    check_reason(reason)
    for _ in range(TRIES):
        latest = _latest(rows, row_id)
        outcome = rows.request_cancel(latest.pk, by=by, reason=reason)
        if outcome is not Cancel.UNCHANGED:
            audit.record(audit.Tag.CANCEL_REQUESTED, latest, actor=by, reason=reason, details={"outcome": outcome})
            if rows.model is AgentTask:
                settling.settle_tasks([latest.pk])
            return Cancellation(outcome=outcome, row_id=latest.pk)
        after = _latest(rows, row_id)
        if after.pk == latest.pk:
            if after.status not in rows.life.unfinished:
                raise AlreadyEnded
            return Cancellation(outcome=outcome, row_id=after.pk)
    raise AlreadyEnded


@transaction.atomic
def force_cancel(rows: LeaseQuerySet[Any], row_id: UUID, *, by: str, reason: str) -> UUID:
    """Close the latest attempt of the row's chain at once; its agent may still be working. Returns that attempt's id.

    Raises NotFound, AlreadyEnded, or Invalid for the reason.
    """
    check_reason(reason)
    for _ in range(TRIES):
        latest = _latest(rows, row_id)
        if rows.force_cancel(latest.pk, by=by, reason=reason):
            audit.record(audit.Tag.FORCED, latest, actor=by, reason=reason)
            if rows.model is AgentTask:
                settling.settle_tasks([latest.pk])
            closed: UUID = latest.pk
            return closed
        if _latest(rows, row_id).pk == latest.pk:
            break
    raise AlreadyEnded


@transaction.atomic
def retry(rows: LeaseQuerySet[Any], row_id: UUID, *, by: str, reason: str) -> UUID:
    """Insert the next attempt of a failed (or partially failed) chain, beyond the automatic budget too.

    Of two people who press at once, one gets AlreadyRetried with the new attempt's id. A task's run is opened again.
    Raises NotFound, Duplicate, AlreadyEnded (the task's run was cancelled), RunActive (its job runs anew), or Invalid
    (done and cancelled work is enqueued again instead; its target no longer allows the spec; or the reason).
    """
    check_reason(reason)
    row = rows.filter(pk=row_id).first()
    if row is None:
        raise NotFound
    latest = _latest(rows, row_id)
    if latest.pk != row.pk:
        raise AlreadyRetried(latest.pk)
    if row.status not in retryable(rows):
        raise Invalid([Problem("/status", f"A {row.get_status_display()} job is not retried; enqueue it again.")])
    if isinstance(row, AgentJob) and (found := targets.problems(kind=row.kind, spec=row.spec, agent=row.agent_id)):
        raise Invalid([Problem(f"/spec{problem.pointer}", problem.message) for problem in found])
    try:
        again = rows.retry(row)
    except KeyHeld:
        holder = rows.unfinished().filter(dedupe_key=row.dedupe_key).first()
        raise Duplicate(holder.pk if holder else None) from None
    if again is None:
        raise AlreadyRetried(_latest(rows, row_id).pk)
    audit.record(audit.Tag.RETRIED, row, actor=by, reason=reason, details={"attempt": str(again.pk)})
    attempt: UUID = again.pk
    if rows.model is AgentTask:
        settling.reopen(attempt)
    return attempt


def retryable(rows: LeaseQuerySet[Any]) -> tuple[str, ...]:
    """The statuses from which people may retry the latest attempt."""
    life = rows.life
    return tuple(word for word in life.finished if word in (life.failed, "partial_failure"))


def _expiry(kind: JobKind, not_before: datetime | None) -> Any:
    """When a job of this kind expires by default: by the database's clock, or counted from when it may begin."""
    if kind.expire_after_seconds is None:
        return None
    wait = timedelta(seconds=kind.expire_after_seconds)
    if not_before is None:
        return Now() + wait
    return not_before + wait if not_before.year < MAXYEAR - 1 else None


def _latest(rows: LeaseQuerySet[Any], row_id: UUID) -> Leased:
    row = rows.filter(pk=row_id).only("root_id").first()
    latest: Leased | None = rows.chain(row.chain_id).last() if row else None
    if latest is None:
        raise NotFound
    return latest


def check_reason(reason: str) -> None:
    """Raise Invalid unless the reason can be kept in the audit trail."""
    if not reason.strip():
        raise Invalid([Problem("/reason", "Say why; it is kept in the audit trail.")])
    if len(reason) > MAX_REASON or UNSTORABLE.search(reason):
        raise Invalid([Problem("/reason", f"At most {MAX_REASON} characters, without NUL or half surrogate pairs.")])


def agent_problems(agent: Agent | None) -> list[Problem]:
    """What keeps an agent from being given work."""
    if agent is None:
        return [Problem("/agent", "There is no agent of that key.")]
    if agent.state == Agent.State.DISABLED:
        return [Problem("/agent", "The agent is disabled; its jobs would wait for ever.")]
    return []


def _kind_problems(kind: JobKind | None) -> list[Problem]:
    if kind is None:
        return [Problem("/kind", "There is no kind of that name.")]
    if not kind.enabled:
        return [Problem("/kind", "The kind is disabled.")]
    return []
