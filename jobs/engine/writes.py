"""The SQL of a holder's writes. Each is put together once: a runner sends the same few statements all day."""

from collections.abc import Mapping
from functools import cache

from .claim import words
from .leased import Leased
from .lifecycle import EndedBy
from .run_time import ASKED_BY_CLOCK, PASSED
from .server_bound import NO_WAIT_FOR_DISK

STOPPED_UNASKED = "The runner stopped, and nobody had asked it to."


def assignments(written: Mapping[str, str]) -> str:
    """The SET list that gives each column its expression."""
    return ", ".join(f"{column} = {value}" for column, value in written.items())


@cache
def beat_sql(model: type[Leased], written: tuple[str, ...], *, durable: bool) -> str:
    """A sign of life that also makes the assignments `written`; unless `durable`, its commit does not wait.

    Parameters: row_id, claim_id, agent, and those of the assignments. Answers with the fields of a Pulse.
    """
    return f"""
        UPDATE {model._meta.db_table} SET heartbeat_at = now(), {", ".join(written)},
          cancel_delivered_at = CASE WHEN cancel_requested_at IS NULL THEN NULL
            ELSE coalesce(cancel_delivered_at, now()) END
        WHERE {_held(model)}
        RETURNING now(), now() + make_interval(secs => lease_seconds), lease_seconds,
          cancel_requested_at, cancel_requested_by, cancel_reason{"" if durable else f", {NO_WAIT_FOR_DISK}"}"""


@cache
def finish_sql(model: type[Leased], columns: tuple[str, ...], read: tuple[str, ...]) -> str:
    """The end of an attempt, which also sets `columns` and reads `read` back.

    Parameters: row_id, claim_id, agent, status, failure_class, error, digest, and one per column. `cancelled` that
    nobody asked for is written as failed and interrupted, and as failed and timeout where the clock asked for it.
    """
    life = model.lifecycle
    unasked = f"%(status)s::text = '{life.cancelled}' AND cancel_requested_at IS NULL"
    timed_out = f"%(status)s::text = '{life.cancelled}' AND {ASKED_BY_CLOCK}"
    written = {
        "status": f"CASE WHEN {unasked} OR {timed_out} THEN '{life.failed}' ELSE %(status)s END",
        "failure_class": f"CASE WHEN {unasked} THEN 'interrupted' WHEN {timed_out} THEN 'timeout'"
        " ELSE %(failure_class)s END",
        life.error: f"CASE WHEN {unasked} THEN coalesce(%(error)s, '{STOPPED_UNASKED}')"
        f" WHEN {timed_out} THEN coalesce(%(error)s, '{PASSED}') ELSE %(error)s END",
        life.finished_at: "now()", "heartbeat_at": "now()", "ended_by": f"'{EndedBy.RUNNER}'",
        "result_digest": "%(digest)s",
    } | {column: f"%({column})s" for column in columns}  # fmt: skip
    table = model._meta.db_table
    return f"UPDATE {table} SET {assignments(written)} WHERE {_held(model)} RETURNING {', '.join(read)}"


def _held(model: type[Leased]) -> str:
    life = model.lifecycle
    return (
        f"id = %(row_id)s AND claim_id = %(claim_id)s AND {life.agent} = %(agent)s AND status IN ({words(life.leased)})"
    )
