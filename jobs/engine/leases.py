"""Every write to a leased table. Each is one conditional statement, so a stale holder changes nothing."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, NoReturn, Self
from uuid import UUID

from django.db import IntegrityError, connections, models, transaction
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8

from . import server_bound
from .answers import Cancel, Holder, Leasing, Pulse, Row
from .claim import claim_sql, words
from .errors import (
    AgentBusy,
    ClaimMismatch,
    Ended,
    EngineRefusal,
    ForeignClaim,
    KeyHeld,
    LeaseLost,
    ResultMismatch,
    UnknownRow,
)
from .failure_classes import DEFAULT_POLICY, RetryPolicy, policy_of
from .lifecycle import EndedBy, Lifecycle
from .run_time import ASKED_BY_CLOCK, CLOCK, DEFAULT_SECONDS, PASSED, ask_sql, ignored_sql
from .stored_json import StoredDocument
from .writes import assignments, beat_sql, finish_sql

TRIES = 8  # rounds of a claim lost to others (a row, the agent's one task, a concurrency key) before it is over
REAP_BATCH = 500
# What a write that ends a row reads back of it.
CLOSED = (
    "id", "status", "root_id", "claim_id", "attempt", "max_attempts", "failure_class", "cancel_requested_at",
    "cancel_requested_by",
    "overdue_at",
)  # fmt: skip


class LeaseQuerySet(models.QuerySet[Row]):
    """Claims, signs of life, ends and retries of the rows of one leased table."""

    @property
    def life(self) -> Lifecycle:
        return self.model.lifecycle

    def waiting(self) -> Self:
        return self.filter(status=self.life.waiting)

    def leased(self) -> Self:
        return self.filter(status__in=self.life.leased)

    def unfinished(self) -> Self:
        return self.filter(status__in=self.life.unfinished)

    def latest_attempts(self) -> Self:
        """Rows that no retry follows: the state of each chain."""
        return self.filter(retried_as__isnull=True)

    def chain(self, root_id: UUID) -> Self:
        """The attempts of one chain, first to latest."""
        return self.filter(root_id=root_id).order_by("attempt")

    # -- the agent's calls -------------------------------------------------------------------------------------------

    def claim(
        self,
        claim_id: UUID,
        *,
        agent: object,
        kinds: Sequence[str],
        digest: str,
        row_id: UUID | None = None,
        capabilities: Sequence[str] = (),
        **columns: object,
    ) -> Leasing[Row] | None:
        """Lease the first waiting row of `kinds` for `agent`, or just `row_id`; None when nothing may be claimed.

        `digest` identifies the request: the same id with the same digest gives the same row again, however often and
        however simultaneously. `columns` are written on the row; work that requires what is not among
        `capabilities` waits on. Raises AgentBusy, ForeignClaim, ClaimMismatch,
        LeaseLost (reaped) or Ended.
        """
        columns |= {"claim_digest": digest}
        table, one_row = self.model._meta.db_table, row_id is not None
        sql = claim_sql(table, self.life, one_row=one_row, written=tuple(columns), read=self._read_by_claim)
        asked = {
            "claim_id": claim_id, "agent": agent, "kinds": list(dict.fromkeys(kinds)), "row_id": row_id,
            "capabilities": list(capabilities),
        } | columns  # fmt: skip
        busy = False
        for _ in range(TRIES):
            try:
                with server_bound.savepoint(self.db):
                    found = server_bound.run(self.db, sql, asked)
            except IntegrityError:  # another claim took the agent's one task, or the concurrency key
                busy = self.life.exclusive
                continue
            if not found:
                return None
            if found[0][0] != "taken":
                return self._leasing(found[0], agent=agent, digest=digest)
            busy = False  # rows wait, but others hold each of them at this moment: that is no empty queue
        if busy:
            raise AgentBusy
        return None

    def _leasing(self, found: tuple[Any, ...], *, agent: object, digest: str) -> Leasing[Row]:
        outcome, read_at, limit, *values = found
        row = server_bound.instance(self.model, self.db, self._read_by_claim, values)
        if outcome == "busy":
            raise AgentBusy(row)
        if outcome == "replay":
            if getattr(row, self._agent_attribute) != agent:
                raise ForeignClaim
            if row.claim_digest != digest:
                raise ClaimMismatch(row)
            if row.status not in self.life.leased:
                raise LeaseLost(row) if row.ended_by == EndedBy.REAPER else Ended(row)
        return Leasing(row, is_new=outcome == "new", read_at=read_at, max_run_seconds=limit)

    def start(self, holder: Holder) -> Pulse:
        """Say that the work itself has begun; saying so again changes nothing. Raises like `heartbeat`."""
        written = (f"status = '{self.life.leased[-1]}'", "started_at = coalesce(started_at, now())")
        return self._beat(holder, written, {}, durable=True)

    def heartbeat(
        self, holder: Holder, *, progress: object | None = None, counters: Mapping[str, int] | None = None
    ) -> Pulse:
        """Prolong the lease, note progress, and learn whether to stop. Counters never shrink.

        Does not wait for the disk: one that a power failure takes away is repeated within its lease. Raises UnknownRow
        (also for another agent's row), LeaseLost or Ended.
        """
        written = ["progress = coalesce(%(progress)s, progress)"]
        written += [f"{column} = greatest({column}, %({column})s)" for column in counters or ()]
        values: dict[str, Any] = {column: Int8(count) for column, count in (counters or {}).items()}
        values["progress"] = None if progress is None else Jsonb(progress)
        return self._beat(holder, written, values, durable=False)

    def _beat(self, holder: Holder, written: Sequence[str], values: dict[str, Any], *, durable: bool) -> Pulse:
        # In a transaction of somebody else the commit is his.
        sql = beat_sql(self.model, tuple(written), durable=durable or connections[self.db].in_atomic_block)
        found = server_bound.run(self.db, sql, {**holder._asdict(), **values})
        if not found:
            self._refuse(holder)
        now, expires, lease, asked_at, asked_by, reason, *_ = found[0]
        return Pulse(
            server_time=now, lease_expires_at=expires, lease_seconds=lease,
            cancel_requested_at=asked_at, cancel_requested_by=asked_by, cancel_reason=reason,
        )  # fmt: skip

    def finish(
        self,
        holder: Holder,
        status: str,
        *,
        digest: str,
        failure_class: str | None,
        error: str | None,
        **columns: object,
    ) -> tuple[Row, bool]:
        """End the attempt with the holder's own word, and insert the retry that its failure class asks for.

        Late is fine as long as nobody reaped the row, and a cancel request does not change what happened; but
        `cancelled` without a request is stored as failed and interrupted, and as failed and timeout when it was the
        maximum run time that asked. `digest` identifies the body: the same again
        gives the stored row, and False for "new". Raises UnknownRow, LeaseLost, Ended or ResultMismatch.
        """
        life = self.life
        if status not in life.finished:
            raise ValueError(f"{status!r} is not a finished status")
        plain = (name for name, value in columns.items() if not isinstance(value, dict | list))
        read = server_bound.columns(self.model, (*CLOSED, *plain))
        sql = finish_sql(self.model, tuple(columns), read)
        asked = {"status": status, "failure_class": failure_class, "error": error, "digest": digest, **columns}
        values = {name: Jsonb(value) if isinstance(value, dict | list) else value for name, value in asked.items()}
        # Only a failure needs the frame of a transaction: its retry stands or falls with it.
        may_fail = status in (life.failed, life.cancelled)
        with transaction.atomic(using=self.db, savepoint=False) if may_fail else nullcontext():
            found = server_bound.run(self.db, sql, {**holder._asdict(), **values})
            if found:
                row = server_bound.instance(self.model, self.db, read, found[0])
                self._retry_by_class(row)
                return row, True
        try:
            self._refuse(holder)
        except EngineRefusal as refusal:
            stored = refusal.row
            if isinstance(stored, self.model) and stored.claim_id == holder.claim_id and stored.result_digest:
                if stored.result_digest == digest:
                    return stored, False
                raise ResultMismatch(stored) from None
            raise

    def check_held(self, holder: Holder, *, lock: bool = False) -> None:
        """Make sure that the holder's claim is live; `lock` keeps it so until the transaction ends.

        For what belongs to a row and lies in another table. Raises UnknownRow, LeaseLost or Ended.
        """
        rows = self.select_for_update(no_key=True) if lock else self
        agent = {self._agent_attribute: holder.agent}
        if not rows.leased().filter(pk=holder.row_id, claim_id=holder.claim_id, **agent).values_list("pk").first():
            self._refuse(holder)

    # -- people ------------------------------------------------------------------------------------------------------

    def request_cancel(self, row_id: UUID, *, by: str, reason: str) -> Cancel:
        """Close a waiting row, ask the holder of a leased one to stop. Never touches a heartbeat or a lease."""
        life = self.life
        is_waiting = f"status = '{life.waiting}'"
        sql = f"""
            UPDATE {self.model._meta.db_table} SET
              status = CASE WHEN {is_waiting} THEN '{life.cancelled}' ELSE status END,
              {life.finished_at} = CASE WHEN {is_waiting} THEN now() ELSE {life.finished_at} END,
              ended_by = CASE WHEN {is_waiting} THEN '{EndedBy.PERSON}' END,
              cancel_requested_at = now(), cancel_requested_by = %(by)s, cancel_reason = %(reason)s
            WHERE id = %(row_id)s
              AND ({is_waiting} OR (status IN ({words(life.leased)}) AND cancel_requested_at IS NULL))
            RETURNING status = '{life.cancelled}'"""
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, {"row_id": row_id, "by": by, "reason": reason})
            found = cursor.fetchone()
        if found is None:
            return Cancel.UNCHANGED
        return Cancel.CLOSED if found[0] else Cancel.ASKED

    def force_cancel(self, row_id: UUID, *, by: str, reason: str) -> bool:
        """Close an unfinished row at once, whoever holds it; its agent may still be working. False if it had ended."""
        life = self.life
        sql = f"""
            UPDATE {self.model._meta.db_table} SET status = '{life.cancelled}', {life.finished_at} = now(),
              ended_by = '{EndedBy.PERSON}', cancel_requested_at = coalesce(cancel_requested_at, now()),
              cancel_requested_by = %(by)s, cancel_reason = %(reason)s
            WHERE id = %(row_id)s AND status IN ({words(life.unfinished)}) RETURNING id"""
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, {"row_id": row_id, "by": by, "reason": reason})
            return cursor.fetchone() is not None

    def retry(self, row: Row, *, delay: timedelta = timedelta()) -> Row | None:
        """Insert the next attempt of a failed row; None when it has one already (`retry_of` is unique).

        Its columns are copied inside the database: what a SQL client stored need not survive a trip through Python.
        Raises KeyHeld when another live row took the dedupe key meanwhile.
        """
        table = self.model._meta.db_table
        copied = ", ".join(self._field(name).column for name in self.model.carried)
        sql = f"""
            INSERT INTO {table} ({copied}, root_id, attempt, retry_of, not_before)
            SELECT {copied}, coalesce(root_id, id), attempt + 1, id, now() + %(delay)s::interval
            FROM {table} WHERE id = %(row_id)s
            ON CONFLICT (retry_of) WHERE retry_of IS NOT NULL DO NOTHING RETURNING *"""
        try:
            return self._one(sql, {"row_id": row.pk, "delay": delay or None})
        except IntegrityError as conflict:
            if violated(conflict).endswith("_dedupe_idx"):
                raise KeyHeld(row) from None
            raise

    def _retry_by_class(self, row: Row) -> Row | None:
        """The automatic retry, in the transaction of the write that failed the row.

        Never after a person's cancel request, and never for a row that plain SQL leased: its client decides.
        """
        by_clock = row.cancel_requested_at == row.overdue_at and row.cancel_requested_by == CLOCK
        is_cancelled = row.cancel_requested_at is not None and not by_clock
        if row.status != self.life.failed or is_cancelled or not row.claim_id:
            return None
        failures = self.chain(row.chain_id).filter(failure_class=row.failure_class).count()
        delay = self._policy(row).next_delay(
            row.failure_class, failures=failures, attempt=row.attempt, max_attempts=row.max_attempts, row_id=row.pk
        )
        return None if delay is None else self.retry(row, delay=delay)

    def _policy(self, row: Row) -> RetryPolicy:
        """What the row's kind says now: whoever mends a policy in an incident means the work that is under way too."""
        life = self.life
        if not life.kinds:
            return DEFAULT_POLICY
        sql = f"""SELECT retry_rules, retry_jitter_percent FROM {life.kinds}
            WHERE name = (SELECT {life.kind} FROM {self.model._meta.db_table} WHERE id = %(row_id)s)"""
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, {"row_id": row.pk})
            found = cursor.fetchone()
        return policy_of(json.loads(found[0], cls=StoredDocument), found[1]) if found else DEFAULT_POLICY

    # -- the clock ---------------------------------------------------------------------------------------------------

    def reap(self, *, up_since: datetime | None = None, unheld_seconds: Mapping[str, int] | None = None) -> list[Row]:
        """Close leased rows whose holder fell silent for longer than the lease; returns them, at most 500 a call.

        Silence counts from `up_since` when that is later: nobody could be heard before. A row that plain SQL leased
        (no claim id) has no heartbeat to miss; it is closed after its kind's limit in `unheld_seconds`. A row past its
        maximum run time is closed when its holder did not stop, however often it beats. A heartbeat or result that
        commits first wins, since the rows are chosen under lock. Failed rows get their retry here.
        """
        life, table = self.life, self.model._meta.db_table
        # Plain SQL may say infinity, which is no sign of life: such a row would never be closed.
        signs = dict.fromkeys(["heartbeat_at", life.claimed_at, "started_at", "created_at"])
        sign = "coalesce(" + ", ".join(f"nullif({column}, 'infinity')" for column in signs) + ", '-infinity')"
        limit = f"coalesce((%(unheld)s::jsonb ->> {life.kind})::float8, {DEFAULT_SECONDS})"
        outcome = {
            "status": f"CASE WHEN cancel_requested_at IS NULL OR {ASKED_BY_CLOCK} THEN '{life.failed}'"
            f" ELSE '{life.cancelled}' END",
            "failure_class": f"CASE WHEN {ASKED_BY_CLOCK} THEN 'timeout' WHEN cancel_requested_at IS NOT NULL THEN NULL"
            " WHEN claim_id IS NULL THEN 'timeout' ELSE 'lost' END",
            life.error: f"CASE WHEN {ASKED_BY_CLOCK} THEN '{PASSED}' WHEN cancel_requested_at IS NOT NULL"
            " THEN 'The agent did not confirm the cancel before its lease lapsed.'"
            " WHEN claim_id IS NULL THEN 'Its kind''s maximum run time has passed.'"
            " ELSE 'The agent fell silent and its lease lapsed.' END",
            life.finished_at: "now()",
            "ended_by": f"'{EndedBy.REAPER}'",
        }
        if life.error_code:
            outcome[life.error_code] = (
                f"CASE WHEN {ASKED_BY_CLOCK} THEN 'max_runtime' WHEN cancel_requested_at IS NOT NULL THEN NULL"
                " WHEN claim_id IS NULL THEN 'max_runtime' ELSE 'heartbeat_lost' END"
            )
        sql = f"""
            WITH silent AS MATERIALIZED (
              SELECT id FROM {table} WHERE status IN ({words(life.leased)}) AND CASE WHEN claim_id IS NULL
                THEN {sign} < now() - make_interval(secs => {limit})
                ELSE greatest({sign}, %(up_since)s::timestamptz) < now() - make_interval(secs => lease_seconds)
                  OR {ignored_sql()} END
              LIMIT {REAP_BATCH} FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE {table} SET {assignments(outcome)} FROM silent WHERE {table}.id = silent.id {self._closed}"""
        with transaction.atomic(using=self.db):
            closed = list(self.raw(sql, {"unheld": Jsonb(dict(unheld_seconds or {})), "up_since": up_since}))
            for row in closed:
                self._retry_by_class(row)
        return closed

    def stop_overdue(self) -> list[Row]:
        """Ask the holders of rows past their maximum run time to stop; returns the rows, at most 500 a call."""
        table = self.model._meta.db_table
        return list(self.raw(ask_sql(table, self.life, batch=REAP_BATCH, returning=self._closed)))

    def expire(self) -> list[Row]:
        """Cancel waiting rows whose `expires_at` has passed; returns them, at most 500 a call."""
        life, table = self.life, self.model._meta.db_table
        sql = f"""
            WITH late AS MATERIALIZED (
              SELECT id FROM {table} WHERE status = '{life.waiting}' AND expires_at <= now()
              ORDER BY expires_at LIMIT {REAP_BATCH} FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE {table} SET status = '{life.cancelled}', {life.finished_at} = now(), ended_by = '{EndedBy.SYSTEM}',
              cancel_requested_at = now(), cancel_requested_by = 'agentstore', cancel_reason = 'expired'
            FROM late WHERE {table}.id = late.id {self._closed}"""
        return list(self.raw(sql))

    @property
    def _closed(self) -> str:
        """What the clock reads back of the rows it closes; their documents stay where they are."""
        return "RETURNING " + ", ".join(f"{self.model._meta.db_table}.{column}" for column in CLOSED)

    # -- the parts ---------------------------------------------------------------------------------------------------

    @property
    def _read_by_claim(self) -> tuple[str, ...]:
        return server_bound.columns(self.model, self.model.read_by_claim)

    @property
    def _agent_attribute(self) -> str:
        attribute: str = self._field("agent").attname
        return attribute

    def _field(self, name: str) -> Any:
        return self.model._meta.get_field(name)

    def _refuse(self, holder: Holder) -> NoReturn:
        """Say why the holder's conditional write hit no row."""
        row = self.filter(pk=holder.row_id, **{self._agent_attribute: holder.agent}).first()
        if row is None:
            raise UnknownRow
        if row.claim_id != holder.claim_id or row.ended_by == EndedBy.REAPER or row.status in self.life.leased:
            raise LeaseLost(row)
        raise Ended(row)

    def _one(self, sql: str, params: Mapping[str, object]) -> Row | None:
        """The one row that a statement returns, or None."""
        with server_bound.savepoint(self.db):
            return next(iter(self.raw(sql, dict(params))), None)


def violated(conflict: IntegrityError) -> str:
    """The name of the constraint that an IntegrityError speaks of, or an empty text."""
    diagnosis = getattr(conflict.__cause__, "diag", None)
    return (diagnosis and diagnosis.constraint_name) or ""
