"""Maintenance by the clock: when it is due, never two of one repository at once, and none that stops the others."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from jobs.models import Agent, AgentJob, BackupJob, BackupRepository
from jobs.services import shipped_kinds
from jobs.services.backups import maintaining, registry, upkeep
from jobs.services.errors import Invalid
from tests.engine.queues import close_racers, race


@pytest.fixture(scope="module", autouse=True)
def idle_connections() -> Iterator[None]:
    """Close the racers' connections."""
    yield
    close_racers()


def define(job: BackupJob, **said: Any) -> BackupRepository:
    shipped_kinds.sync_kinds()
    known: dict[str, Any] = {"name": "main", "location": "rest:https://backup.example/web", "credential_ref": "main"}
    asked = {"maintenance_every_days": 7, "maintenance_agent": "web-1"} | said
    definition = registry.RepositoryDefinition(**known, **asked)
    registry.change_repository(definition, repository_id=job.repository_id, by="ada")
    return BackupRepository.objects.get(pk=job.repository_id)


def a_while_later(**length: float) -> None:
    BackupRepository.objects.update(maintenance_from=F("maintenance_from") - timedelta(**length))


def cancel() -> None:
    AgentJob.objects.unfinished().update(status="cancelled", finished_at=Now())


def queued() -> list[AgentJob]:
    return list(AgentJob.objects.filter(kind="backup.maintenance").order_by("queued_at"))


@pytest.mark.django_db
def test_it_is_due_so_many_days_after_the_last_one_and_only_once(job: BackupJob) -> None:
    define(job, maintenance_check="read_data_subset")
    assert upkeep.enqueue_due().enqueued == 0
    a_while_later(days=6)
    assert upkeep.enqueue_due().enqueued == 0
    a_while_later(days=1)
    assert upkeep.enqueue_due().enqueued == 1
    assert upkeep.enqueue_due().enqueued == 0
    (row,) = queued()
    assert (row.agent_id, row.created_by, row.spec["check"]) == ("web-1", "maintenance", "read_data_subset")
    cancel()  # how it ends moves nothing: no storm of new ones
    assert upkeep.enqueue_due().enqueued == 0
    a_while_later(days=7)
    assert upkeep.enqueue_due().enqueued == 1


@pytest.mark.django_db
def test_another_interval_counts_from_the_last_one_and_an_outage_of_months_brings_one(job: BackupJob) -> None:
    define(job)
    a_while_later(days=3)
    define(job, maintenance_every_days=2)
    assert upkeep.enqueue_due().enqueued == 1
    cancel()
    a_while_later(days=200)
    assert upkeep.enqueue_due().enqueued == 1
    cancel()
    assert upkeep.enqueue_due().enqueued == 0
    define(job, maintenance_every_days=None, maintenance_agent="")
    assert upkeep.enqueue_due().enqueued == 0


@pytest.mark.django_db
def test_one_that_a_person_queued_is_waited_for(job: BackupJob) -> None:
    repository = define(job)
    a_while_later(days=8)
    plan = maintaining.Plan(check="metadata")
    maintaining.enqueue_maintenance(repository_id=repository.pk, agent="web-2", plan=plan, by="ada")
    assert upkeep.enqueue_due().enqueued == 0
    cancel()
    assert upkeep.enqueue_due().enqueued == 1


@pytest.mark.django_db
def test_a_damaged_repository_is_checked_and_nothing_is_removed_from_it(job: BackupJob) -> None:
    define(job, maintenance_check="none")
    BackupRepository.objects.update(damaged_at=Now())
    a_while_later(days=8)
    assert upkeep.enqueue_due().enqueued == 1
    (row,) = queued()
    assert (row.spec["forget"], row.spec["prune"], row.spec["check"]) == ([], False, "metadata")


@pytest.mark.django_db
def test_a_repository_that_cannot_be_maintained_stops_no_other_and_stays_due(job: BackupJob) -> None:
    define(job)
    other = registry.RepositoryDefinition(
        name="other", location="/srv/other", credential_ref="other", maintenance_every_days=1, maintenance_agent="web-2"
    )
    other_id = registry.register_repository(other, by="ada")
    a_while_later(days=8)
    Agent.objects.filter(principal_key="web-1").update(state="disabled")
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as raised:
            upkeep.enqueue_due()
        assert "main: The agent is disabled" in str(raised.value.exceptions[0])
    (row,) = queued()
    assert row.labels["backup_repository"] == str(other_id)
    Agent.objects.filter(principal_key="web-1").update(state="active")
    assert upkeep.enqueue_due().enqueued == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"maintenance_agent": ""}, "/maintenance_every_days"),
        ({"maintenance_every_days": None}, "/maintenance_every_days"),
        ({"maintenance_every_days": 0}, "/maintenance_every_days"),
        ({"maintenance_agent": "nobody"}, "/maintenance_agent"),
        ({"maintenance_check": "thorough"}, "/maintenance_check"),
    ],
)
def test_what_could_never_come_is_refused_at_its_field(job: BackupJob, said: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        define(job, **said)
    assert [problem.pointer for problem in refused.value.problems] == [field]


@pytest.mark.django_db(transaction=True)
def test_any_number_of_loops_queue_one(job: BackupJob) -> None:
    define(job)
    a_while_later(days=8)
    answers = race(*[upkeep.enqueue_due] * 4)
    assert sorted(answer.enqueued for answer in answers) == [0, 0, 0, 1]
    assert len(queued()) == 1
