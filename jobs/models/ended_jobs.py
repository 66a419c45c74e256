"""How jobs ended, day by day: two bounded readings of one index, however many jobs there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

A_DAY_AT_MOST = 50_000  # jobs that are counted of one day
SAMPLE = 100  # jobs of each hour whose times are looked at

# `failed` alone may have a retry, which then stands for the chain. OFFSET keeps the planner from hashing all jobs to
# look a few up.
OUTCOMES = """
SELECT passed, risk, fail, unjudged, failed, cancelled, passed + risk + fail + unjudged + failed + cancelled
FROM unnest(%(since)s::timestamptz[], %(until)s::timestamptz[]) WITH ORDINALITY AS days (since, until, number)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'done' AND verdict = 'pass') AS passed,
        count(*) FILTER (WHERE status = 'done' AND verdict = 'risk') AS risk,
        count(*) FILTER (WHERE status = 'done' AND verdict = 'fail') AS fail,
        count(*) FILTER (WHERE status = 'done' AND verdict IS NULL) AS unjudged,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM (
        SELECT status, verdict FROM agent_jobs AS job
        WHERE finished_at >= days.since AND finished_at < days.until
            AND (
                status <> 'failed'
                OR NOT EXISTS (SELECT FROM agent_jobs AS later WHERE later.retry_of = job.id OFFSET 0)
            )
        LIMIT %(limit)s
    ) AS ended
) AS counted
ORDER BY number
"""
# The subtraction of numbers, since an SQL client may store times before their beginning, or none that is finite.
TIMES = """
SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY waited),
    percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY worked)
FROM unnest(%(since)s::timestamptz[], %(until)s::timestamptz[]) WITH ORDINALITY AS days (since, until, number)
LEFT JOIN LATERAL (
    SELECT greatest(0, extract(epoch FROM started_at) - extract(epoch FROM greatest(queued_at, not_before)))::float8
            AS waited,
        greatest(0, extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 AS worked
    FROM generate_series(days.since, days.until - interval '1 second', interval '1 hour') AS hour
    CROSS JOIN LATERAL (
        SELECT queued_at, not_before, started_at, finished_at FROM agent_jobs
        WHERE finished_at >= hour AND finished_at < least(hour + interval '1 hour', days.until)
            AND isfinite(started_at) AND isfinite(queued_at) AND isfinite(coalesce(not_before, queued_at))
        ORDER BY finished_at LIMIT %(sample)s
    ) AS ended
) AS took ON true
GROUP BY number ORDER BY number
"""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What the chains whose latest attempt ended on one day came to."""

    passed: int
    risk: int
    fail: int
    unjudged: int
    failed: int
    cancelled: int
    total: int

    @property
    def wrong(self) -> int:
        """Failures and risks."""
        return self.risk + self.fail + self.failed

    @property
    def is_capped(self) -> bool:
        """Whether more ended on that day than were counted."""
        return self.total >= A_DAY_AT_MOST


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds that half, and that 95 of 100 attempts took at most; None where nothing was done."""

    median: float | None
    most: float | None


def outcomes(days: Sequence[tuple[datetime, datetime]]) -> list[Outcomes]:
    """What ended in each span, from its first moment to before its last."""
    names = tuple(Outcomes.__dataclass_fields__)
    return [Outcomes(**dict(zip(names, row, strict=True))) for row in _read(OUTCOMES, days)]


def times(days: Sequence[tuple[datetime, datetime]]) -> list[tuple[Times, Times]]:
    """How long attempts waited for their agent, and how long it worked on them; of SAMPLE that ended in each hour."""
    return [(_times(waited), _times(worked)) for waited, worked in _read(TIMES, days)]


def _times(found: list[float] | None) -> Times:
    median, most = found or (None, None)
    return Times(median=median, most=most)


def _read(sql: str, days: Sequence[tuple[datetime, datetime]]) -> list[tuple[Any, ...]]:
    spans = {"since": [since for since, _until in days], "until": [until for _since, until in days]}
    with connection.cursor() as cursor:
        cursor.execute(sql, spans | {"limit": A_DAY_AT_MOST, "sample": SAMPLE})
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
