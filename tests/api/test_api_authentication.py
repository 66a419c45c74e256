"""A bearer is the only way in, and nothing tells what was wrong with a bad one."""

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Agent, AgentToken
from jobs.services import identities, token_format
from tests.api.runner_client import JOBS, Runner
from tests.factories import TokenFactory

HEADERS = {
    "missing": "",
    "no scheme": "{token}",
    "scheme alone": "Bearer",
    "scheme and a space": "Bearer ",
    "another scheme": "Basic {token}",
    "two tokens": "Bearer {token} {token}",
    "two headers": "Bearer {token},Bearer {token}",
    "unknown": "Bearer {unknown}",
    "unknown, lower-case scheme": "bearer {unknown}",
    "wrong checksum": "Bearer {token_cut}0",
    "cut": "Bearer {token_cut}",
    "not ASCII": "Bearer caf\u00e9",
    "not ASCII at full length": "Bearer ags_r_" + "\u00e9" * 39,
    "10 kB": "Bearer " + "x" * 10_240,
    "quoted": 'Bearer "{token}"',
    "tab": "Bearer\t{token}",
    "NUL": "Bearer {token}\x00",
    "upper case": "Bearer {upper}",
}


def header(form: str, token: str) -> str:
    return form.format(token=token, token_cut=token[:-1], unknown=token_format.mint(), upper=token.upper())


@pytest.mark.parametrize("form", HEADERS.values(), ids=HEADERS.keys())
def test_whatever_is_wrong_with_the_bearer_the_answer_is_the_same(runner: Runner, form: str) -> None:
    answer = runner.send("GET", "agents/me", HTTP_AUTHORIZATION=header(form, runner.bearer))
    plain = runner.send("GET", "agents/me", HTTP_AUTHORIZATION="")
    assert (answer.status_code, answer.content) == (401, plain.content)
    assert answer["WWW-Authenticate"] == 'Bearer realm="agentstore"'


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(runner: Runner, scheme: str) -> None:
    assert runner.send("GET", "agents/me", HTTP_AUTHORIZATION=f"{scheme} {runner.bearer}").status_code == 200


def test_a_token_in_the_address_or_body_opens_nothing(runner: Runner) -> None:
    body = runner.claim_body(JOBS, token=runner.bearer, access_token=runner.bearer)
    path = f"jobs/claim?token={runner.bearer}&access_token={runner.bearer}"
    assert runner.send("POST", path, body, HTTP_AUTHORIZATION="").status_code == 401


def test_junk_is_refused_before_its_body_is_read(runner: Runner) -> None:
    assert runner.send("POST", "jobs/claim", b"{" * 100_000, HTTP_AUTHORIZATION="").status_code == 401


def test_two_live_tokens_work_side_by_side_and_a_revoked_one_stops_at_once(runner: Runner) -> None:
    second = TokenFactory(agent=runner.agent)
    assert runner.send("GET", "agents/me").status_code == 200
    first = AgentToken.objects.get(digest=token_format.digest(runner.bearer))
    identities.revoke_token(token_id=first.pk, by="ada")
    assert runner.send("GET", "agents/me").status_code == 401
    authorization = f"Bearer {second.bearer}"  # type: ignore[attr-defined]
    assert runner.send("GET", "agents/me", HTTP_AUTHORIZATION=authorization).status_code == 200


def test_an_expired_token_opens_nothing(runner: Runner) -> None:
    AgentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert runner.send("GET", "agents/me").status_code == 401


def test_a_disabled_agent_still_learns_its_state(runner: Runner) -> None:
    Agent.objects.update(state="disabled", state_note="retired")
    assert runner.send("GET", "agents/me").json()["state"] == "disabled"


def test_use_of_a_token_is_noted_at_most_once_a_minute(runner: Runner) -> None:
    runner.send("GET", "agents/me")
    first = AgentToken.objects.get().last_used_at
    assert first is not None
    runner.send("GET", "agents/me")
    assert AgentToken.objects.get().last_used_at == first
    AgentToken.objects.update(last_used_at=first - timedelta(minutes=2))
    runner.send("GET", "agents/me")
    again = AgentToken.objects.get().last_used_at
    assert again is not None
    assert again >= first


def test_no_log_line_and_no_stored_row_holds_a_token(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        runner.claim(JOBS)
        runner.send("POST", "jobs/claim", b"{")
        runner.send("GET", "nowhere")
        runner.send("GET", "agents/me", HTTP_AUTHORIZATION=f"Bearer {runner.bearer}x")
    assert runner.bearer not in caplog.text
    stored = AgentToken.objects.values().get()
    assert not [value for value in stored.values() if runner.bearer in str(value)]
    assert runner.bearer[10:] not in str(stored)
