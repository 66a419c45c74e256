"""The claim, in one statement.

`replay` comes first: `<table>_by_claim` (a function of ours) locks the claim id for this transaction and then looks it
up in a snapshot of its own, so that of simultaneous requests with one id one claims and every other sees what it got.
`pool` reads the head of each kind's queue through a partial index: `kind = ANY(...)` would walk past every other kind
that waits ahead. `picked` goes through them in order and locks the first that nobody else is claiming at this moment,
each by its key: a plain join would let the planner read the whole queue, and so would a status that an index can look
up (hence IS TRUE). MATERIALIZED keeps it from running the locking
sub-select more than once, which would lease several rows.
"""

from functools import cache

from .lifecycle import Lifecycle

HEADS_PER_KIND = 16  # candidates of a kind that one round of a claim looks at


def words(statuses: tuple[str, ...]) -> str:
    """Status words as a list of SQL literals; they come from a Lifecycle, never from a request."""
    return ", ".join(f"'{word}'" for word in statuses)


def lookup_function_sql(table: str) -> tuple[str, str]:
    """SQL that creates, and SQL that drops, the look-up of a claim id which waits for its twins."""
    create = f"""
    CREATE OR REPLACE FUNCTION {table}_by_claim(wanted uuid) RETURNS SETOF {table} LANGUAGE plpgsql VOLATILE ROWS 1
    AS $$
    DECLARE
        locked text := pg_advisory_xact_lock(hashtextextended('{table}:' || wanted::text, 0));
    BEGIN
        RETURN QUERY SELECT * FROM {table} WHERE claim_id = wanted;
    END $$"""
    return create, f"DROP FUNCTION {table}_by_claim(uuid)"


@cache
def claim_sql(table: str, life: Lifecycle, *, one_row: bool, written: tuple[str, ...], read: tuple[str, ...]) -> str:
    """The claim's SQL: `written` columns are set beside the lease unless NULL; `one_row` asks for one row by its id.

    Parameters: claim_id, agent, kinds and capabilities (text[]), row_id where `one_row`, and one per written column.
    Answers at most one row: its outcome, now(), the maximum run time in seconds of its kind, and the columns `read`.
    The outcome is new, replay, busy (then it is the row that keeps the agent busy) or taken: rows waited, and others
    had each of them.
    """
    key = life.concurrency_key
    key_is_free = (
        key
        and f"""AND (waiting.{key} IS NULL OR NOT EXISTS (
            SELECT FROM {table} AS held WHERE held.{key} = waiting.{key} AND held.status IN ({words(life.leased)})))"""
    )
    looks_open, is_open = ((f"AND {life.admits.format(sure)}" if life.admits else "") for sure in ("false", "true"))
    open_row = f"""waiting.{life.agent} = %(agent)s AND waiting.status = '{life.waiting}'
          AND (waiting.not_before IS NULL OR waiting.not_before <= now())
          AND (waiting.expires_at IS NULL OR waiting.expires_at > now()) {key_is_free or ""} {looks_open}
          {f"AND {life.capable}" if life.capable else ""}"""
    rank = f"id, waiting.priority, waiting.{life.queued_at}"
    if one_row:
        heads = f"""SELECT waiting.{rank} FROM {table} AS waiting
        WHERE waiting.id = %(row_id)s AND waiting.{life.kind} = ANY(%(kinds)s::text[]) AND {open_row} AND"""
    else:
        heads = f"""SELECT head.* FROM unnest(%(kinds)s::text[]) AS wanted(kind) CROSS JOIN LATERAL (
        SELECT waiting.{rank} FROM {table} AS waiting
        WHERE waiting.{life.kind} = wanted.kind AND {open_row}
        ORDER BY waiting.priority DESC, waiting.{life.queued_at}, waiting.id LIMIT {HEADS_PER_KIND}
      ) AS head WHERE"""
    busy = f"""busy AS MATERIALIZED (
      SELECT * FROM {table} WHERE {life.agent} = %(agent)s AND status IN ({words(life.leased)})
        AND NOT EXISTS (SELECT FROM replay) LIMIT 1
    ),"""
    also = "".join(f", {column} = coalesce(%({column})s, {column})" for column in written)
    columns = ", ".join(read)
    limit = f"(SELECT max_run_seconds FROM {life.kinds} WHERE name = {life.kind})" if life.kinds else "NULL::int"
    return f"""
    WITH replay AS MATERIALIZED (
      SELECT * FROM {table}_by_claim(%(claim_id)s)
    ), {busy if life.exclusive else ""} pool AS MATERIALIZED (
      {heads} NOT EXISTS (SELECT FROM replay) {"AND NOT EXISTS (SELECT FROM busy)" if life.exclusive else ""}
        AND EXISTS (SELECT FROM agents WHERE agents.{life.agent_key} = %(agent)s
          AND (agents.state = 'active' OR agents.state_until <= now()))
    ), picked AS MATERIALIZED (
      SELECT first.id FROM (SELECT * FROM pool ORDER BY priority DESC, {life.queued_at}, id) AS best
      CROSS JOIN LATERAL (
        SELECT waiting.id FROM {table} AS waiting WHERE waiting.id = best.id
          AND (waiting.status = '{life.waiting}') IS TRUE {is_open}
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
      ) AS first LIMIT 1
    ), claimed AS (
      UPDATE {table} SET status = '{life.leased[0]}', claim_id = %(claim_id)s, {life.claimed_at} = now(),
        heartbeat_at = now(){also}
      WHERE id = (SELECT id FROM picked) RETURNING {columns}
    ){f", along AS ({life.on_claim})" if life.on_claim else ""}
    SELECT outcome, now(), {limit}, {columns} FROM (
      SELECT 'new' AS outcome, {columns} FROM claimed
      UNION ALL SELECT 'replay', {columns} FROM replay
      {f"UNION ALL SELECT 'busy', {columns} FROM busy" if life.exclusive else ""}
      UNION ALL SELECT 'taken', {columns} FROM (SELECT (NULL::{table}).*) AS nobody
        WHERE EXISTS (SELECT FROM pool) AND NOT EXISTS (SELECT FROM claimed)
    ) AS found
    """
