"""The calls of a runner over HTTP, by the CPU of the web server and PostgreSQL together."""

import json
import subprocess
import sys
from typing import Any
from uuid import uuid4

from agentstore.config import REPOSITORY
from agentstore.supervisor import Parts
from bench.ground import Database, Used, Web
from bench.report import Report

PORT = 8470
ROUNDS, BEATS, CYCLES = 7, 400, 150


class Runner:
    """One agent's client of one web server."""

    def __init__(self, web: Web, made: dict[str, Any]) -> None:
        self._web, self._made = web, made

    def beats(self, count: int) -> Used:
        """Send heartbeats of one running job."""
        path, body = f"jobs/{self._made['job']}/heartbeat", {"claim_id": self._made["claim_id"]}
        meter = self._web.meter()
        for done in range(count):
            progress = {"progress": {"done": done, "total": count, "title": "checking"}}
            self._web.send("POST", path, body | progress, self._made["bearer"])
        return Used(cpu=meter.microseconds() / count, seconds=0)

    def cycles(self, count: int) -> Used:
        """Claim a job and post its result, one after the other."""
        runner = {"name": "bench", "version": "1.0.0"}
        meter = self._web.meter()
        for _ in range(count):
            claim_id = str(uuid4())
            claim = {"claim_id": claim_id, "kinds": ["echo"], "runner": runner}
            job = self._web.send("POST", "jobs/claim", claim, self._made["bearer"])
            result = {"claim_id": claim_id, "status": "done", "verdict": "pass", "results": {"summary": "well"}}
            self._web.send("PUT", f"jobs/{job['id']}/result", result, self._made["bearer"])
        return Used(cpu=meter.microseconds() / count, seconds=0)


def prepared(database: Database) -> tuple[dict[str, Any], dict[str, str]]:
    """What a client needs to know of a database that had nothing yet, and the environment of its web servers."""
    made = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.prepare"], env=database.environment, cwd=REPOSITORY, check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )  # fmt: skip
    beat = json.dumps({"look_up": made["look_up"], "beat": made["beat"], "agent": "bench"})
    return made, database.environment | {"BENCH_BEAT": beat}


def enqueue(database: Database, count: int) -> None:
    """Queue jobs for the runner."""
    database.run(
        """INSERT INTO agent_jobs (principal_key, kind, spec)
        SELECT 'bench', 'echo', '{"path": "/"}' FROM generate_series(1, %s::int)""",
        count,
    )


def counters(database: Database) -> tuple[int, int]:
    """Transactions and sessions of the database so far, once every session has told its own."""
    (found,) = database.run("SELECT xact_commit, sessions FROM pg_stat_database WHERE datname = current_database()")
    return int(found[0]), int(found[1])


def measure(report: Report, database: Database) -> list[Used]:
    """Heartbeats against their floors; claims with their results, returned for comparison with a peer."""
    made, environment = prepared(database)
    parts = Parts()
    try:
        ours = Runner(Web(parts, PORT, environment, "agentstore.wsgi:application"), made)
        plain_settings = environment | {"DJANGO_SETTINGS_MODULE": "bench.plain_settings"}
        plain = Runner(Web(parts, PORT + 1, plain_settings, "agentstore.wsgi:application"), made)
        bare = Runner(Web(parts, PORT + 2, environment, "bench.bare:application"), made)
        sides = (ours, plain, bare)
        for side in sides:
            side.beats(50)  # connections are open, statements prepared, modules loaded
        before = counters(database)
        rounds = [[side.beats(BEATS) for side in sides] for _ in range(ROUNDS)]
        calls = ROUNDS * BEATS * len(sides)
        transactions, sessions = (now - then for now, then in zip(counters(database), before, strict=True))
        report.figure("statements of a heartbeat, each a transaction", transactions / calls, "statements", "<= 2.05")
        report.figure("connections opened meanwhile", sessions - 1, "connections", "<= 0")  # one asks for this
        beats, plains, bares = (list(column) for column in zip(*rounds, strict=True))
        for name, used in (("heartbeat over HTTP", beats), ("plain Django view", plains), ("bare WSGI", bares)):
            report.figure(name, sorted(one.cpu for one in used)[ROUNDS // 2], "µs of CPU")
        report.cpu_ratio("heartbeat over HTTP / bare WSGI", beats, bares, "<= 2.2")
        report.cpu_ratio("heartbeat over HTTP / plain Django view", beats, plains, "<= 1.3")

        enqueue(database, 20 + ROUNDS * CYCLES)
        ours.cycles(20)
        return [ours.cycles(CYCLES) for _ in range(ROUNDS)]
    finally:
        parts.stop()
