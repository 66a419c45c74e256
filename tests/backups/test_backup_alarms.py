"""What people are told of backups: overdue sources, runs that were not whole, damaged repositories."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs import metrics
from jobs.models import (
    Agent,
    BackupJob,
    BackupJobRun,
    BackupJobSource,
    BackupRepository,
    BackupSnapshot,
    Event,
    Notice,
)
from jobs.services.backups import registry
from jobs.services.notices.matching import match
from tests.factories import NoticeRuleFactory

pytestmark = pytest.mark.django_db

TOLD = [Event.BACKUP_OVERDUE, Event.BACKUP_RUN_BAD, Event.REPOSITORY_DAMAGED]


def age(job: BackupJob, days: int) -> None:
    """Let the job's sources be registered so long ago."""
    BackupJobSource.objects.filter(job=job).update(created_at=timezone.now() - timedelta(days=days))


def back_up(job: BackupJob, source: str, *, days_ago: int, complete: bool = True) -> None:
    BackupSnapshot.objects.create(
        repository=job.repository, engine_id=f"{BackupSnapshot.objects.count():064x}", complete=complete,
        source=BackupJobSource.objects.get(job=job, name=source),
        taken_at=timezone.now() - timedelta(days=days_ago),
    )  # fmt: skip


def end_run(job: BackupJob, status: str, *, sources: int = 0) -> None:
    BackupJobRun.objects.create(
        job=job,
        status=status,
        created_at=timezone.now(),
        completed_at=timezone.now(),
        sources_total=sources,
        sources_succeeded=sources,
    )


def told() -> set[str]:
    match()
    titles = set(Notice.objects.values_list("title", flat=True))
    Notice.objects.all().delete()
    return titles


def test_a_source_is_overdue_by_its_own_last_good_backup_also_when_it_never_had_one(
    job: BackupJob, agents: list[Agent]
) -> None:
    NoticeRuleFactory(listens_to=[*TOLD, Event.RECOVERED])
    assert told() == set()
    age(job, 3)
    back_up(job, "web-1", days_ago=1)
    back_up(job, "web-2", days_ago=2)
    back_up(job, "web-2", days_ago=0, complete=False)  # only a whole one counts
    assert told() == {"Backup overdue: nightly / web-2"}
    back_up(job, "web-2", days_ago=0)
    assert told() == {"Good again: backup overdue of nightly / web-2"}
    BackupSnapshot.objects.all().update(forgotten_at=timezone.now())
    assert told() == {"Backup overdue: nightly / web-1", "Backup overdue: nightly / web-2"}
    registry.set_job_state(job_id=job.pk, state=BackupJob.State.RETIRED, by="ada", note="gone")
    retired = BackupJobSource.objects.get(job=job, name="web-1")
    BackupJobSource.objects.filter(pk=retired.pk).update(retired_at=timezone.now())
    assert told() == {"Good again: backup overdue of nightly / web-2"}


@pytest.mark.parametrize("status", ["failed", "partial_failure", "missed"])
def test_a_job_is_bad_until_its_next_whole_run(job: BackupJob, status: str) -> None:
    NoticeRuleFactory(listens_to=[*TOLD, Event.RECOVERED])
    end_run(job, "succeeded", sources=1)
    assert told() == set()
    end_run(job, status)
    end_run(job, "cancelled")  # somebody wanted that; it mends nothing
    assert [title.partition(":")[0] for title in told()] == ["Backup nightly"]
    end_run(job, "succeeded", sources=1)
    assert told() == {"Good again: backup run not whole of nightly"}


def test_front_page_and_metrics_say_the_same(job: BackupJob, admin_client: Client) -> None:
    age(job, 3)
    back_up(job, "web-1", days_ago=1)
    end_run(job, "failed")
    BackupRepository.objects.update(damaged_at=timezone.now())
    NoticeRuleFactory(listens_to=TOLD)
    assert "Backup repository damaged: main" in told()
    said = metrics.exposition().decode()
    for line in (
        'agentstore_backup_overdue{job="nightly",source="web-1"} 0.0',
        'agentstore_backup_overdue{job="nightly",source="web-2"} 1.0',
        'agentstore_backup_last_good_timestamp_seconds{job="nightly",source="web-2"} 0.0',
        "agentstore_backup_bad_runs 1.0",
        "agentstore_damaged_repositories 1.0",
    ):
        assert line in said
    worries: list[Any] = admin_client.get("/admin/").context["worries"]
    found = {str(tile.label): tile.value for tile in worries}
    assert found.items() >= {"Overdue backups": 1, "Bad backup runs": 1, "Damaged repositories": 1}.items()
