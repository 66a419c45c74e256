"""The exchange over time: once only, bound to the run, slowed down, and what outages of the provider do to it."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from jobs.models import AgentJob, AgentToken, AuditEvent, GithubSpentToken, GithubTrust
from jobs.services.errors import KeysUnavailable
from jobs.services.github import exchange as exchanging
from jobs.services.github.issuers import issuer
from jobs.services.github.keys import COOL_DOWN_SECONDS, FRESH_SECONDS, MAX_BYTES, STALE_SECONDS, Keys, UnknownKey
from tests.engine.queues import race
from tests.factories import AgentJobFactory
from tests.github.provider import Provider
from tests.github.test_github_tokens import send


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.django_db
def test_a_bearer_lives_a_quarter_of_an_hour_and_what_it_claims_is_done_by_its_run(
    provider: Provider, trust: GithubTrust
) -> None:
    job = AgentJobFactory(agent=trust.agent)
    told = send(provider.token()).json()
    [token] = AgentToken.objects.all()
    assert token.expires_at is not None
    assert abs(token.expires_at - timezone.now() - timedelta(minutes=15)) < timedelta(minutes=1)
    claim = {
        "claim_id": str(UUID(int=7)), "kinds": [job.kind], "run_ref": "https://github.com/evil/run",
        "runner": {"name": "agentstore-runner", "version": "1.0.0"},
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {told['token']}"}
    answer = Client().post("/api/v1/jobs/claim", json.dumps(claim), content_type="application/json", headers=headers)
    assert answer.status_code == 201
    assert AgentJob.objects.get(pk=job.pk).run_ref == told["run_ref"]
    assert told["run_ref"] == f"{provider.url}/octo/shop/actions/runs/1658821493/attempts/2"
    trust.refresh_from_db()
    assert trust.last_used_at is not None


@pytest.mark.django_db
def test_a_token_is_good_once_and_a_fresh_one_of_the_same_run_again(provider: Provider, trust: GithubTrust) -> None:
    token = provider.token()
    assert send(token).status_code == 201
    again = send(token)
    assert again.status_code == 401
    assert "used already" in again.json()["detail"]
    assert send(provider.token()).status_code == 201
    assert AgentToken.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_many_who_show_one_token_at_the_same_moment_one_gets_a_bearer(
    provider: Provider, trust: GithubTrust
) -> None:
    token = provider.token()
    send(provider.token())  # the keys are known from here on
    AgentToken.objects.all().delete()
    answers = race(*[lambda: send(token).status_code] * 8)
    assert sorted(answers) == [201] + [401] * 7
    assert AgentToken.objects.count() == 1


@pytest.mark.django_db
def test_a_token_that_no_rule_took_is_not_used_up(provider: Provider, trust: GithubTrust) -> None:
    GithubTrust.objects.filter(pk=trust.pk).update(enabled=False)
    token = provider.token()
    assert send(token).status_code == 401
    GithubTrust.objects.filter(pk=trust.pk).update(enabled=True)
    assert send(token).status_code == 201


@pytest.mark.django_db
def test_who_guesses_is_told_to_wait_and_fills_no_trail(
    provider: Provider, trust: GithubTrust, settings: Settings
) -> None:
    settings.REFUSED_BEARERS_PER_MINUTE = 3
    assert [send("x").status_code for _ in range(6)] == [401, 401, 401, 429, 429, 429]
    assert AuditEvent.objects.filter(tag="github_refused").count() == 3
    assert send(provider.token()).status_code == 201


@pytest.mark.django_db
def test_a_bearer_and_a_token_of_github_stand_in_no_log_and_no_trail(
    provider: Provider, trust: GithubTrust, caplog: pytest.LogCaptureFixture
) -> None:
    token, late = provider.token(), provider.token(exp=1)
    told = send(token).json()
    send(late)
    kept = json.dumps(list(AuditEvent.objects.values("reason", "details"))) + caplog.text
    for secret in (told["token"], *token.split("."), *late.split(".")[1:]):
        assert secret not in kept


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "body"),
    [(500, None), (302, None), (200, b"{"), (200, b"[]"), (200, b'{"keys": []}'), (200, b" " * (MAX_BYTES + 1))],
)
def test_a_provider_that_cannot_say_its_keys_costs_a_503_that_may_be_tried_again(
    status: int, body: bytes | None, provider: Provider, trust: GithubTrust
) -> None:
    provider.status, provider.body = status, body
    answer: Any = send(provider.token())
    assert (answer.status_code, answer.json()["code"]) == (503, "issuer_unavailable")
    assert int(answer["Retry-After"]) > 0
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_what_a_replay_needs_no_more_and_bearers_of_old_runs_are_forgotten(
    provider: Provider, trust: GithubTrust
) -> None:
    for _ in range(2):
        send(provider.token())
    old = GithubSpentToken.objects.first()
    assert old
    GithubSpentToken.objects.filter(pk=old.pk).update(expires_at=Now() - timedelta(seconds=1))
    gone = AgentToken.objects.first()
    assert gone
    AgentToken.objects.filter(pk=gone.pk).update(expires_at=Now() - exchanging.KEPT)
    assert exchanging.forget_spent() == exchanging.Forgotten(tokens=1, bearers=1)
    assert (GithubSpentToken.objects.count(), AgentToken.objects.count()) == (1, 1)


def test_known_keys_outlive_an_outage_for_a_day_and_unknown_ones_are_asked_for_seldom(provider: Provider) -> None:
    url, clock = issuer(provider.url).keys_url, Clock()
    keys = Keys(clock=clock)
    assert keys.key(url, "first").key_id == "first"
    for _ in range(20):
        with pytest.raises(UnknownKey):
            keys.key(url, "second")
    assert provider.asked == 1
    provider.served = ["second"]
    clock.now += COOL_DOWN_SECONDS
    assert keys.key(url, "second").key_id == "second"
    with pytest.raises(UnknownKey):
        keys.key(url, "first")  # taken back by the provider
    provider.status = 500
    clock.now += FRESH_SECONDS
    assert keys.key(url, "second").key_id == "second"
    with pytest.raises(KeysUnavailable):
        keys.key(url, "third")
    asked = provider.asked
    clock.now += STALE_SECONDS
    with pytest.raises(KeysUnavailable):
        keys.key(url, "second")
    assert provider.asked == asked + 1


def test_a_key_that_cannot_be_used_costs_the_others_nothing() -> None:
    strange = [{"kty": "RSA", "kid": "x"}, {"kty": "EC", "kid": "y"}, 7, {"kty": "RSA", "kid": "z", "use": "enc"}]
    with Provider() as provider:
        good = json.loads(provider.key_set())["keys"]
        provider.body = json.dumps({"keys": [*strange, *good]}).encode()
        keys = Keys()
        assert keys.key(issuer(provider.url).keys_url, "first").key_id == "first"
        with pytest.raises(UnknownKey):
            keys.key(issuer(provider.url).keys_url, "z")


ISSUERS = [
    ("https://token.actions.githubusercontent.com", "https://github.com"),
    ("https://ghe.example.com/_services/token", "https://ghe.example.com"),
    ("https://token.actions.octo.ghe.com/", "https://octo.ghe.com"),
    ("http://127.0.0.1:9", "http://127.0.0.1:9"),
]


@pytest.mark.parametrize(("url", "server"), ISSUERS)
def test_each_form_of_an_issuer_knows_where_its_runs_are_shown(url: str, server: str) -> None:
    found = issuer(url)
    assert found.run_ref("octo/shop", "7", "2") == f"{server}/octo/shop/actions/runs/7/attempts/2"
    assert found.keys_url == url.rstrip("/") + "/.well-known/jwks"


@pytest.mark.parametrize(
    "url",
    ["http://ghe.example.com/_services/token", "https://example.com", "https://u:p@ghe.example.com/_services/token",
     "x", "https://token.actions.githubusercontent.com.evil.example", "https://ghe.example.com/_services/token?x"],
)  # fmt: skip
def test_an_address_that_is_no_issuer_of_github_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"must|use"):
        issuer(url)
