"""`python -m bench`: one JSON line per figure on standard output; ends with 1 when a goal is missed."""

import os
import shutil
import sys

from bench import files, guessing, in_engine, over_http, redaction
from bench.ground import HOME, ground, say
from bench.report import Report

FINISHED = 10_000_000 if os.environ.get("SCALE") == "full" else 1_000_000


def main() -> int:
    """Measure everything on a fresh server."""
    shutil.rmtree(HOME, ignore_errors=True)
    report = Report()
    say("Redaction …")
    redaction.measure(report)
    with ground() as database:
        empty, full, crowded = (database.copy(f"bench_{name}") for name in ("empty", "full", "crowded"))
        say("Guessing names and bearers …")
        guessing.measure(report, database.copy("bench_guessing"))
        say("Files …")
        files.measure(report, database.copy("bench_files"))
        say("The calls of a runner over HTTP …")
        cycles = over_http.measure(report, database)
        say("The engine and its peers …")
        in_engine.against_peers(report, empty, cycles)
        say("What a heartbeat writes …")
        in_engine.heartbeats(report, database)
        say("Claims behind other work …")
        in_engine.behind_others(report, empty, crowded)
        say(f"Claims beside {FINISHED:,} finished rows …")
        in_engine.with_history(report, empty, full, FINISHED)
    shutil.rmtree(HOME, ignore_errors=True)
    say("Missed: " + ", ".join(report.missed) if report.missed else "Every goal is met.")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
