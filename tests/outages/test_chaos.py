"""Histories under faults: every invariant holds, and the checker notices when one does not.

Each run prints its seed; CHAOS_SEED takes one again.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checks import pgbouncer
from tests.outages.chaos import chaos
from tests.outages.installation import Database, web

SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
SABOTAGED = "tests.outages.sabotage:application"


@pytest.fixture(autouse=True)
def _reachable(django_db_blocker: Any) -> Iterator[None]:
    """The actors use the services on a database of their own."""
    with django_db_blocker.unblock():
        yield


def test_a_short_history_under_faults_keeps_every_invariant(home: Path, postgres: Database) -> None:
    with web(home, postgres.url) as server:
        run = chaos(postgres, server, seed=SEED, seconds=12)
    assert run.history.violations() == []
    assert len(run.history.rows) > 50


@pytest.mark.soak
@pytest.mark.parametrize("number", range(6))
def test_histories_under_faults_keep_every_invariant(home: Path, postgres: Database, number: int) -> None:
    with web(home, postgres.url) as server:
        run = chaos(postgres, server, seed=SEED + number, seconds=60)
    assert run.history.violations() == []
    assert len(run.history.rows) > 400


@pytest.mark.soak
def test_a_history_through_a_pooler_in_transaction_mode_keeps_every_invariant(home: Path, postgres: Database) -> None:
    if pgbouncer.program() is None:
        pytest.skip("the system has no pgbouncer: apt-get install pgbouncer")
    folder = home / "pooler"
    folder.mkdir()
    home.chmod(0o711)  # the pooler's account passes through
    with (
        pgbouncer.pooler(folder, Path(postgres.socket).parent) as url,
        web(home, url, AGENTSTORE_PREPARED_STATEMENTS="0") as server,
    ):
        run = chaos(postgres, server, seed=SEED, seconds=30)
    assert run.history.violations() == []
    assert len(run.history.rows) > 100


@pytest.mark.soak
@pytest.mark.parametrize(
    ("bug", "invariants"),
    [
        ("no fence", {"I3"}),
        ("overwrites ended rows", {"I2", "I5"}),
        ("no claim idempotency", {"I4", "I7"}),
        ("acknowledges before the commit", {"I5"}),
    ],
)
def test_a_deliberate_bug_is_noticed(home: Path, postgres: Database, bug: str, invariants: set[str]) -> None:
    walk = "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgname LIKE '%%status_walk%%'"
    triggers = postgres.ask(walk) if bug == "overwrites ended rows" else []
    try:
        with postgres.connect() as connection:
            for table, name in triggers:
                connection.execute(f'ALTER TABLE {table} DISABLE TRIGGER "{name}"')
        with web(home, postgres.url, application=SABOTAGED, BUG=bug) as server:
            run = chaos(postgres, server, seed=SEED, seconds=20)
    finally:
        with postgres.connect() as connection:
            for table, name in triggers:
                connection.execute(f'ALTER TABLE {table} ENABLE TRIGGER "{name}"')
    found = run.history.violations()
    print(*{violation.split()[0]: violation for violation in found}.values(), sep="\n")
    assert {violation.split()[0] for violation in found} & invariants
