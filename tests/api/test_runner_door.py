"""The short way of a runner's request keeps what protects it, and leaves people's pages alone."""

import pytest
from django.test import Client, override_settings

from tests.api.runner_client import Runner


def test_no_answer_to_a_runner_carries_a_cookie_and_each_says_how_long_it_is(runner: Runner) -> None:
    for method, path in (("GET", "agents/me"), ("POST", "jobs/claim"), ("OPTIONS", "agents/me"), ("GET", "nowhere")):
        answer = runner.send(method, path)
        assert answer.cookies == {}
        assert answer["Content-Length"] == str(len(answer.content))
        assert answer["X-Content-Type-Options"] == "nosniff"


@pytest.mark.django_db
def test_a_forged_host_is_refused_as_a_problem() -> None:
    answer = Client(raise_request_exception=False).get("/api/v1/agents/me", headers={"host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.django_db
@override_settings(SECURE_SSL_REDIRECT=True)
def test_plain_http_is_led_to_tls() -> None:
    assert Client().get("/api/v1/agents/me").status_code == 301


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/admin/login/", "/apix/", "/API/v1/agents/me"])
def test_everything_else_has_the_policy_of_pages(path: str) -> None:
    assert "Content-Security-Policy" in Client().get(path)
