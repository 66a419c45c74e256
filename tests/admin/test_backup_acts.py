"""What people do with backups in the admin: define, run, cancel, try again and restore, each through its service."""

from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from jobs.models import (
    Agent,
    AgentTask,
    AuditEvent,
    BackupJob,
    BackupJobRun,
    BackupJobSource,
    BackupRepository,
    BackupSnapshot,
)
from tests.admin.conftest import Rows
from tests.factories import BackupSnapshotFactory

REPOSITORY = {
    "name": "offsite", "location": "rest:https://backup.example/b", "credential_ref": "offsite",
    "maintenance_check": "metadata",
}  # fmt: skip
JOB = {
    "name": "weekly", "overdue_after_seconds": 700_000, "start_deadline_seconds": 3600, "max_run_seconds": 7200,
    "max_attempts": 2, "keep_last": 3, "keep_weekly": 8, "one_file_system": "on", "stall_s": 600, "lock_wait_s": 900,
    "limit_upload_kib": 0, "shrink_warn_percent": 50,
    "drill_every_days": 30, "drill_files": 5,
}  # fmt: skip
SOURCE = {"name": "www", "host": "web-9", "paths": "/srv/my site\n/etc\n\n/etc", "excludes": "*.tmp"}
RESTORE = {"mode": "directory", "path": "/var/restore", "overwrite": "never", "verify": "content", "reason": "a drill"}


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:jobs_{name}", args=args)


def press(client: Client, name: str, row: Any, reason: str = "because") -> Any:
    return client.post(url(name, row.pk), {"_form_submitted": "on", "reason": reason})


def test_a_repository_a_job_and_a_source_are_defined_changed_and_run(rows: Rows, superuser: Client) -> None:
    superuser.post(url("backuprepository_add"), REPOSITORY)
    repository = BackupRepository.objects.get(name="offsite")
    superuser.post(url("backupjob_add"), JOB | {"repository": str(repository.pk)})
    job = BackupJob.objects.get(name="weekly")
    assert job.retention == {"keep_last": 3, "keep_weekly": 8}
    assert (job.drill_every_days, job.drill_files) == (30, 5)
    assert job.settings == {"exclude_caches": False, "stall_s": 600}  # only what is not as shipped
    superuser.post(f"{url('backupjobsource_add')}?job={job.pk}", SOURCE | {"agent": rows.agent.principal_key})
    source = job.sources.get()
    assert (source.paths, source.excludes, source.agent) == (["/srv/my site", "/etc"], ["*.tmp"], rows.agent)

    superuser.post(
        url("backuprepository_edit", repository.pk),
        REPOSITORY
        | {"concurrent_backups": 2, "maintenance_every_days": 7, "maintenance_agent": rows.agent.principal_key},
    )
    superuser.post(url("backupjob_edit", job.pk), JOB | {"repository": str(repository.pk), "keep_last": ""})
    superuser.post(url("backupjobsource_edit", source.pk), SOURCE | {"host": "another", "allow_empty": "on"})
    for row in (repository, job, source):
        row.refresh_from_db()
    assert (repository.concurrent_backups, job.retention) == (2, {"keep_weekly": 8})
    assert (source.host, source.allow_empty) == ("web-9", True)
    assert (repository.maintenance_every_days, repository.maintenance_agent) == (7, rows.agent)
    form = superuser.get(url("backuprepository_edit", repository.pk)).context["form"]
    assert form["maintenance_agent"].value() == rows.agent.principal_key
    Agent.objects.update(state="disabled")
    page = superuser.get(url("backuprepository_change", repository.pk))
    assert "The agent is disabled" in page.context["upkeep_problem"]
    Agent.objects.update(state="active")

    answer = press(superuser, "backupjob_run", job)
    run = job.runs.get()
    assert answer["Location"] == url("backupjobrun_change", run.pk)
    assert (run.trigger, run.created_by, run.sources_total) == ("manual", "superuser", 1)
    assert press(superuser, "backupjob_run", job)["Location"] == url("backupjobrun_change", run.pk)  # it is open
    assert job.runs.count() == 1
    assert "offsite" in superuser.get(url("backupjob_edit", job.pk)).text


@pytest.mark.parametrize(
    ("form", "said", "field"),
    [
        ("repository", {"location": "rest:https://user:secret@backup.example/b"}, "location"),
        ("repository", {"credential_ref": "../etc/passwd"}, "credential_ref"),
        ("repository", {"name": "vault"}, "name"),
        ("repository", {"maintenance_every_days": 0}, "maintenance_every_days"),
        ("repository", {"maintenance_every_days": 7}, "maintenance_every_days"),
        ("job", {"repository": "00000000-0000-0000-0000-000000000000"}, "repository"),
        ("job", {"keep_last": 0}, "keep_last"),
        ("job", {"max_attempts": 99}, "max_attempts"),
        ("job", {"drill_every_days": 0}, "drill_every_days"),
        ("job", {"drill_files": 1001}, "drill_files"),
        ("source", {"paths": "etc"}, "paths"),
        ("source", {"agent": "nobody"}, "agent"),
        ("source", {"name": "etc"}, "name"),
        ("restore", {"path": "relative"}, "path"),
        ("restore", {"path": ""}, "path"),
        ("restore", {"include": "etc"}, "include"),
        ("restore", {"snapshot": "latest"}, "snapshot"),
        ("restore", {"reason": ""}, "reason"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_nothing_is_written(
    form: str, said: dict[str, Any], field: str, rows: Rows, superuser: Client
) -> None:
    BackupRepository.objects.update(name="vault")
    agent = {"agent": rows.agent.principal_key}
    where, right = {
        "repository": (url("backuprepository_add"), REPOSITORY),
        "job": (url("backupjob_add"), JOB | {"repository": str(rows.repository.pk)}),
        "source": (f"{url('backupjobsource_add')}?job={rows.backup_job.pk}", SOURCE | agent),
        "restore": (
            url("backupjobsource_restore", rows.source.pk), RESTORE | agent | {"snapshot": str(rows.snapshot.pk)},
        ),
    }[form]  # fmt: skip
    page = superuser.post(where, {**right, **said})
    assert list(page.context["form"].errors) == [field]
    assert (BackupRepository.objects.count(), BackupJob.objects.count()) == (1, 1)
    assert (BackupJobSource.objects.count(), BackupJobRun.objects.count()) == (1, 1)


def test_a_run_is_cancelled_with_a_reason_and_says_so(rows: Rows, superuser: Client) -> None:
    press(superuser, "backupjobrun_cancel", rows.run, reason="")
    rows.run.refresh_from_db()
    assert rows.run.status == "pending"
    press(superuser, "backupjobrun_cancel", rows.run, reason="wrong night")
    rows.run.refresh_from_db()
    assert (rows.run.status, rows.run.cancel_reason) == ("cancelled", "wrong night")
    page = superuser.get(url("backupjobrun_change", rows.run.pk))
    assert "wrong night" in page.text
    assert page.context["actions"] == []


def test_the_failed_sources_of_a_run_are_tried_again_and_the_run_opens(rows: Rows, superuser: Client) -> None:
    tasks, run = AgentTask.objects.filter(pk=rows.task.pk), BackupJobRun.objects.filter(pk=rows.run.pk)
    tasks.update(status="claimed", claimed_at=Now())
    tasks.update(status="running", started_at=Now())
    tasks.update(status="failed", completed_at=Now(), failure_class="source", error_message="gone")
    run.update(status="failed", completed_at=Now(), sources_failed=1)
    page = superuser.get(url("backupjobrun_change", rows.run.pk))
    assert [action["name"] for action in page.context["actions"]] == ["retry"]
    press(superuser, "backupjobrun_retry", rows.run)
    assert run.get().status in ("pending", "running")
    assert AgentTask.objects.filter(retry_of=rows.task.pk, status="pending").exists()


def test_a_restore_names_its_snapshot_and_is_a_dry_run_unless_somebody_says_otherwise(
    rows: Rows, superuser: Client
) -> None:
    where = url("backupjobsource_restore", rows.source.pk)
    BackupSnapshotFactory(
        repository=rows.repository, source=rows.source, complete=False
    )  # newer, but no choice to make
    form = superuser.get(where).context["form"]
    assert form["snapshot"].value() == str(rows.snapshot.pk)
    assert (form["dry_run"].value(), form["overwrite"].value()) == (True, "never")
    said = {"snapshot": str(rows.snapshot.pk), "agent": rows.agent.principal_key, "include": "/etc/my file\n/etc/b"}
    answer = superuser.post(where, RESTORE | said)
    run = BackupJobRun.objects.get(kind="restore")
    assert answer["Location"] == url("backupjobrun_change", run.pk)
    restore = AgentTask.objects.get(job_run=run).task_payload["restore"]
    assert restore["backup_id_in_repository"] == rows.snapshot.engine_id
    assert restore["include"] == ["/etc/my file", "/etc/b"]
    assert (restore["target"], restore["dry_run"]) == ({"mode": "directory", "path": "/var/restore"}, False)
    assert (run.reason, run.created_by) == ("a drill", "superuser")


def test_a_forgotten_snapshot_is_not_offered_and_without_any_there_is_nothing_to_press(
    rows: Rows, superuser: Client
) -> None:
    BackupSnapshot.objects.update(forgotten_at=Now())
    page = superuser.get(url("backupjobsource_restore", rows.source.pk))
    assert (page.context["form"].fields["snapshot"].choices, page.context["submit"]) == ([], "")


def test_a_job_rests_and_ends_and_a_source_is_taken_out_with_a_reason(rows: Rows, superuser: Client) -> None:
    for act, state in (("pause", "paused"), ("resume", "active")):
        press(superuser, f"backupjob_{act}", rows.backup_job)
        rows.backup_job.refresh_from_db()
        assert rows.backup_job.state == state
    press(superuser, "backupjobsource_retire", rows.source)
    rows.source.refresh_from_db()
    assert rows.source.retired_at
    press(superuser, "backupjob_retire", rows.backup_job, reason="moved")
    page = superuser.get(url("backupjob_change", rows.backup_job.pk))
    assert (page.context["actions"], page.context["edit_url"]) == ([], "")
    assert [line.why for line in page.context["timeline"]] == ["moved", "because", "because", "because"]


def test_a_damaged_repository_is_trusted_again_by_a_person_with_a_reason(rows: Rows, superuser: Client) -> None:
    page = url("backuprepository_change", rows.repository.pk)
    assert [action["name"] for action in superuser.get(page).context["actions"]] == ["retire"]
    BackupRepository.objects.update(damaged_at=Now(), engine_repository_id="a" * 64)
    assert [action["name"] for action in superuser.get(page).context["actions"]] == ["trust", "retire"]
    press(superuser, "backuprepository_trust", rows.repository, reason="all data read")
    rows.repository.refresh_from_db()
    assert (rows.repository.damaged_at, rows.repository.engine_repository_id) == (None, "a" * 64)
    assert AuditEvent.objects.get(subject_id=rows.repository.pk).reason == "all data read"


def test_a_repository_is_retired_once_nothing_uses_it_and_then_takes_nothing_more(
    rows: Rows, superuser: Client
) -> None:
    page = url("backuprepository_change", rows.repository.pk)
    BackupRepository.objects.update(damaged_at=Now())
    refused = press(superuser, "backuprepository_retire", rows.repository)
    assert f"Backup jobs use it: {rows.backup_job.name}" in refused.text
    BackupJob.objects.update(state="retired")
    BackupJobRun.objects.filter(pk=rows.run.pk).update(repository=rows.repository)
    assert "still open" in press(superuser, "backuprepository_retire", rows.repository).text
    BackupJobRun.objects.update(status="cancelled", completed_at=Now())
    assert press(superuser, "backuprepository_retire", rows.repository, reason="moved house")["Location"] == page
    rows.repository.refresh_from_db()
    assert rows.repository.retired_at
    context = superuser.get(page).context
    assert (context["actions"], context["edit_url"], context["maintain_url"]) == ([], "", "")
    assert [line.why for line in context["timeline"]] == ["moved house"]
    assert "retired" in press(superuser, "backuprepository_retire", rows.repository).text
    form = superuser.post(url("backupjob_add"), JOB | {"repository": str(rows.repository.pk)}).context["form"]
    assert list(form.errors) == ["repository"]
    form = superuser.post(url("backuprepository_edit", rows.repository.pk), REPOSITORY).context["form"]
    assert form.non_field_errors() == ["The repository is retired."]
    maintain = {"agent": rows.agent.principal_key, "check": "metadata", "seen": "-"}
    form = superuser.post(url("backuprepository_maintain", rows.repository.pk), maintain).context["form"]
    assert form.non_field_errors() == ["The repository is retired."]
    damaged = f"{url('backuprepository_changelist')}?attention=damaged"
    assert list(superuser.get(damaged).context["cl"].result_list) == []
