"""The database of the tests: the embedded PostgreSQL, or the server that DATABASE_URL names."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pgtrigger
import pytest
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations
from django.test import TransactionTestCase
from pytest_django.plugin import DjangoDbBlocker

from agentstore import embedded_postgres
from agentstore.config import config

TESTS = Path(__file__).parent
# What `make test` leaves to `make check`.
LENGTHY = {
    "hostile", "outages", "test_a_simulated_week.py", "test_browser.py", "test_contract_adoption.py", "test_demo.py",
    "test_embedded_postgres.py", "test_permissions.py", "test_processes.py", "test_supervisor.py",
}  # fmt: skip
DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup", "live_server", "admin_client", "admin_user"}
# What a crash of the machine would lose is lost to nobody in a test.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}

_server = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Keep the server running from here on, in xdist's controller and in each of its workers."""
    if not config.database_url:
        _server.enter_context(embedded_postgres.server(config.home, options=FAST))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """End what a live server's threads left connected, so that the database can be dropped."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
        )


def pytest_unconfigure() -> None:
    """Leave the server; the last process stops it."""
    _server.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the database, so that they can be run on another server too, and the lengthy ones."""
    for item in items:
        if LENGTHY & set(item.path.relative_to(TESTS).parts):
            item.add_marker("lengthy")
        by_class = issubclass(getattr(item, "cls", None) or object, TransactionTestCase)
        if (
            by_class
            or item.get_closest_marker("django_db")
            or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ()))
        ):
            item.add_marker("database")


@pytest.fixture(scope="session", autouse=True)
def _emptied_between_tests() -> Iterator[None]:
    """Let Django empty the histories after a test that commits; nobody else may."""
    empty = DatabaseOperations.execute_sql_flush

    def with_the_histories(operations: DatabaseOperations, statements: Any) -> None:
        with pgtrigger.ignore():
            empty(operations, statements)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", with_the_histories)
        yield
