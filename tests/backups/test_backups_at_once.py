"""The limit of simultaneous backups of a repository, also when many agents claim at the same moment."""

import uuid

import pytest

from jobs.engine.answers import Leasing
from jobs.models import Agent, AgentTask, BackupJob, BackupRepository
from jobs.services.backups import launching, registry
from tests.engine.queues import TASKS, race
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db(transaction=True)


def launch(job: BackupJob, agents: list[Agent], at_once: int) -> None:
    """A run with a source on each agent, and room for so many of them at once."""
    BackupRepository.objects.filter(pk=job.repository_id).update(concurrent_backups=at_once)
    for agent in agents:
        source = registry.SourceDefinition(name=agent.principal_key, host=agent.principal_key, paths=["/srv"])
        registry.add_source(source, job_id=job.pk, agent=agent.principal_key, by="ada")
    launching.launch_backup(job_id=job.pk, by="ada")


def test_a_full_repository_takes_the_next_backup_when_one_ends_and_holds_up_no_restore(
    job: BackupJob, agents: list[Agent]
) -> None:
    launch(job, [], 1)
    first = TASKS.claim(agents[0])
    assert first is not None
    assert TASKS.claim(agents[1]) is None
    task = AgentTask.objects.get(agent=agents[1])
    AgentTask.objects.create(
        agent=agents[1], job_run=task.job_run, job_source=task.job_source, task_type="restore", task_payload={}
    )
    restore = TASKS.claim(agents[1], kinds=["restore"])
    assert restore is not None
    TASKS.finish(TASKS.holder(AgentTask.objects.get(pk=restore.row.pk)))
    TASKS.finish(TASKS.holder(AgentTask.objects.get(pk=first.row.pk)))
    assert TASKS.claim(agents[1]) is not None


def test_simultaneous_claims_never_pass_the_limit(job: BackupJob) -> None:
    more = [AgentFactory() for _ in range(4)]
    launch(job, more, 2)
    answers = race(*(lambda agent=agent: TASKS.claim(agent, uuid.uuid4()) for agent in more))
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert 1 <= sum(isinstance(answer, Leasing) for answer in answers) <= 2
    for agent in more:  # who found the lock held asks again
        if not AgentTask.objects.leased().filter(agent=agent).exists():
            TASKS.claim(agent)
    assert AgentTask.objects.leased().count() == 2
