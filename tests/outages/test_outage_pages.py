"""What people see while the database is away."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from psycopg import OperationalError


def away(*_: Any) -> Any:
    with connection.wrap_database_errors:
        raise OperationalError("secret detail of the connection")


@pytest.mark.django_db
def test_a_page_says_that_the_database_is_away_and_when_to_come_back() -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "a" * 32
    with connection.execute_wrapper(away):
        answer = client.get("/admin/")
    assert answer.status_code == 503
    assert answer["Content-Type"].startswith("text/html")
    assert int(answer["Retry-After"]) > 0
    assert "The database cannot answer now" in answer.content.decode()
    assert "secret" not in answer.content.decode()


@pytest.mark.django_db
def test_another_fault_of_a_page_is_still_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "a" * 32

    def broken(*_: Any) -> Any:
        raise RuntimeError("colour")

    with connection.execute_wrapper(broken):
        assert client.get("/admin/").status_code == 500
