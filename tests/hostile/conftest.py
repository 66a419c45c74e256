"""The rows, people and storage of other tests' rooms, and everybody who could call."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.admin.conftest import Rows, browser_type_launch_args, desk, login, rows, said, superuser
from tests.artifacts.conftest import store
from tests.commands.conftest import migrated_database
from tests.hostile.site import Callers, Subjects

__all__ = ["browser_type_launch_args", "desk", "login", "migrated_database", "rows", "said", "store", "superuser"]


@pytest.fixture
def subjects(rows: Rows, store: Any) -> Subjects:
    """One of everything that an address can be about."""
    return Subjects(rows)


@pytest.fixture
def callers(subjects: Subjects, login: Callable[[str], Client]) -> Callers:
    """A client for everybody."""
    return Callers(subjects, login)
