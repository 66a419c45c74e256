"""How fast secrets are taken out: of lines of a log, and of a results document, both full of what looks like some."""

from time import process_time
from typing import Any

from agentstore_runner.contract.results import check_result
from agentstore_runner.redaction import Redactor

from bench.report import Report

ROUNDS = 3
LINE = "2026-11-30T10:00:00Z INFO GET /api/products?q=lamp&page=2 200 12ms token_count=17 password=[REDACTED:key]\n"
KNOWN = ["correct-horse-battery-staple", "another known value", "sk-test-0123456789"]


def measure(report: Report) -> None:
    """Print the megabytes a second of processor time."""
    text = LINE * 20_000
    checks = [
        check_result(
            {"id": f"c{number}", "title": f"Check {number}"}, "failed", code="assertion",
            message="expected the text of #out to contain “Welcome”, but it is “Email or password is wrong”",
            detail={"expected": "Welcome", "actual": "Email or password is wrong"}, notes=[LINE.strip()],
        )
        for number in range(200)
    ]  # fmt: skip
    report.figure("redaction of log lines", _rate(len(text), lambda redactor: redactor.text(text)), "MB/s")
    size = len(str(checks))
    report.figure("redaction of a results document", _rate(size, lambda redactor: redactor.document(checks)), "MB/s")


def _rate(size: int, work: Any) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        redactor, before = Redactor(KNOWN), process_time()
        work(redactor)
        best = min(best, process_time() - before)
    return size / 1e6 / best
