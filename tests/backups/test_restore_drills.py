"""Restore drills: when a source is due for one, what is asked of its agent, and what its end is taken for."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from agentstore_runner.contract import backup
from agentstore_runner.contract.backup_words import REQUIREMENTS
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs import metrics
from jobs.models import (
    Agent,
    AgentTask,
    BackupJob,
    BackupJobRun,
    BackupJobSource,
    BackupRepository,
    BackupSnapshot,
    Event,
    Notice,
)
from jobs.services import execution, reports
from jobs.services.backups import drilling, launching
from jobs.services.capabilities import Able
from jobs.services.notices.matching import match
from tests.engine.queues import close_racers, race
from tests.factories import NoticeRuleFactory

pytestmark = pytest.mark.django_db


def snapshot(job: BackupJob, source: str, *, days_ago: int, **said: Any) -> BackupSnapshot:
    columns = {"complete": True, "files": 9} | said
    return BackupSnapshot.objects.create(
        repository=job.repository, source=BackupJobSource.objects.get(job=job, name=source),
        engine_id=uuid.uuid4().hex * 2, taken_at=timezone.now() - timedelta(days=days_ago), **columns,
    )  # fmt: skip


@pytest.fixture
def job(job: BackupJob) -> BackupJob:
    """The backup job, rehearsed every 30 days with five files."""
    BackupJob.objects.update(drill_every_days=30, drill_files=5)
    job.refresh_from_db()
    return job


def drills() -> list[AgentTask]:
    return list(AgentTask.objects.filter(job_run__trigger="drill").order_by("created_at", "agent__principal_key"))


def end(agent: Agent, status: str, **said: Any) -> AgentTask:
    """The drill of an agent, as its runner's report leaves it."""
    task = AgentTask.objects.unfinished().get(agent=agent)
    caller, claim_id = execution.Caller(agent=agent, token_id=uuid.uuid4()), uuid.uuid4()
    rows = AgentTask.objects.all()
    execution.claim(
        caller=caller, rows=rows, claim_id=claim_id, kinds=["restore"], request={},
        runner=execution.Runner(name="agentstore-runner", version="999.0"), able=Able(names=sorted(REQUIREMENTS)),
    )  # fmt: skip
    report = reports.Report(digest="d", status=status, **said)
    execution.finish(caller=caller, rows=rows, row_id=task.pk, claim_id=claim_id, report=report)
    return task


def a_day_later() -> None:
    BackupJobRun.objects.filter(trigger="drill").update(created_at=Now() - timedelta(days=1, minutes=1))


def test_the_newest_complete_snapshot_of_each_source_is_rehearsed_on_its_own_agent(job: BackupJob) -> None:
    newest = snapshot(job, "web-1", days_ago=1)
    snapshot(job, "web-1", days_ago=0, complete=False)
    snapshot(job, "web-1", days_ago=2)
    snapshot(job, "web-2", days_ago=0, files=0)  # empty: there is nothing to bring back
    assert drilling.launch_due().launched == 1
    assert drilling.launch_due().launched == 0
    (task,) = drills()
    restore = task.task_payload["restore"]
    assert (task.agent.principal_key, restore["backup_id_in_repository"]) == ("web-1", newest.engine_id)
    assert (restore["target"], restore["sample"]["files"], restore["verify"]) == ({"mode": "scratch"}, 5, "content")
    assert task.task_payload["settings"]["max_runtime_s"] == 3600
    assert "restore.sample" in task.task_payload["requires"]
    assert backup.read(task.task_payload, "restore").sample
    run = task.job_run
    assert (run.kind, run.trigger, run.created_by, run.reason) == ("restore", "drill", "maintenance", "Restore drill")


def test_a_backup_that_waits_goes_before_a_drill(job: BackupJob, agents: list[Agent]) -> None:
    snapshot(job, "web-1", days_ago=1)
    drilling.launch_due()
    launched = launching.launch_backup(job_id=job.pk, by="ada")
    claimed = AgentTask.objects.claim(
        uuid.uuid4(), agent=agents[0].pk, kinds=["restore", "backup"], digest="d"
    )  # fmt: skip
    assert claimed
    assert claimed.row.pk in launched.task_ids


def test_a_good_drill_is_noted_and_the_next_one_is_due_that_many_days_later(
    job: BackupJob, agents: list[Agent]
) -> None:
    rehearsed = snapshot(job, "web-1", days_ago=1)
    drilling.launch_due()
    end(agents[0], "succeeded", counters={"files_processed": 5})
    rehearsed.refresh_from_db()
    assert (rehearsed.verified_ok, rehearsed.verified_at is not None) == (True, True)
    a_day_later()
    assert drilling.launch_due().launched == 0
    BackupSnapshot.objects.filter(pk=rehearsed.pk).update(verified_at=Now() - timedelta(days=31))
    assert drilling.launch_due().launched == 1


@pytest.mark.parametrize(
    ("said", "verified"),
    [
        ({"failure_class": "repository", "error_code": "verify_mismatch"}, False),
        ({"failure_class": "configuration", "error_code": "snapshot_not_found"}, False),
        ({"failure_class": "internal", "error_code": "restore_incomplete"}, False),
        ({"failure_class": "configuration", "error_code": "drill_folder_unusable"}, None),
    ],
)
def test_a_failed_drill_is_told_and_tried_again_a_day_later_and_only_proof_marks_the_snapshot(
    said: dict[str, str], verified: bool | None, job: BackupJob, agents: list[Agent]
) -> None:
    NoticeRuleFactory(listens_to=[Event.DRILL_FAILED, Event.RECOVERED])
    rehearsed = snapshot(job, "web-1", days_ago=1)
    drilling.launch_due()
    end(agents[0], "failed", error="It does not come back.", **said)
    AgentTask.objects.unfinished().update(status="cancelled", completed_at=Now())  # whatever is tried again by itself
    BackupJobRun.objects.filter(trigger="drill").update(status="failed", completed_at=Now())
    rehearsed.refresh_from_db()
    assert rehearsed.verified_ok is verified
    assert match().notices == 1
    notice = Notice.objects.get()
    assert (notice.event, notice.title) == ("drill_failed", "Restore drill failed: nightly / web-1")
    assert "It does not come back." in notice.body
    assert "agentstore_backup_failed_drills 1.0" in metrics.exposition().decode()
    assert drilling.launch_due().launched == 0
    BackupRepository.objects.update(damaged_at=None)
    a_day_later()
    assert drilling.launch_due().launched == 1
    assert match().notices == 0  # it is still what it was, until the new one says otherwise
    end(agents[0], "succeeded", counters={"files_processed": 5})
    assert match().notices == 1
    assert Notice.objects.filter(event=Event.RECOVERED).exists()


def test_nothing_is_rehearsed_of_what_rests_is_damaged_or_whose_agent_is_disabled(job: BackupJob) -> None:
    snapshot(job, "web-1", days_ago=1)
    source = BackupJobSource.objects.get(job=job, name="web-1")
    for rows, column, rests, works in (
        (BackupJob.objects.all(), "state", "paused", "active"),
        (BackupJob.objects.all(), "drill_every_days", None, 30),
        (BackupRepository.objects.all(), "damaged_at", Now(), None),
        (Agent.objects.all(), "state", "disabled", "active"),
        (BackupJobSource.objects.filter(pk=source.pk), "retired_at", Now(), None),
    ):
        rows.update(**{column: rests})
        assert drilling.launch_due().launched == 0
        rows.update(**{column: works})
    assert drilling.launch_due().launched == 1


def test_an_agent_rehearses_one_source_at_a_time(job: BackupJob, agents: list[Agent]) -> None:
    BackupJobSource.objects.filter(name="web-2").delete()
    BackupJobSource.objects.create(job=job, agent=agents[0], name="web-2", host="web-2", paths=["/srv"])
    for source in ("web-1", "web-2"):
        snapshot(job, source, days_ago=1)
    assert drilling.launch_due().launched == 1
    end(agents[0], "succeeded", counters={"files_processed": 5})
    assert drilling.launch_due().launched == 1
    assert len({task.job_source_id for task in drills()}) == 2


@pytest.mark.parametrize(
    ("asked", "verified"),
    [({}, True), ({"dry_run": True}, None), ({"verify": "none"}, None), ({"include": ["/etc"]}, None)],
)
def test_a_restore_of_everything_by_a_person_proves_as_much(
    asked: dict[str, Any], verified: bool | None, job: BackupJob, agents: list[Agent]
) -> None:
    restored = snapshot(job, "web-1", days_ago=1)
    include = asked.get("include", ())
    said = {name: value for name, value in asked.items() if name != "include"}
    target = launching.Target(agent="web-1", path="/var/restore", **said)
    launching.launch_restore(snapshot_id=restored.pk, target=target, include=include, by="ada", reason="lost it")
    end(agents[0], "succeeded", counters={"files_processed": 5})
    restored.refresh_from_db()
    assert restored.verified_ok is verified


def test_pages_show_when_a_source_was_verified_and_that_a_drill_failed(
    job: BackupJob, agents: list[Agent], admin_client: Client
) -> None:
    snapshot(job, "web-1", days_ago=1)
    drilling.launch_due()
    task = end(
        agents[0], "failed", error="gone", failure_class="configuration", error_code="snapshot_not_found"
    )  # fmt: skip
    page = admin_client.get(reverse("admin:jobs_backupjob_change", args=[job.pk]))
    (web_1, web_2) = page.context["sources"]
    assert "does not come back" in web_1["verified"]
    assert web_1["drill_url"] == reverse("admin:jobs_backupjobrun_change", args=[task.job_run_id])
    assert web_2["drill_url"] == ""
    sources = reverse("admin:jobs_backupjobsource_changelist")
    found = admin_client.get(f"{sources}?drill=failed").context["cl"].result_list
    assert [source.name for source in found] == ["web-1"]
    assert "Failed restore drills" in admin_client.get(reverse("admin:index")).text


@pytest.mark.django_db(transaction=True)
def test_any_number_of_loops_launch_one(job: BackupJob) -> None:
    snapshot(job, "web-1", days_ago=1)
    try:
        answers = race(*[drilling.launch_due] * 4)
        assert sorted(answer.launched for answer in answers) == [0, 0, 0, 1]
    finally:
        close_racers()
