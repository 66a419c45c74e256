"""The engine on its own: against its peers, with a long history, behind other work, and what a heartbeat writes."""

import os
from collections.abc import Sequence
from statistics import median

from bench.ground import BENCH, REPOSITORY, Database, Used, Worker, peers, say
from bench.report import Report

AHEAD = 100_000
ROUNDS, CYCLES = 7, 150
KINDS = ("first", "second", "third")


def peer(name: str, database: Database) -> Worker:
    """A worker of another queue, in a database of its own on the same server."""
    if name == "procrastinate":
        script = REPOSITORY / "bench" / "peers" / "procrastinate_worker.py"
        return Worker([str(peers()[name]), str(script), database.url], dict(os.environ))
    where = {"PGHOST": database.url.partition("host=")[2].replace("%2F", "/"), "PGUSER": "agentstore",
             "PGDATABASE": database.name}  # fmt: skip
    script = REPOSITORY / "bench" / "peers" / "graphile_worker.mjs"
    return Worker([os.environ.get("NODE", "node"), str(script), str(BENCH / "npm")], {**os.environ, **where})


def against_peers(report: Report, database: Database, over_http: Sequence[Used]) -> None:
    """One durable job at a time, claimed and finished: ours and theirs in turn."""
    goals = {"procrastinate": "<= 0.3", "graphile-worker": "<= 0.55"}
    workers = {"engine": Worker.of_engine(database, "cycle", "cycled")}
    for name in goals:
        if name in peers():
            workers[name] = peer(name, Database("template1").copy(f"bench_{name}"))
        else:
            say(f"{name} is not installed and is left out.")
    for worker in workers.values():
        worker.round(50)
    rounds = [{name: worker.round(CYCLES) for name, worker in workers.items()} for _ in range(ROUNDS)]
    for name, worker in workers.items():
        worker.close()
        report.figure(f"{name}, one job", median(used[name].cpu for used in rounds), "µs of CPU")
    ours = [used["engine"] for used in rounds]
    for name, goal in goals.items():
        if name in workers:
            report.cpu_ratio(f"claim and finish in the engine / {name}", ours, [used[name] for used in rounds], goal)
    if "procrastinate" in workers:
        theirs = [used["procrastinate"] for used in rounds]
        report.figure("claim to result over HTTP", median(used.cpu for used in over_http), "µs of CPU")
        report.cpu_ratio("claim to result over HTTP / procrastinate in its process", over_http, theirs, "<= 1.5")


def fill(database: Database, count: int) -> None:
    """Finished rows of the agent whose jobs are claimed, without the history that would take hours."""
    database.run("INSERT INTO agents (principal_key) VALUES ('bench')")
    database.run("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
    database.run(
        """INSERT INTO agent_jobs (id, root_id, principal_key, kind, status, queued_at, started_at, finished_at)
        SELECT id, id, 'bench', 'echo', 'done', at, at, at FROM (
          SELECT gen_random_uuid() AS id, now() - interval '1 day' * (n %% 365) AS at
          FROM generate_series(1, %s::int) AS n
        ) AS rows""",
        count,
    )
    database.run("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
    database.run("VACUUM (ANALYZE) agent_jobs")


def with_history(report: Report, empty: Database, full: Database, count: int) -> None:
    """The rate of claim and finish beside finished rows against none, at one connection and at four.

    Rates are disturbed more than CPU is, so twice the rounds, and each side goes first in half of them.
    """
    fill(full, count)
    for lines in (1, 4):
        groups = [[Worker.of_engine(database, "cycle", "echo") for _ in range(lines)] for database in (full, empty)]
        for group in groups:
            _seconds(group, 50)
        pairs = []
        for _ in range(ROUNDS):
            pairs.append([_seconds(group, CYCLES) for group in groups])
            pairs.append([_seconds(group, CYCLES) for group in reversed(groups)][::-1])
        for worker in (*groups[0], *groups[1]):
            worker.close()
        name = f"rate of claim and finish with {count:,} finished rows / none, {lines} connection(s)"
        report.figure(name, median(without / beside for beside, without in pairs), "ratio of rates", ">= 0.9")


def _seconds(group: Sequence[Worker], count: int) -> float:
    for worker in group:
        worker.arm(count)
    for worker in group:
        worker.go()
    return max(worker.done()["seconds"] for worker in group)


def behind_others(report: Report, free: Database, crowded: Database) -> None:
    """A claim of three kinds behind waiting jobs of others against one with none ahead."""
    crowded.run("INSERT INTO agents (principal_key) VALUES ('bench')")
    crowded.run("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
    crowded.run(
        """INSERT INTO agent_jobs (id, root_id, principal_key, kind, queued_at)
        SELECT id, id, 'bench', 'other', now() - interval '1 day'
        FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, %s::int)) AS rows""",
        AHEAD,
    )
    crowded.run("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
    crowded.run("VACUUM (ANALYZE) agent_jobs")
    behind, ahead = (Worker.of_engine(database, "claim", *KINDS) for database in (crowded, free))
    for worker in (behind, ahead):
        worker.round(30)
    rounds = [(behind.round(90), ahead.round(90)) for _ in range(ROUNDS)]
    for worker in (behind, ahead):
        worker.close()
    name = f"claim of three kinds behind {AHEAD:,} jobs of others / none ahead"
    report.cpu_ratio(name, [pair[0] for pair in rounds], [pair[1] for pair in rounds], "<= 4")


def heartbeats(report: Report, database: Database) -> None:
    """What a heartbeat leaves behind in the table and in the write-ahead log."""
    _heartbeats(report, database, "beat", "heartbeat", "<= 260")
    _heartbeats(report, database, "beat-with-progress", "heartbeat with 50 bytes of progress", "")


def _heartbeats(report: Report, database: Database, act: str, name: str, goal: str) -> None:
    worker = Worker.of_engine(database, act, "beaten")
    worker.round(200)  # each page's first change after a checkpoint is written whole
    shares, sizes = [], []
    for _ in range(5):
        before = _written(database)
        worker.round(400)
        after = _written(database)
        updates, hot, position = (now - then for now, then in zip(after, before, strict=True))
        shares.append(hot / updates)
        sizes.append(position / updates)
    worker.close()
    report.figure(f"HOT share, {name}", median(shares), "share", ">= 0.9")
    report.figure(f"write-ahead log, {name}", median(sizes), "bytes", goal)


def _written(database: Database) -> tuple[int, int, int]:
    (found,) = database.run(
        """SELECT n_tup_upd, n_tup_hot_upd, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
        FROM pg_stat_user_tables WHERE relname = 'agent_jobs'"""
    )
    return int(found[0]), int(found[1]), int(found[2])
