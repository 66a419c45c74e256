"""Trust rules in the admin, and the page that explains a token."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Agent, AgentToken, GithubSpentToken, GithubTrust
from tests.admin.conftest import login, superuser
from tests.factories import AgentFactory
from tests.github.provider import OWNER_ID, REPOSITORY_ID, Provider
from tests.github.test_github_tokens import send

__all__ = ["login", "superuser"]
pytestmark = pytest.mark.django_db
ADD = "admin:jobs_githubtrust_add"


def said(provider: Provider, **more: Any) -> dict[str, Any]:
    return {
        "agent": "ci-new", "issuer": provider.url, "repository_id": REPOSITORY_ID, "repository_owner_id": OWNER_ID,
        "repository": "octo/shop", "workflow": "agentstore.yml", "enabled": "on", **more,
    }  # fmt: skip


def look_at(client: Client, token: str) -> str:
    answer = client.post(reverse("admin:jobs_githubtrust_token"), {"token": token})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    return answer.content.decode()


def test_a_rule_that_was_registered_in_the_admin_works_at_once_and_a_change_stands_in_its_history(
    provider: Provider, superuser: Client
) -> None:
    AgentFactory(principal_key="ci-new")
    assert superuser.post(reverse(ADD), said(provider)).status_code == 302
    trust = GithubTrust.objects.get()
    assert send(provider.token()).json()["agent"] == "ci-new"
    page = reverse("admin:jobs_githubtrust_change", args=[trust.pk])
    assert superuser.post(page, said(provider, ref="refs/heads/release")).status_code == 302
    assert send(provider.token()).status_code == 401
    shown = superuser.get(page).content.decode()
    assert "Ref: refs/heads/release" in shown
    assert "superuser" in shown


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent", "nobody"), ("agent", ""), ("issuer", "https://evil.example"), ("repository_id", "0"),
        ("repository_id", str(2**63)), ("repository_id", "x"), ("repository_owner_id", ""), ("workflow", "../x.yml"),
        ("workflow", "x.txt"), ("reusable_workflow", "x.yml"), ("reusable_workflow", "a/b/c.yml@main"), ("ref", "main"),
        ("event_name", "pull_request_target"), ("runner_environment", "mars"), ("environment", "x\x00"),
        ("repository", "x" * 401),
    ],
)  # fmt: skip
def test_a_rule_that_could_not_hold_is_refused_at_its_field_and_what_was_typed_stays(
    field: str, value: str, provider: Provider, superuser: Client
) -> None:
    AgentFactory(principal_key="ci-new")
    answer = superuser.post(reverse(ADD), said(provider, **{field: value}))
    assert answer.status_code == 200
    assert list(answer.context["form"].errors) == [field]
    assert answer.context["form"]["workflow"].value() in ("agentstore.yml", value)
    assert not GithubTrust.objects.exists()


def test_a_disabled_agent_gets_no_rule(provider: Provider, superuser: Client) -> None:
    AgentFactory(principal_key="ci-new", state=Agent.State.DISABLED, state_note="gone")
    assert "agent" in superuser.post(reverse(ADD), said(provider)).context["form"].errors


def test_the_page_says_which_claim_decides_and_uses_nothing_up(
    provider: Provider, trust: GithubTrust, superuser: Client
) -> None:
    good = provider.token()
    assert "bearer of the agent ci-uat" in look_at(superuser, good)
    other = look_at(superuser, provider.token(event_name="pull_request"))
    assert "<code>event_name</code>" in other
    assert "The event is pull_request" in other
    assert "repository_id 75" in look_at(superuser, provider.token(repository_id="75"))
    assert "signature does not hold" in look_at(superuser, provider.token("stranger", header={"kid": "first"}))
    assert not AgentToken.objects.exists()
    assert not GithubSpentToken.objects.exists()
    assert send(good).status_code == 201
    assert "used already" in look_at(superuser, good)


def test_the_page_says_when_the_keys_cannot_be_read(provider: Provider, trust: GithubTrust, superuser: Client) -> None:
    provider.status = 500
    assert "keys of the token" in look_at(superuser, provider.token())


def test_what_a_token_says_is_shown_as_text(provider: Provider, trust: GithubTrust, superuser: Client) -> None:
    shown = look_at(superuser, provider.token(actor="<script>alert(1)</script>"))
    assert "<script>alert(1)" not in shown
    assert "&lt;script&gt;alert(1)" in shown
