"""The pages of backups: how fresh each source is, what came of a run, and what a repository is worth."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobs.models import AgentTask, BackupJob, BackupJobRun, BackupJobSource, BackupRepository, BackupSnapshot
from jobs.models.backup_freshness import with_freshness
from tests.admin.conftest import Rows
from tests.factories import AgentFactory, BackupJobFactory, BackupJobSourceFactory

EVIL = "<img src=x onerror=alert(1)>"


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def source_of(rows: Rows) -> Any:
    return with_freshness(BackupJobSource.objects.all()).get(pk=rows.source.pk)


@pytest.mark.parametrize(
    ("snapshot", "source", "job", "is_overdue"),
    [
        ({"taken_at": Now() - hours(35)}, {}, {}, False),
        ({"taken_at": Now() - hours(37)}, {}, {}, True),
        ({"taken_at": Now() - hours(37)}, {}, {"state": "paused"}, False),
        ({"taken_at": Now() - hours(37)}, {"retired_at": Now()}, {}, False),
        ({"taken_at": Now() - hours(37)}, {}, {"overdue_after_seconds": 38 * 3600}, False),
        ({"complete": False}, {"created_at": Now() - hours(37)}, {}, True),
        ({"forgotten_at": Now()}, {"created_at": Now() - hours(37)}, {}, True),
        ({"complete": False}, {"created_at": Now() - hours(35)}, {}, False),
    ],
)
def test_a_source_is_overdue_by_its_last_good_backup_or_by_its_making(
    snapshot: dict[str, Any], source: dict[str, Any], job: dict[str, Any], is_overdue: bool, rows: Rows
) -> None:
    BackupSnapshot.objects.update(**snapshot)
    BackupJobSource.objects.filter(pk=rows.source.pk).update(**source)
    BackupJob.objects.update(**job)
    found = source_of(rows)
    assert bool(found.is_overdue) is is_overdue
    assert (found.last_good_at is None) is ("complete" in snapshot or "forgotten_at" in snapshot)


def test_a_job_with_an_overdue_source_is_red_in_the_list_and_found_by_the_filter(rows: Rows, superuser: Client) -> None:
    url = reverse("admin:jobs_backupjob_changelist")
    assert "1 source overdue" not in superuser.get(url).text
    assert list(superuser.get(f"{url}?freshness=overdue").context["cl"].result_list) == []
    BackupSnapshot.objects.update(taken_at=Now() - hours(37))
    assert "1 source overdue" in superuser.get(url).text
    assert list(superuser.get(f"{url}?freshness=overdue").context["cl"].result_list) == [rows.backup_job]
    page = superuser.get(reverse("admin:jobs_backupjob_change", args=[rows.backup_job.pk]))
    assert [source["is_overdue"] for source in page.context["sources"]] == [True]


def test_the_list_of_backup_jobs_asks_as_many_questions_for_thirty_jobs_as_for_one(
    rows: Rows, superuser: Client
) -> None:
    url = reverse("admin:jobs_backupjob_changelist")
    superuser.get(url)
    with CaptureQueriesContext(connection) as few:
        superuser.get(url)
    for job in BackupJobFactory.create_batch(30, repository=rows.repository):
        BackupJobSourceFactory(job=job, agent=rows.agent, name="etc", host="h", paths=["/etc"])
    with CaptureQueriesContext(connection) as many:
        superuser.get(url)
    assert len(many) == len(few)


def test_a_run_shows_of_each_source_what_was_skipped_and_why_whatever_the_runner_reports(
    rows: Rows, superuser: Client
) -> None:
    details = {"items": [{"path": "/etc/shadow", "error": EVIL}, 7], "warnings": {"not": "a list"}}
    AgentTask.objects.filter(pk=rows.task.pk).update(status="claimed", claimed_at=Now())
    AgentTask.objects.filter(pk=rows.task.pk).update(status="running", started_at=Now())
    AgentTask.objects.filter(pk=rows.task.pk).update(
        status="failed", completed_at=Now(), files_skipped=2, failure_class="source", error_code="source_unreadable",
        error_message=EVIL, details=details,
    )  # fmt: skip
    page = superuser.get(reverse("admin:jobs_backupjobrun_change", args=[rows.run.pk]))
    (task,) = page.context["tasks"]
    assert task["items"] == [f"/etc/shadow: {EVIL}", "7"]
    assert (task["skipped"], task["error"], task["warnings"]) == ("at least 2", EVIL, [])
    assert task["url"] == reverse("admin:jobs_agenttask_change", args=[rows.task.pk])
    assert EVIL not in page.text


@pytest.mark.parametrize(
    ("progress", "percent"),
    [
        ({"done": 2048, "total": 4096, "current": "/etc/passwd"}, 50),
        ({"done": 9, "total": 3}, 100),
        ({"done": "x", "total": None, "current": {"a": 1}}, 0),
        ({"done": -5, "total": 1e300}, 0),
        ([], None),
    ],
)
def test_the_part_that_refreshes_shows_how_far_a_source_is(
    progress: Any, percent: int | None, rows: Rows, superuser: Client
) -> None:
    AgentTask.objects.filter(pk=rows.task.pk).update(status="claimed", claimed_at=Now())
    AgentTask.objects.filter(pk=rows.task.pk).update(status="running", started_at=Now(), progress=progress)
    part = superuser.get(reverse("admin:jobs_backupjobrun_part", args=[rows.run.pk]))
    (task,) = part.context["tasks"]
    assert (task["progress"] and task["progress"]["percent"]) == percent
    assert 'data-live="1"' in part.text


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({}, "never checked"),
        ({"checked_at": Now(), "check_result": "good", "check_depth": "metadata"}, "metadata only"),
        ({"checked_at": Now(), "check_result": "good", "check_depth": "read_data", "damaged_at": Now()}, "damaged"),
        ({"retired_at": Now()}, "retired"),
    ],
)
def test_a_repository_tells_what_it_is_worth(found: dict[str, Any], word: str, rows: Rows, superuser: Client) -> None:
    BackupRepository.objects.update(**found)
    assert word in superuser.get(reverse("admin:jobs_backuprepository_changelist")).text
    page = superuser.get(reverse("admin:jobs_backuprepository_change", args=[rows.repository.pk]))
    assert word in page.text
    assert ("Found damaged" in page.text) is ("damaged_at" in found)


@pytest.mark.parametrize(("query", "number"), [("complete=yes", 1), ("complete=no", 0), ("source={source}", 1),
                                               ("source=x", 0), ("repository={repository}", 1)])  # fmt: skip
def test_the_catalogue_is_narrowed_by_what_its_filters_name(
    query: str, number: int, rows: Rows, superuser: Client
) -> None:
    url = reverse("admin:jobs_backupsnapshot_changelist")
    found = superuser.get(f"{url}?{query.format(source=rows.source.pk, repository=rows.repository.pk)}")
    assert len(found.context["cl"].result_list) == number


def test_rows_that_a_client_wrote_in_sql_have_pages_too(rows: Rows, superuser: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO backup_job_runs DEFAULT VALUES RETURNING id")
        (run_id,) = cursor.fetchone()
        cursor.execute("INSERT INTO backup_job_sources DEFAULT VALUES RETURNING id")
        (source_id,) = cursor.fetchone()
    AgentTask.objects.create(
        agent=AgentFactory(), job_run_id=run_id, job_source_id=source_id, task_payload={"any": "thing"}
    )
    BackupSnapshot.objects.create(repository=rows.repository, source_id=source_id, engine_id="f" * 64, complete=False)
    for url in (
        reverse("admin:jobs_backupjobrun_changelist"), reverse("admin:jobs_backupjobrun_change", args=[run_id]),
        reverse("admin:jobs_backupsnapshot_changelist"), reverse("admin:jobs_backupjob_changelist"),
        reverse("admin:jobs_backuprepository_change", args=[rows.repository.pk]),
    ):  # fmt: skip
        assert superuser.get(url).status_code == 200


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (
            {"restore": {"target": {"mode": "scratch"}, "dry_run": True}, "agent": "spare"},
            "emptied afterwards on spare",
        ),
        ({"restore": {"target": {"path": EVIL}, "include": ["/a"] * 7, "delete_extra": True}}, "and 2 more"),
        ({"restore": {"target": {"path": 7, "mode": ["x"]}, "include": [{}], "overwrite": {}}, "agent": [1]}, "[1]"),
        ({"restore": "everything"}, ""),
        ([1], ""),
    ],
)
def test_the_page_of_a_restore_says_where_it_goes_whatever_its_definition_holds(
    definition: Any, said: str, rows: Rows, superuser: Client
) -> None:
    BackupJobRun.objects.filter(pk=rows.run.pk).update(kind="restore", definition=definition)
    AgentTask.objects.filter(pk=rows.task.pk).update(details={"target": {"state": EVIL}})
    page = superuser.get(reverse("admin:jobs_backupjobrun_change", args=[rows.run.pk])).text
    assert said in page
    assert EVIL not in page
