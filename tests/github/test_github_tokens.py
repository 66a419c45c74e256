"""Every variant of a token that GitHub, a stranger or a broken workflow may send, each with its right answer."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from django.test import Client

from jobs.models import AgentToken, AuditEvent, GithubTrust
from jobs.services.github.tokens import MAX_TOKEN
from tests.factories import AgentFactory
from tests.github.provider import AUDIENCE, MISSING, OWNER_ID, REPOSITORY_ID, WORKFLOW, Provider

pytestmark = pytest.mark.django_db
EVIL = WORKFLOW.replace("agentstore", "evil")
STORE, BRANCH = WORKFLOW.replace("shop", "store"), WORKFLOW.replace("main", "x@y")
LIBRARY = "octo/library/.github/workflows/uat.yml@refs/tags/v1"
UAT = "octo/library/uat.yml"
REUSED = {"reusable_workflow": UAT}
ADDRESS = "/api/v1/token/github"


def send(token: Any) -> Any:
    return Client().post(ADDRESS, json.dumps({"token": token}), content_type="application/json")


def said(**claims: Any) -> Callable[[Provider], str]:
    return lambda provider: provider.token(**claims)


def later(**seconds: float) -> Callable[[Provider], str]:
    """A token whose times lie so many seconds from now."""
    return lambda provider: provider.token(**{name: int(time.time() + plus) for name, plus in seconds.items()})


def secret_of(provider: Provider) -> bytes:
    key = provider.keys["first"].public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def by_hmac(provider: Provider) -> str:
    """HS256 with the public key as its secret, which PyJWT itself would not sign."""
    head = _part({"alg": "HS256", "kid": "first", "typ": "JWT"})
    text = f"{head}.{_part(provider.claims())}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(text.encode(), b"x" * 64)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def unsigned(provider: Provider) -> str:
    return f"{_part({'alg': 'none', 'kid': 'first'})}.{_part(provider.claims())}."


def by_other_algorithm(provider: Provider) -> str:
    return jwt.encode(provider.claims(), provider.keys["first"], "RS512", headers={"kid": "first"})


def with_signature_of_other_claims(provider: Provider) -> str:
    head, _, signature = provider.token().split(".")
    return f"{head}.{_part(provider.claims(repository_id='75'))}.{signature}"


def rotated(provider: Provider) -> str:
    provider.served = ["second", "first"]
    return provider.token("second")


def _part(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


TAKEN: dict[str, Callable[[Provider], str]] = {
    "as GitHub sends it": said(),
    "in a schedule": said(event_name="schedule"),
    "by a push": said(event_name="push"),
    "by repository_dispatch": said(event_name="repository_dispatch"),
    "without sub": said(sub=MISSING),
    "with ids inside sub": said(sub="repo:octo@65/shop@74:ref:refs/heads/main"),
    "with sub of another repository": said(sub="repo:evil/repo:ref:refs/heads/main"),
    "with a renamed repository": said(
        repository="octo/store", workflow_ref=STORE,
        job_workflow_ref=STORE,
    ),
    "on another branch": said(
        ref="refs/heads/x@y", workflow_ref=BRANCH, job_workflow_ref=BRANCH
    ),
    "at a commit": said(
        workflow_ref=WORKFLOW.replace("refs/heads/main", "b" * 40),
        job_workflow_ref=WORKFLOW.replace("refs/heads/main", "b" * 40),
    ),
    "without nbf": said(nbf=MISSING),
    "expired within the leeway": later(exp=-20),
    "not yet valid within the leeway": later(nbf=20),
    "issued a little ahead": later(iat=20),
    "with times that are fractions": lambda provider: provider.token(exp=time.time() + 60.5),
    "on a runner of one's own": said(runner_environment="self-hosted"),
    "with an environment": said(environment="production"),
    "with an empty environment": said(environment=""),
    "with claims nobody knows": said(repo_property_team="qa", enterprise="octo"),
    "with the second of two keys": rotated,
}  # fmt: skip

REFUSED: dict[str, tuple[Callable[[Provider], str], str]] = {
    "no token": (lambda _: "x", ""),
    "two parts": (lambda provider: provider.token().rpartition(".")[0], ""),
    "four parts": (lambda provider: provider.token() + ".x", ""),
    "a part that is no base64": (lambda provider: "ä" + provider.token(), ""),
    "a header that is a list": (lambda provider: _part([1]) + provider.token()[10:], ""),
    "claims that are a text": (lambda provider: f"{_part({'alg': 'RS256'})}.{_part('x')}.x", ""),
    "alg none": (unsigned, "alg"),
    "HS256": (by_hmac, "alg"),
    "RS512": (by_other_algorithm, "alg"),
    "no kid": (lambda provider: provider.token(header={"kid": ""}), "kid"),
    "a kid that nobody has": (lambda provider: provider.token(header={"kid": "third"}), "kid"),
    "a stranger's key under our kid": (lambda provider: provider.token("stranger", header={"kid": "first"}), ""),
    "a stranger's key under its own kid": (lambda provider: provider.token("stranger"), "kid"),
    "a key of its own in the header": (
        lambda provider: provider.token("stranger", header={"kid": "first", "jwk": {}, "jku": "http://x"}), ""
    ),
    "a critical extension": (lambda provider: provider.token(header={"crit": ["b64"], "b64": False}), ""),
    "claims changed behind the signature": (with_signature_of_other_claims, ""),
    "another issuer": (said(iss="https://token.actions.githubusercontent.com"), "iss"),
    "an issuer that begins like ours": (lambda provider: provider.token(iss=provider.url + ".evil.example"), "iss"),
    "no issuer": (said(iss=MISSING), "iss"),
    "a list as issuer": (lambda provider: provider.signed(json.dumps(provider.claims(iss=["x"]))), "iss"),
    "another audience": (said(aud="https://github.com/octo"), "aud"),
    "a list of audiences": (said(aud=[AUDIENCE]), "aud"),
    "no audience": (said(aud=MISSING), "aud"),
    "no exp": (said(exp=MISSING), "exp"),
    "an exp in text": (lambda provider: provider.token(exp=str(int(time.time()) + 60)), "exp"),
    "an iat in text": (lambda provider: provider.token(iat=str(int(time.time()))), "iat"),
    "an nbf in text": (lambda provider: provider.token(nbf=str(int(time.time()))), "nbf"),
    "an iat that is true": (said(iat=True), "iat"),
    "no iat": (said(iat=MISSING), "iat"),
    "expired": (later(exp=-40), "exp"),
    "not yet valid": (later(nbf=60), "nbf"),
    "issued in the future": (later(iat=60), "nbf"),
    "no jti": (said(jti=MISSING), "jti"),
    "an empty jti": (said(jti=""), "jti"),
    "a number as jti": (said(jti=7), ""),
    "another repository": (said(repository_id="75"), "repository_id"),
    "a repository that was re-created under the name": (said(repository_id="99"), "repository_id"),
    "a name that somebody else registered": (said(repository_owner_id="66"), "repository_owner_id"),
    "no repository id": (said(repository_id=MISSING), "repository_id"),
    "a number as repository id": (said(repository_id=REPOSITORY_ID), "repository_id"),
    "a repository id with a zero before it": (said(repository_id="074"), "repository_id"),
    "a repository id in other digits": (said(repository_id="٧٤"), "repository_id"),
    "no owner id": (said(repository_owner_id=MISSING), "repository_owner_id"),
    "a number as owner id": (said(repository_owner_id=OWNER_ID), "repository_owner_id"),
    "no event": (said(event_name=MISSING), "event_name"),
    "a pull request": (said(event_name="pull_request"), "event_name"),
    "a pull request's target": (said(event_name="pull_request_target"), "event_name"),
    "a comment": (said(event_name="issue_comment"), "event_name"),
    "no workflow": (said(workflow_ref=MISSING), "workflow_ref"),
    "another workflow": (
        said(workflow_ref=EVIL, job_workflow_ref=EVIL),
        "workflow_ref",
    ),
    "a workflow whose name ends like ours": (
        said(workflow_ref=WORKFLOW.replace("agentstore", "my-agentstore")), "workflow_ref"
    ),
    "a workflow in a folder": (said(workflow_ref=WORKFLOW.replace("agentstore", "x/agentstore")), "workflow_ref"),
    "a workflow of another repository": (said(workflow_ref=WORKFLOW.replace("octo/shop", "evil/shop")), "workflow_ref"),
    "a line end in the workflow": (said(workflow_ref=WORKFLOW + "\n"), "workflow_ref"),
    "a reusable workflow": (said(job_workflow_ref=LIBRARY), "job_workflow_ref"),
    "no job workflow": (said(job_workflow_ref=MISSING), "job_workflow_ref"),
    "no run": (said(run_id=MISSING), "run_id"),
    "a run that is no number": (said(run_id="1/attempts/9?"), "run_id"),
    "no attempt": (said(run_attempt=MISSING), "run_attempt"),
    "no ref": (said(ref=MISSING), "ref"),
    "a repository that leaves its address": (said(repository="octo/shop/../../evil"), "repository"),
    "NUL in a claim": (said(ref="refs/heads/\x00"), "ref"),
    "half a surrogate pair in a claim": (said(actor="\ud800"), "actor"),
    "a claim of 2,000 characters": (said(ref="refs/heads/" + "x" * 2000), "ref"),
    "repository_id twice": (lambda provider: provider.with_twice("repository_id", "75"), ""),
    "iss twice": (lambda provider: provider.with_twice("iss", provider.url), ""),
    "NaN as a claim": (lambda provider: provider.signed('{"iss": NaN}'), ""),
    "a thousand brackets": (lambda provider: provider.signed("[" * 1000), ""),
}  # fmt: skip


@pytest.mark.parametrize("variant", TAKEN.values(), ids=TAKEN)
def test_a_run_that_a_rule_trusts_gets_a_bearer_of_its_agent(
    variant: Callable[[Provider], str], provider: Provider, trust: GithubTrust
) -> None:
    answer = send(variant(provider))
    assert answer.status_code == 201, answer.content
    told = answer.json()
    assert told["agent"] == "ci-uat"
    assert told["run_ref"].endswith("/actions/runs/1658821493/attempts/2")
    me = Client().get("/api/v1/agents/me", headers={"Authorization": f"Bearer {told['token']}"})
    assert (me.status_code, me.json()["principal_key"]) == (200, "ci-uat")


@pytest.mark.parametrize(("variant", "claim"), REFUSED.values(), ids=REFUSED)
def test_any_other_token_is_refused_and_the_trail_says_by_which_claim(
    variant: Callable[[Provider], str], claim: str, provider: Provider, trust: GithubTrust
) -> None:
    answer = send(variant(provider))
    assert (answer.status_code, answer.json()["code"]) == (401, "token_refused")
    assert not AgentToken.objects.exists()
    [line] = AuditEvent.objects.filter(tag="github_refused")
    assert line.details["claim"] == claim
    assert line.reason
    assert str(line.subject_id) in answer.json()["detail"]


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 400), (7, 400), ("", 400), ("x" * (MAX_TOKEN + 1), 400), ("x\x00", 400), (["x"], 400)],
)
def test_a_body_that_holds_no_token_names_the_member(token: Any, status: int, trust: GithubTrust) -> None:
    answer = send(token)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, "/token")


NARROWER: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "the ref it names": ({"ref": "refs/heads/main"}, {}, ""),
    "another ref": ({"ref": "refs/heads/main"}, {"ref": "refs/heads/main2"}, "ref"),
    "a ref of other case": ({"ref": "refs/heads/main"}, {"ref": "refs/heads/Main"}, "ref"),
    "the environment, in other case": ({"environment": "UAT"}, {"environment": "uat"}, ""),
    "another environment": ({"environment": "uat"}, {"environment": "uat2"}, "environment"),
    "no environment": ({"environment": "uat"}, {}, "environment"),
    "the event it names": ({"event_name": "schedule"}, {"event_name": "schedule"}, ""),
    "another event that others may use": ({"event_name": "schedule"}, {}, "event_name"),
    "hosted runners": ({"runner_environment": "github-hosted"}, {}, ""),
    "a runner of one's own": ({"runner_environment": "github-hosted"}, {"runner_environment": "self-hosted"},
                              "runner_environment"),
    "every workflow": ({"workflow": ""}, {"workflow_ref": EVIL, "job_workflow_ref": EVIL}, ""),
    "a reusable workflow that it names": (REUSED, {"job_workflow_ref": LIBRARY}, ""),
    "that one at its tag": ({"reusable_workflow": f"{UAT}@refs/tags/v1"}, {"job_workflow_ref": LIBRARY}, ""),
    "that one at another tag": (
        {"reusable_workflow": f"{UAT}@refs/tags/v2"}, {"job_workflow_ref": LIBRARY}, "job_workflow_ref"
    ),
    "the same file of another owner": (
        REUSED, {"job_workflow_ref": LIBRARY.replace("octo/", "evil/")}, "job_workflow_ref"
    ),
    "the workflow itself where a reusable one is named": (REUSED, {}, "job_workflow_ref"),
    "another issuer": ({"issuer": "https://ghe.example/_services/token"}, {}, "iss"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "claims", "refused_by"), NARROWER.values(), ids=NARROWER)
def test_a_rule_that_asks_for_more_takes_only_that(
    rule: dict[str, str], claims: dict[str, Any], refused_by: str, provider: Provider, trust: GithubTrust
) -> None:
    GithubTrust.objects.filter(pk=trust.pk).update(**rule)
    answer = send(provider.token(**claims))
    assert answer.status_code == (401 if refused_by else 201)
    if refused_by:
        line = AuditEvent.objects.get(tag="github_refused")
        assert (line.details["claim"], line.details["rule"]) == (refused_by, str(trust.pk))


def test_the_narrowest_rule_that_fits_decides_and_two_agents_that_fit_alike_get_nothing(
    provider: Provider, trust: GithubTrust
) -> None:
    narrow = GithubTrust.objects.create(
        agent=AgentFactory(principal_key="ci-main"), issuer=provider.url, repository_id=REPOSITORY_ID,
        repository_owner_id=OWNER_ID, workflow="agentstore.yml", ref="refs/heads/main",
    )  # fmt: skip
    assert send(provider.token()).json()["agent"] == "ci-main"
    assert send(provider.token(ref="refs/heads/x")).json()["agent"] == "ci-uat"
    GithubTrust.objects.filter(pk=narrow.pk).update(ref="")
    assert send(provider.token()).status_code == 401
    assert AuditEvent.objects.get(tag="github_refused").details["claim"] == "rule"


def test_a_disabled_rule_and_a_disabled_agent_give_nothing(provider: Provider, trust: GithubTrust) -> None:
    GithubTrust.objects.filter(pk=trust.pk).update(enabled=False)
    assert send(provider.token()).status_code == 401
    GithubTrust.objects.filter(pk=trust.pk).update(enabled=True)
    trust.agent.state, trust.agent.state_note = "disabled", "gone"
    trust.agent.save()
    assert "disabled" in send(provider.token()).json()["detail"]
    assert not AgentToken.objects.exists()
