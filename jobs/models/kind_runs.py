"""The last runs of one kind with the states of their checks: bounded, and safe from whatever SQL clients store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

LOOKED_AT = 2_000  # of the kind, newest first; those of an agent, schedule or label are looked for among them
RUNS_AT_MOST = 50
CHECKS_AT_MOST = 200  # of one run
BYTES_AT_MOST = 1024 * 1024  # of one document, as stored: a larger one is not opened

# Of each document only the few members that are shown leave the database, each cut to a length.
RUNS = """
WITH looked_at AS (
    SELECT id, principal_key, schedule_id, labels, finished_at FROM agent_jobs
    WHERE kind = %(kind)s AND finished_at > '1900-01-01' AND finished_at < '9000-01-01' AND status IN ('done', 'failed')
    ORDER BY finished_at DESC LIMIT %(looked_at)s
), chosen AS (
    SELECT id FROM looked_at
    WHERE (%(agent)s = '' OR principal_key = %(agent)s)
        AND (%(schedule)s::uuid IS NULL OR schedule_id = %(schedule)s)
        AND (%(label)s = '' OR labels ->> %(label)s = %(value)s)
    ORDER BY finished_at DESC LIMIT %(runs)s
)
SELECT job.id, status, verdict, left(failure_class, 40), principal_key, finished_at,
    CASE WHEN isfinite(started_at)
        THEN greatest(0, extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 END,
    CASE WHEN pg_column_size(spec) <= %(bytes)s THEN md5(spec::text) END,
    coalesce(pg_column_size(results) > %(bytes)s, false),
    checks.found
FROM agent_jobs AS job JOIN chosen USING (id)
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(
        left(item ->> 'id', 100), left(item ->> 'title', 200), left(item ->> 'status', 20), item -> 'flaky' = 'true'
    ) ORDER BY number) AS found
    FROM jsonb_array_elements(CASE
        WHEN pg_column_size(results) > %(bytes)s THEN '[]'
        WHEN jsonb_typeof(results -> 'checks') = 'array' THEN results -> 'checks'
        ELSE '[]' END) WITH ORDINALITY AS listed (item, number)
    WHERE number <= %(checks)s
) AS checks
ORDER BY finished_at DESC, job.id
"""


@dataclass(frozen=True, kw_only=True)
class CheckState:
    """What one run says of one check; all of it is text that anybody may have written."""

    key: str
    title: str
    status: str
    is_flaky: bool  # by the runner's own word: it passed on another try


@dataclass(frozen=True, kw_only=True)
class Run:
    """One attempt that ended."""

    id: UUID
    status: str
    verdict: str | None
    failure_class: str | None
    agent: str
    finished_at: datetime
    seconds: float | None
    spec_digest: str | None  # None: too large to look at
    is_too_large: bool  # its results are not looked at
    checks: Sequence[CheckState]

    @property
    def outcome(self) -> str:
        """Its verdict, or `failed` or `done` without one."""
        return self.verdict if self.status == "done" and self.verdict else self.status


def last_runs(
    *, kind: str, agent: str = "", schedule: UUID | None = None, label: tuple[str, str] = ("", ""), runs: int
) -> list[Run]:
    """The last `runs` attempts of a kind that ended, newest first; of an agent, schedule or label if it is given."""
    asked = {
        "kind": kind, "agent": agent, "schedule": schedule, "label": label[0], "value": label[1],
        "runs": min(runs, RUNS_AT_MOST), "looked_at": LOOKED_AT, "bytes": BYTES_AT_MOST, "checks": CHECKS_AT_MOST,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(RUNS, asked)
        return [_run(row) for row in cursor.fetchall()]


def _run(row: tuple[Any, ...]) -> Run:
    key, status, verdict, failure_class, agent, finished_at, seconds, digest, is_too_large, checks = row
    return Run(
        id=key, status=status, verdict=verdict, failure_class=failure_class, agent=agent, finished_at=finished_at,
        seconds=seconds, spec_digest=digest, is_too_large=is_too_large,
        checks=[
            CheckState(key=name or title, title=title or name, status=state or "", is_flaky=bool(flaky))
            for name, title, state, flaky in json.loads(checks or "[]")
            if name or title
        ],
    )  # fmt: skip
