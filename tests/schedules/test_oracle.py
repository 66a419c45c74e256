"""The oracle of the simulated week against times that people worked out by hand, and against borrowing its answers."""

import ast
from datetime import datetime
from pathlib import Path

import pytest

from tests.schedules import oracle
from tests.schedules.oracle import due_times, utc


@pytest.mark.parametrize(
    ("zone", "expression", "start", "end", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "03-27T12:00", "03-29T12:00", ["03-28 01:00", "03-29 00:30"]),
        ("Europe/Berlin", "30 2 * * *", "10-30T12:00", "11-01T12:00", ["10-31 00:30", "11-01 01:30"]),
        ("Europe/Berlin", "*/30 * * * *", "10-31T00:00", "10-31T01:30", ["10-31 00:30", "10-31 01:00", "10-31 01:30"]),
        ("Europe/Berlin", "0 */2 * * *", "10-31T00:00", "10-31T03:00", ["10-31 01:00", "10-31 03:00"]),
        ("America/New_York", "30 1 * * *", "11-06T12:00", "11-08T12:00", ["11-07 05:30", "11-08 06:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "10-02T05:00", "10-03T20:00", ["10-02 15:30", "10-03 15:15"]),
        ("UTC", "5 0 * * 0,6", "01-01T00:00", "01-05T00:00", ["01-02 00:05", "01-03 00:05"]),
        ("UTC", "0-30/10 2 * * *", "01-01T02:00", "01-01T02:30", ["01-01 02:10", "01-01 02:20", "01-01 02:30"]),
    ],
)
def test_the_oracle_gives_the_times_that_debians_cron_gives(
    zone: str, expression: str, start: str, end: str, expected: list[str]
) -> None:
    found = due_times(expression, zone, utc(f"2027-{start}"), utc(f"2027-{end}"))
    assert sorted(found) == [datetime.fromisoformat(f"2027-{time}+00:00") for time in expected]


def test_the_oracle_reads_rows_and_asks_nothing_of_the_code_that_it_judges() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    asked = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in asked if module and module.startswith(("jobs", "agentstore"))} == {"jobs.models"}
