"""The engine in a process of its own: enqueues, claims and finishes one durable job at a time when told to.

Speaks the protocol of every worker of the bench: a line with a number on standard input enqueues so many jobs and is
answered `armed`; the next line starts the work, answered with the CPU microseconds and the seconds that it took.
"""

import json
import sys
import time
from collections.abc import Callable
from uuid import uuid4

import django

django.setup()

from django.db import connection  # noqa: E402  (after the setup)

from jobs.engine.answers import Holder  # noqa: E402
from jobs.models import AgentJob  # noqa: E402

AGENT = "bench"


def enqueue(count: int, kinds: list[str]) -> None:
    """Queue jobs of all kinds in turn."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO agent_jobs (principal_key, kind, spec)
            SELECT %s, (%s::text[])[1 + n %% %s], '{"path": "/"}' FROM generate_series(1, %s) AS n""",
            [AGENT, kinds, len(kinds), count],
        )


def claim(kinds: list[str]) -> AgentJob:
    """Claim one job, which must be there."""
    leasing = AgentJob.objects.claim(uuid4(), agent=AGENT, kinds=kinds, digest="0" * 64, claimed_by="bench/1")
    assert leasing is not None
    return leasing.row


def cycle(kinds: list[str]) -> None:
    """Claim one job and finish it."""
    row = claim(kinds)
    assert row.claim_id
    holder = Holder(row.pk, row.claim_id, AGENT)
    AgentJob.objects.finish(holder, "done", digest="bench", error=None, failure_class=None, verdict="pass")


class Beats:
    """Heartbeats over some running jobs in turn, with news of the progress or without."""

    def __init__(self, kinds: list[str], *, with_progress: bool) -> None:
        self._with_progress = with_progress
        enqueue(20, kinds)
        rows = [claim(kinds) for _ in range(20)]
        self._holders = [Holder(row.pk, row.claim_id, AGENT) for row in rows if row.claim_id]
        self._turn = 0

    def __call__(self, _kinds: list[str]) -> None:
        self._turn += 1
        progress = {"done": self._turn, "total": 100, "title": "checking"}
        holder = self._holders[self._turn % len(self._holders)]
        AgentJob.objects.heartbeat(holder, progress=progress if self._with_progress else None)


def main() -> None:
    """Run `cycle`, `claim`, `beat` or `beat-with-progress` over the kinds that the arguments name."""
    act, kinds = sys.argv[1], sys.argv[2:]
    beats = act.startswith("beat")
    acts: dict[str, Callable[[list[str]], object]] = {"cycle": cycle, "claim": claim}
    work = Beats(kinds, with_progress=act == "beat-with-progress") if beats else acts[act]
    for line in sys.stdin:
        count = int(line)
        if not beats:
            enqueue(count, kinds)
        print("armed", flush=True)
        sys.stdin.readline()
        began, cpu = time.monotonic(), time.process_time()
        for _ in range(count):
            work(kinds)
        used = {"cpu": (time.process_time() - cpu) * 1e6, "seconds": time.monotonic() - began}
        if beats:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_stat_force_next_flush()")
        print(json.dumps(used), flush=True)


if __name__ == "__main__":
    main()
