"""The maximum run time: a third clock beside lease and progress. A heartbeat prolongs a lease, never this one.

Past it the system asks the holder to stop, as a person's cancel does; `overdue_at` says when. A row that stops for no
other reason ends as failed / timeout, and so does one that goes on beating for a lease and the grace after that.
"""

from .claim import words
from .lifecycle import Lifecycle

DEFAULT_SECONDS = 24 * 3600  # where neither the row nor its kind says how long the work may take
GRACE_SECONDS = 30  # what a runner may take to stop well after it learnt that it shall
REASON = "maximum run time"
PASSED = "Its maximum run time has passed."

CLOCK = "agentstore"  # who asks
# The system was the one who asked: a cancel by a person before that keeps its own time, and its own name should both
# fall into one microsecond.
ASKED_BY_CLOCK = f"(overdue_at = cancel_requested_at AND cancel_requested_by = '{CLOCK}')"


def limit_sql(life: Lifecycle) -> str:
    """SQL of the seconds that the work of a row may take: what its document says, else its kind, else a day."""
    of_kind = f"(SELECT max_run_seconds FROM {life.kinds} WHERE name = {life.kind})" if life.kinds else "NULL"
    return f"coalesce({life.run_limit or 'NULL'}, {of_kind}, {DEFAULT_SECONDS})"


def ask_sql(table: str, life: Lifecycle, *, batch: int, returning: str) -> str:
    """SQL that asks the holders of rows past their limit to stop."""
    return f"""
        WITH late AS MATERIALIZED (
          SELECT id FROM {table} WHERE status IN ({words(life.leased)}) AND claim_id IS NOT NULL AND overdue_at IS NULL
            AND coalesce(nullif({life.claimed_at}, 'infinity'), '-infinity')
              < now() - make_interval(secs => {limit_sql(life)})
          LIMIT {batch} FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE {table} SET overdue_at = now(), cancel_requested_at = coalesce(cancel_requested_at, now()),
          cancel_requested_by = coalesce(cancel_requested_by, '{CLOCK}'),
          cancel_reason = CASE WHEN cancel_requested_at IS NULL THEN '{REASON}' ELSE cancel_reason END
        FROM late WHERE {table}.id = late.id {returning}"""


def ignored_sql() -> str:
    """SQL of whether the holder of a row past its limit had its time to stop, counted while it could be heard."""
    return (
        "overdue_at IS NOT NULL AND greatest(overdue_at, %(up_since)s::timestamptz)"
        f" < now() - make_interval(secs => lease_seconds + {GRACE_SECONDS})"
    )
