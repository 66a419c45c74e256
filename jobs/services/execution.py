"""What agents do: authenticate, claim, start, beat, finish. One short transaction a call, and every write is fenced."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import UUID

from agentstore_runner.contract.backup_jobs import MAINTENANCE
from agentstore_runner.contract.grants import Grant
from agentstore_runner.contract.problem import Problem
from agentstore_runner.redaction import Redactor
from django.db import DEFAULT_DB_ALIAS, IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.engine import server_bound
from jobs.engine.answers import Holder, Pulse
from jobs.engine.errors import AgentBusy, Ended, LeaseLost
from jobs.engine.leased import Leased
from jobs.engine.leases import LeaseQuerySet, violated
from jobs.engine.lifecycle import Lifecycle
from jobs.engine.run_time import DEFAULT_SECONDS
from jobs.engine.stored_json import StoredDocument
from jobs.models import Agent, AgentJob, AgentTask, AgentToken, AuditEvent

from . import capabilities, instances, reports, runner_versions, targets, token_format
from .backups import settling
from .backups.maintaining import settle_maintenance
from .documents import sanitise
from .errors import AgentNotActive, Invalid, Unauthenticated

SEEN_EVERY = timedelta(minutes=1)  # how often "last seen" and "last used" are written at most
# What the calls ask of their agent; the rest of it is read by the pages of people.
READ_OF_AGENT = (
    "id", "principal_key", "title", "state", "state_note", "state_until", "lease_seconds", "runner_version",
    "capabilities", "engine",
)  # fmt: skip
HEARTBEATS_PER_LEASE = 3
# A cancel travels in the answer to a heartbeat, and a runner is to have stopped ten seconds after it was asked for.
LONGEST_HEARTBEAT_S = 5
MAX_PROGRESS_BYTES = 8 * 1024
MAX_ASKED_SECONDS = 864_000  # of run time that a payload may ask for; `run_limit` of its table says the same
MAX_CLAIMS = 100

Row = TypeVar("Row", bound=Leased)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a row asks for, as enqueued."""

    kind: str
    document: object


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An authenticated agent."""

    agent: Agent
    token_id: UUID
    work: Work | None = None  # of the row that the call names, where that was looked up
    run_ref: str | None = None  # the workflow run that the bearer was issued to

    def holder(self, rows: LeaseQuerySet[Any], row_id: UUID, claim_id: UUID) -> Holder:
        """This agent as the holder of one row of a table."""
        return Holder(row_id, claim_id, self.key(rows))

    def key(self, rows: LeaseQuerySet[Any]) -> object:
        """What names this agent in a table."""
        return getattr(self.agent, rows.life.agent_key)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The program that acts for an agent."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


@dataclass(frozen=True, kw_only=True)
class Claimed(Generic[Row]):
    """A leased row with what its runner must know; `is_new` is False for a repeated claim."""

    row: Row
    is_new: bool
    now: datetime
    lease_expires_at: datetime
    deadline: datetime
    heartbeat_seconds: int
    grant: Grant | None  # what the target of a job's address lets it do


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What a sign of life reads back, and the state that the agent is in."""

    pulse: Pulse
    heartbeat_seconds: int
    agent_state: str


@dataclass(frozen=True, kw_only=True)
class Finished(Generic[Row]):
    """What was stored, the reasons for its verdict, and the attempt that follows, if one does."""

    row: Row
    reasons: Sequence[str]
    retry: Row | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """An agent's own state and what it holds, oldest first: what a restarted runner reconciles with."""

    agent: Agent
    state: str
    now: datetime
    jobs: Sequence[AgentJob]
    tasks: Sequence[AgentTask]


def authenticate(
    *, bearer: str, rows: LeaseQuerySet[Any] | None = None, row_id: UUID | None = None, instance: str = ""
) -> Caller:
    """The agent of a live bearer, by one look-up of its digest, which reads the work of one of its rows as well.

    `instance` is what the runner says of its process. Raises Unauthenticated, never saying what was wrong.
    """
    if not token_format.well_formed(bearer):
        raise Unauthenticated
    sql = _look_up_sql("", None) if rows is None else _look_up_sql(rows.model._meta.db_table, rows.life)
    found = server_bound.run(DEFAULT_DB_ALIAS, sql, {"digest": token_format.digest(bearer), "row_id": row_id})
    if not found:
        raise Unauthenticated
    token_id, run_ref, is_used_anew, is_seen_anew, kind, document, *columns = found[0]
    agent = server_bound.instance(Agent, DEFAULT_DB_ALIAS, server_bound.columns(Agent, READ_OF_AGENT), columns)
    if is_used_anew:
        AgentToken.objects.filter(pk=token_id).update(last_used_at=Now())
    if is_seen_anew:
        Agent.objects.filter(pk=agent.pk).update(last_seen_at=Now())
        if instance:
            instances.note(agent_id=agent.pk, said=instance)
    work = None if kind is None else Work(kind=kind, document=json.loads(document, cls=StoredDocument))
    return Caller(agent=agent, token_id=token_id, work=work, run_ref=run_ref)


@cache
def _look_up_sql(table: str, life: Lifecycle | None) -> str:
    columns = ", ".join(f"agents.{column}" for column in server_bound.columns(Agent, READ_OF_AGENT))
    a_while_ago = f"statement_timestamp() - interval '{SEEN_EVERY.total_seconds():.0f} seconds'"
    work, join = "NULL, NULL", ""
    if life:
        work = f"work.{life.kind}, work.{life.document}"
        join = f"LEFT JOIN {table} AS work ON work.id = %(row_id)s AND work.{life.agent} = agents.{life.agent_key}"
    return f"""
        SELECT tokens.id, tokens.run_ref, coalesce(tokens.last_used_at < {a_while_ago}, true),
          coalesce(agents.last_seen_at < {a_while_ago}, true), {work}, {columns}
        FROM agent_tokens AS tokens JOIN agents ON agents.id = tokens.agent_id {join}
        WHERE tokens.digest = %(digest)s AND tokens.revoked_at IS NULL
          AND (tokens.expires_at IS NULL OR tokens.expires_at > statement_timestamp())
        """  # noqa: S608  (put together from names of our own)


def claim(
    *,
    caller: Caller,
    rows: LeaseQuerySet[Row],
    claim_id: UUID,
    kinds: Sequence[str],
    request: Mapping[str, Any],
    runner: Runner,
    row_id: UUID | None = None,
    columns: Mapping[str, object] | None = None,
    able: capabilities.Able | None = None,
) -> Claimed[Row] | None:
    """Lease the next row of `kinds` (or `row_id`) for the caller; None when nothing waits.

    `request` is the whole request, to tell a repetition from another use of the claim id; `columns` are written beside
    the lease, but the run that a bearer was issued to outweighs what they say of it; `able` is what the runner says
    that it can do, and nothing that requires more is handed out. A repetition is answered also while the agent is
    paused: it holds that row already. Raises RunnerTooOld, AgentNotActive and the engine's refusals.
    """
    runner_versions.check(runner.version)
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    agent = caller.agent
    if able is not None:
        capabilities.note(agent, able)
    written = dict(columns or {})
    if caller.run_ref and "run_ref" in written:
        written["run_ref"] = caller.run_ref
    try:
        leasing = rows.claim(
            claim_id, agent=caller.key(rows), kinds=kinds, digest=digest, row_id=row_id, claimed_by=str(runner),
            capabilities=able.names if able else (), **written,
        )  # fmt: skip
    except AgentBusy:
        _check_active(agent)  # why it takes nothing new outweighs that it could not
        raise
    if leasing is None:
        _check_active(agent)
        return None
    row, now = leasing.row, leasing.read_at
    if leasing.is_new and agent.runner_version != str(runner):
        Agent.objects.filter(pk=agent.pk).update(runner_version=str(runner))
    claimed_at: datetime = getattr(row, rows.life.claimed_at) or now
    return Claimed(
        row=row,
        is_new=leasing.is_new,
        now=now,
        lease_expires_at=lease_end(row) or now,
        deadline=claimed_at + timedelta(seconds=_run_seconds(row, leasing.max_run_seconds)),
        heartbeat_seconds=heartbeat_seconds(row.lease_seconds),
        grant=targets.grant(kind=row.kind, spec=row.spec, agent=agent.principal_key)
        if isinstance(row, AgentJob)
        else None,
    )


def heartbeat_seconds(lease_seconds: int) -> int:
    """The pace that lets two heartbeats of a lease fail before it lapses, and a cancel arrive soon."""
    return min(max(1, lease_seconds // HEARTBEATS_PER_LEASE), LONGEST_HEARTBEAT_S)


def lease_end(row: Leased) -> datetime | None:
    """When the lease of a row lapses unless its holder beats again; None for a row that never beat."""
    beat_at: datetime | None = row.heartbeat_at
    return beat_at and beat_at + timedelta(seconds=row.lease_seconds)


def start(*, caller: Caller, rows: LeaseQuerySet[Any], row_id: UUID, claim_id: UUID) -> Beat:
    """Say that the work itself has begun; saying so again changes nothing. Raises the engine's refusals."""
    return _beat(caller, rows.start(caller.holder(rows, row_id, claim_id)))


def heartbeat(
    *,
    caller: Caller,
    rows: LeaseQuerySet[Any],
    row_id: UUID,
    claim_id: UUID,
    progress: Mapping[str, Any] | None = None,
    counters: Mapping[str, int] | None = None,
) -> Beat:
    """Prolong the lease and note progress; counters never shrink. Raises the engine's refusals, or Invalid."""
    if progress is not None:
        progress, _ = sanitise(Redactor().document(progress))
        if len(json.dumps(progress).encode()) > MAX_PROGRESS_BYTES:
            raise Invalid([Problem("/progress", f"At most {MAX_PROGRESS_BYTES:,} bytes.")])
    pulse = rows.heartbeat(caller.holder(rows, row_id, claim_id), progress=progress, counters=counters)
    return _beat(caller, pulse)


def finish(
    *, caller: Caller, rows: LeaseQuerySet[Row], row_id: UUID, claim_id: UUID, report: reports.Report
) -> Finished[Row]:
    """Store a runner's report, repaired, redacted and judged; insert the retry that its failure class asks for.

    A report that comes too late (LeaseLost, or Ended by force) changes no row and is kept in the audit trail once.
    Raises Invalid, UnknownRow, LeaseLost, Ended or ResultMismatch.
    """
    actor, work = caller.agent.principal_key, caller.work or _work(caller, rows, row_id)
    if rows.model is AgentJob:
        clean = reports.of_job(report, work.kind, work.document)
    else:
        clean = reports.of_task(report, work.kind)
    try:
        with transaction.atomic():
            row, is_new = rows.finish(
                caller.holder(rows, row_id, claim_id), clean.status, digest=report.digest, error=clean.error,
                failure_class=clean.failure_class, details=clean.details or None, **clean.columns,
            )  # fmt: skip
            if is_new:
                _note(row, clean, actor=actor)
                if rows.model is AgentTask:
                    settling.settle_result(row.pk)
                elif work.kind == MAINTENANCE:
                    settle_maintenance(row.pk)
    except (LeaseLost, Ended) as refusal:
        if refusal.row is not None:
            _keep_late(refusal.row, clean, report.digest, actor=actor)
        raise
    except IntegrityError as conflict:  # the report does not fit what the row holds already
        raise Invalid([reports.broken_rule(violated(conflict))]) from None
    # Only a failure, whole or partial, has a class, and only such a row is ever retried.
    retry = rows.filter(retry_of=row.pk).first() if row.failure_class else None
    return Finished(row=row, reasons=clean.reasons, retry=retry)


def _work(caller: Caller, rows: LeaseQuerySet[Any], row_id: UUID) -> Work:
    mine = rows.filter(pk=row_id, agent=caller.agent)
    kind, document = mine.values_list(rows.life.kind, rows.life.document).first() or ("", {})
    return Work(kind=kind, document=document)


def standing(*, caller: Caller) -> Standing:
    """The caller's state and its open claims; rows that plain SQL leased are nobody's claim."""
    agent = caller.agent
    now = Agent.objects.filter(pk=agent.pk).values_list(Now(), flat=True).get()
    return Standing(
        agent=agent,
        state=effective_state(agent, now),
        now=now,
        jobs=_held(AgentJob.objects.all(), agent),
        tasks=_held(AgentTask.objects.all(), agent),
    )


def _held(rows: LeaseQuerySet[Row], agent: Agent) -> list[Row]:
    held = rows.leased().filter(agent=agent, claim_id__isnull=False)
    return list(held.order_by(rows.life.claimed_at, "id")[:MAX_CLAIMS])


def effective_state(agent: Agent, now: datetime) -> str:
    """The agent's state at a time: a pause with an end is over after it."""
    return Agent.State.ACTIVE if agent.state_until and agent.state_until <= now else agent.state


def _beat(caller: Caller, pulse: Pulse) -> Beat:
    return Beat(
        pulse=pulse,
        heartbeat_seconds=heartbeat_seconds(pulse.lease_seconds),
        agent_state=effective_state(caller.agent, pulse.server_time),
    )


def _run_seconds(row: Leased, limit: int | None) -> int:
    """How long the work of a row may take, in seconds: what its payload says, else the limit of its kind."""
    match row:
        case AgentTask(task_payload={"settings": {"max_runtime_s": int(asked)}}) if (
            0 < asked <= MAX_ASKED_SECONDS and asked is not True
        ):
            return asked
    return limit or DEFAULT_SECONDS


def _note(row: Leased, clean: reports.Clean, *, actor: str) -> None:
    if clean.redactions:
        audit.record(audit.Tag.UNREDACTED, row, actor=actor, details={"count": clean.redactions})
    if clean.differing_verdict:
        verdicts = {"runner": clean.differing_verdict, "server": clean.columns["verdict"]}
        audit.record(audit.Tag.VERDICT_DIFFERS, row, actor=actor, details=verdicts)
    if row.cancel_requested_at and row.status not in (row.lifecycle.failed, row.lifecycle.cancelled):
        audit.record(audit.Tag.DONE_AFTER_CANCEL, row, actor=actor)


def _keep_late(row: Leased, clean: reports.Clean, digest: str, *, actor: str) -> None:
    if not AuditEvent.objects.filter(subject_id=row.pk, tag=audit.Tag.LATE_RESULT, details__digest=digest).exists():
        details = {"digest": digest, "body": clean.as_evidence()}
        audit.record(audit.Tag.LATE_RESULT, row, actor=actor, details=details)


def _check_active(agent: Agent) -> None:
    state = effective_state(agent, datetime.now(UTC))
    if state != Agent.State.ACTIVE:
        raise AgentNotActive(state, agent.state_note, agent.state_until)
