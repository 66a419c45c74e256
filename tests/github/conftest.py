from collections.abc import Iterator

import pytest
from pytest_django import Settings

from jobs.models import GithubTrust
from jobs.services.github import exchange
from jobs.services.github.keys import Keys
from tests.factories import AgentFactory
from tests.github.provider import AUDIENCE, OWNER_ID, REPOSITORY_ID, Provider


@pytest.fixture(scope="session")
def _provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(_provider: Provider, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """A provider that this installation trusts, as GitHub's stands before any fault; its keys are not known yet."""
    settings.GITHUB_ISSUERS, settings.GITHUB_AUDIENCE = (_provider.url,), AUDIENCE
    settings.REFUSED_BEARERS_PER_MINUTE = 1000
    monkeypatch.setattr(exchange, "_keys", Keys())
    _provider.mend()
    return _provider


@pytest.fixture
def trust(provider: Provider, db: None) -> GithubTrust:
    """A rule for the workflow agentstore.yml of the repository that tokens are of unless they say otherwise."""
    agent = AgentFactory(principal_key="ci-uat")
    return GithubTrust.objects.create(
        agent=agent, issuer=provider.url, repository_id=REPOSITORY_ID, repository_owner_id=OWNER_ID,
        repository="octo/shop", workflow="agentstore.yml",
    )  # fmt: skip
