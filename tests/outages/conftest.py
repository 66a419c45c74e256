"""One installation for all tests of outages of a process; each leaves the database running."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outages.installation import Database, database


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ags-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(home: Path) -> Iterator[Database]:
    with database(home) as server:
        yield server
