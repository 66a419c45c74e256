from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.contract import databases


@pytest.fixture(scope="module")
def unblocked(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Leave to reach databases other than the tests' own."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def contract_database(unblocked: None) -> Iterator[str]:
    """A database that holds the contract, and nothing of ours yet."""
    with databases.database("adopted") as name:
        databases.load_contract(name)
        yield name
