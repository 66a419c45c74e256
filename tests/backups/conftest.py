import pytest

from jobs.models import Agent, BackupJob
from jobs.services.backups import registry
from tests.factories import AgentFactory


@pytest.fixture
def agents() -> list[Agent]:
    """Two agents, one for each source of the job."""
    return [AgentFactory(principal_key=key) for key in ("web-1", "web-2")]


@pytest.fixture
def job(agents: list[Agent]) -> BackupJob:
    """A backup job with one source on each of the agents, as people would define it."""
    repository = registry.register_repository(
        registry.RepositoryDefinition(name="main", location="rest:https://backup.example/web", credential_ref="main"),
        by="ada",
    )
    job_id = registry.register_job(registry.JobDefinition(name="nightly", repository=repository), by="ada")
    for agent in agents:
        source = registry.SourceDefinition(name=agent.principal_key, host=agent.principal_key, paths=["/etc"])
        registry.add_source(source, job_id=job_id, agent=agent.principal_key, by="ada")
    return BackupJob.objects.select_related("repository").get(pk=job_id)
