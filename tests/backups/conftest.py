import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import Agent, BackupJob
from jobs.services.backups import registry
from tests.backups.machines import PASSWORD, Machine, copy_of, database_url, machine
from tests.factories import AgentFactory
from tests.outages.installation import Web, web


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


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of restic without snapshots, made once: the key derivation costs a second."""
    if shutil.which("restic") is None:
        pytest.skip("restic is not installed; on Debian: apt-get install restic")
    path = tmp_path_factory.mktemp("restic") / "repository"
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "RESTIC_PASSWORD": PASSWORD, "HOME": str(path.parent)}
    subprocess.run(["restic", "init", "-r", str(path)], env=environ, check=True, capture_output=True)
    return path


@pytest.fixture
def repository(empty_repository: Path, tmp_path: Path) -> Path:
    """A repository of this test's own."""
    return copy_of(empty_repository, tmp_path / "repository")


@pytest.fixture
def new_machine(tmp_path: Path, repository: Path, transactional_db: None) -> Iterator[Callable[[str], Machine]]:
    """Makes machines that share the repository, by the keys of their agents."""
    with ExitStack() as stack:
        yield lambda key: stack.enter_context(machine(tmp_path, key, repository))


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The folder of an installation."""
    with tempfile.TemporaryDirectory(prefix="ags-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def server(home: Path, django_db_setup: None) -> Iterator[Web]:
    """A web server over the database of the tests."""
    with web(home, database_url(), workers=1) as running:
        yield running


@pytest.fixture
def people(transactional_db: None) -> Client:
    """A client of somebody who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client
