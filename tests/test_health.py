"""What load balancers and orchestrators ask."""

from unittest.mock import ANY

import pytest
from django.db import DatabaseError
from django.test import Client
from pytest_django import Settings

from agentstore import health


def test_liveness_needs_no_database_and_no_known_host(client: Client) -> None:
    response = client.get("/healthz", headers={"Host": "10.1.2.3"})
    assert (response.status_code, response.content) == (200, b"ok")
    assert response["Content-Type"] == "text/plain"


def test_a_probe_over_plain_http_is_not_sent_to_tls(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200


def test_a_probe_is_a_read(client: Client) -> None:
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_a_migrated_database_is_ready(client: Client) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"database": "ok", "migrations": "ok", "storage": ANY})


@pytest.mark.django_db
def test_pending_migrations_are_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_pending_migrations", lambda: True)
    response = client.get("/readyz")
    assert (response.status_code, response.json()["migrations"]) == (503, "pending")


def test_a_database_that_does_not_answer_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def cursor(self) -> None:
            raise DatabaseError("the password is hunter2")

    monkeypatch.setattr(health, "connections", {"default": Away()})
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"database": "unreachable", "migrations": "unknown", "storage": ANY}
