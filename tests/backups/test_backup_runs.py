"""Runs from their launch to their end, through the services, on the real database."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from agentstore_runner.contract import backup as contract
from agentstore_runner.contract.backup_words import REQUIREMENTS
from django.db import IntegrityError, transaction
from django.utils import timezone

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
from jobs.services import execution, governance, maintenance, reports
from jobs.services.backups import launching, registry
from jobs.services.capabilities import Able
from jobs.services.errors import AlreadyEnded, Invalid, RunActive

pytestmark = pytest.mark.django_db

REPOSITORY_ID, OTHER_ID = "a" * 64, "b" * 64
RUNNER = execution.Runner(name="agentstore-runner", version="999.0")


def launch(job: BackupJob) -> BackupJobRun:
    return BackupJobRun.objects.get(pk=launching.launch_backup(job_id=job.pk, by="ada").run_id)


def claim(agent: Agent, kind: str = "backup") -> AgentTask:
    claimed = execution.claim(
        caller=execution.Caller(agent=agent, token_id=uuid.uuid4()), rows=AgentTask.objects.all(),
        claim_id=uuid.uuid4(), kinds=[kind], request={}, runner=RUNNER, able=Able(names=sorted(REQUIREMENTS)),
    )  # fmt: skip
    assert claimed is not None
    return claimed.row


def report(task: AgentTask, status: str, **said: Any) -> execution.Finished[AgentTask]:
    return execution.finish(
        caller=execution.Caller(agent=task.agent, token_id=uuid.uuid4()), rows=AgentTask.objects.all(),
        row_id=task.pk, claim_id=task.claim_id,
        report=reports.Report(digest=str(uuid.uuid4()), status=status, **said),
    )  # fmt: skip


def succeed(task: AgentTask, snapshot: str | None = None, **said: Any) -> None:
    report(
        task, "succeeded", snapshot=snapshot or uuid.uuid4().hex * 2, counters={"files_processed": 3},
        details={"engine_repository_id": REPOSITORY_ID}, **said,
    )  # fmt: skip


def seen(run: BackupJobRun) -> tuple[str, int, int]:
    run.refresh_from_db()
    assert (run.completed_at is None) == (run.status in ("pending", "running"))
    return run.status, run.sources_succeeded, run.sources_partial


def test_a_launched_run_has_a_task_for_each_source_that_a_runner_can_read(job: BackupJob, agents: list[Agent]) -> None:
    run = launch(job)
    tasks = AgentTask.objects.filter(job_run=run)
    assert {task.agent for task in tasks} == set(agents)
    for task in tasks:
        payload = contract.read(task.task_payload, "backup")
        assert isinstance(payload, contract.Backup)
        assert payload.task_tag == f"task:{task.pk}"
        assert task.expires_at is not None
    assert seen(run) == ("pending", 0, 0)
    assert run.definition["repository"]["path"] == "rest:https://backup.example/web"


def test_a_run_is_running_from_the_first_claim_and_succeeds_with_its_last_source(
    job: BackupJob, agents: list[Agent]
) -> None:
    run = launch(job)
    first = claim(agents[0])
    assert seen(run) == ("running", 0, 0)
    succeed(first)
    assert seen(run) == ("running", 1, 0)
    succeed(claim(agents[1]))
    assert seen(run) == ("succeeded", 2, 0)
    assert run.files_processed == 6
    job.repository.refresh_from_db()
    assert job.repository.engine_repository_id == REPOSITORY_ID
    assert BackupSnapshot.objects.filter(source__job=job, complete=True).count() == 2


def test_a_second_run_of_the_same_job_is_refused_while_one_is_open_and_names_it(job: BackupJob) -> None:
    run = launch(job)
    with pytest.raises(RunActive) as refused:
        launching.launch_backup(job_id=job.pk, by="ada")
    assert refused.value.run_id == run.pk
    assert AgentTask.objects.count() == 2


def test_a_partial_backup_is_catalogued_as_incomplete_and_parts_the_run(job: BackupJob, agents: list[Agent]) -> None:
    run = launch(job)
    succeed(claim(agents[0]))
    report(
        claim(agents[1]), "partial_failure", snapshot=OTHER_ID, failure_class="source", counters={"files_skipped": 2}
    )  # fmt: skip
    assert seen(run) == ("partial_failure", 1, 1)
    assert run.files_skipped == 2
    assert BackupSnapshot.objects.get(engine_id=OTHER_ID).complete is False


def test_a_retry_keeps_the_run_open_and_its_payload_is_its_own(job: BackupJob, agents: list[Agent]) -> None:
    run = launch(job)
    failed = report(claim(agents[0]), "failed", failure_class="transient", error="refused")
    assert failed.retry is not None
    succeed(claim(agents[1]))
    assert seen(run)[0] == "running"
    retry = AgentTask.objects.get(pk=failed.retry.pk)
    payload = retry.task_payload
    assert (payload["task_id"], payload["attempt"]) == (str(retry.pk), 2)
    assert payload["backup_id"].endswith("-a2")
    assert f"task:{retry.pk}" in payload["settings"]["tags"]
    assert str(failed.row.pk) not in str(payload)
    AgentTask.objects.filter(pk=retry.pk).update(not_before=None)
    succeed(claim(agents[0]))
    assert seen(run) == ("succeeded", 2, 0)


def test_a_silent_agent_leaves_its_run_open_for_the_retry_and_then_failed(job: BackupJob, agents: list[Agent]) -> None:
    BackupJob.objects.filter(pk=job.pk).update(max_attempts=1)
    run = launch(job)
    succeed(claim(agents[0]))
    lost = claim(agents[1])
    AgentTask.objects.filter(pk=lost.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert maintenance.reap().tasks == 1
    assert seen(run) == ("partial_failure", 1, 0)
    assert run.sources_failed == 1


def test_a_run_that_no_agent_began_before_its_deadline_is_missed(job: BackupJob) -> None:
    run = launch(job)
    AgentTask.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert maintenance.expire().tasks == 2
    assert seen(run)[0] == "missed"


def test_a_cancelled_run_ends_what_waits_and_asks_what_runs(job: BackupJob, agents: list[Agent]) -> None:
    run = launch(job)
    held = claim(agents[0])
    for _ in range(2):  # a second cancel changes nothing
        launching.cancel_run(run_id=run.pk, by="ada", reason="wrong day")
    assert seen(run)[0] == "running"
    held.refresh_from_db()
    assert held.cancel_requested_by == "ada"
    report(held, "cancelled")
    assert seen(run)[0] == "cancelled"
    assert AuditEvent.objects.filter(tag="run_cancelled", subject_id=run.pk).count() == 1
    with pytest.raises(AlreadyEnded):
        launching.cancel_run(run_id=run.pk, by="ada", reason="again")


def test_failed_sources_are_tried_again_in_the_same_run_unless_the_job_runs_anew(
    job: BackupJob, agents: list[Agent]
) -> None:
    run = launch(job)
    succeed(claim(agents[0]))
    failed = report(claim(agents[1]), "failed", failure_class="configuration", error="wrong password").row
    assert seen(run)[0] == "partial_failure"
    another = launch(job)
    with pytest.raises(RunActive), transaction.atomic():
        governance.retry(AgentTask.objects.all(), failed.pk, by="ada", reason="mended")
    launching.cancel_run(run_id=another.pk, by="ada", reason="first the other one")
    again = launching.retry_failed_sources(run_id=run.pk, by="ada", reason="mended")
    assert len(again) == 1
    assert seen(run)[0] == "running"
    succeed(claim(agents[1]))
    assert seen(run) == ("succeeded", 2, 0)


def test_one_task_that_is_cancelled_or_closed_by_force_settles_its_run(job: BackupJob, agents: list[Agent]) -> None:
    run = launch(job)
    waiting, held = AgentTask.objects.get(agent=agents[1]), claim(agents[0])
    governance.cancel(AgentTask.objects.all(), waiting.pk, by="ada", reason="no")
    assert seen(run)[0] == "running"
    governance.force_cancel(AgentTask.objects.all(), held.pk, by="ada", reason="no")
    assert seen(run)[0] == "cancelled"


def test_damage_marks_the_repository_until_a_person_trusts_it_again(job: BackupJob, agents: list[Agent]) -> None:
    launch(job)
    report(claim(agents[0]), "failed", failure_class="repository", error="pack is missing")
    repository = job.repository
    repository.refresh_from_db()
    assert repository.damaged_at is not None
    registry.trust_repository(repository_id=repository.pk, by="ada", reason="rebuilt the index")
    repository.refresh_from_db()
    assert repository.damaged_at is None
    tags = AuditEvent.objects.filter(subject_id=repository.pk, tag__startswith="repository").values_list("tag")
    assert set(tags) == {("repository_damaged",), ("repository_trusted",)}


def test_what_a_run_did_is_told_of_the_repository_that_it_was_launched_into(
    job: BackupJob, agents: list[Agent]
) -> None:
    launch(job)
    first, other = job.repository, BackupRepository.objects.create(
        name="other", location="/srv/other", credential_ref="other", created_by="ada"
    )  # fmt: skip
    BackupJob.objects.update(repository=other)
    succeed(claim(agents[0]), OTHER_ID)
    report(claim(agents[1]), "failed", failure_class="repository", error="pack is missing")
    assert BackupSnapshot.objects.get(engine_id=OTHER_ID).repository == first
    assert list(BackupRepository.objects.exclude(damaged_at=None)) == [first]


def test_a_restore_goes_to_any_agent_before_backups_and_names_its_snapshot(job: BackupJob, agents: list[Agent]) -> None:
    launch(job)
    succeed(claim(agents[0]), OTHER_ID)
    succeed(claim(agents[1]))
    snapshot = BackupSnapshot.objects.get(engine_id=OTHER_ID)
    launch(job)
    launched = launching.launch_restore(
        snapshot_id=snapshot.pk, include=["/etc/nginx"], by="ada", reason="lost it",
        target=launching.Target(agent="web-2", path="/var/restore", dry_run=True),
    )  # fmt: skip
    task = claim(agents[1], "restore")
    payload = contract.read(task.task_payload, "restore")
    assert isinstance(payload, contract.Restore)
    assert (payload.snapshot, payload.include, payload.dry_run) == (OTHER_ID, ("/etc/nginx",), True)
    assert payload.repository.expected_id == REPOSITORY_ID
    assert "restore.dry_run" in task.task_payload["requires"]
    report(task, "succeeded", counters={"files_processed": 1})
    assert seen(BackupJobRun.objects.get(pk=launched.run_id)) == ("succeeded", 1, 0)
    assert BackupSnapshot.objects.count() == 2


@pytest.mark.parametrize(("target", "include"), [
    ({"path": "relative"}, []),
    ({"mode": "everywhere"}, []),
    ({"path": "/var/restore", "overwrite": "sometimes"}, []),
    ({"mode": "in_place", "delete_extra": True}, []),
    ({"path": "/var/restore"}, ["etc"]),
    ({"path": "/var/\x00"}, []),
    ({"agent": "nobody", "path": "/var/restore"}, []),
])  # fmt: skip
def test_a_restore_that_could_do_harm_is_refused(
    job: BackupJob, agents: list[Agent], target: dict[str, Any], include: list[str]
) -> None:
    snapshot = BackupSnapshot.objects.create(
        repository=job.repository, engine_id=OTHER_ID, complete=True, source=BackupJobSource.objects.filter(job=job)[0]
    )
    with pytest.raises(Invalid):
        launching.launch_restore(
            snapshot_id=snapshot.pk, target=launching.Target(**{"agent": "web-1"} | target), include=include,
            by="ada", reason="lost it",
        )  # fmt: skip
    assert not BackupJobRun.objects.exists()


def test_a_task_hangs_on_a_source_of_its_runs_job_and_on_that_sources_agent(
    job: BackupJob, agents: list[Agent]
) -> None:
    run, source = launch(job), BackupJobSource.objects.get(job=job, agent=agents[0])
    wrong = [
        {"agent": agents[1], "job_run": run},
        {"agent": agents[0], "job_run": BackupJobRun.objects.create()},
    ]
    for columns in wrong:
        with pytest.raises(IntegrityError), transaction.atomic():
            AgentTask.objects.create(job_source=source, task_payload={}, **columns)
    with pytest.raises(IntegrityError), transaction.atomic():
        BackupJobSource.objects.filter(pk=source.pk).update(agent=agents[1])
    AgentTask.objects.create(agent=agents[1], job_run=run, job_source=source, task_type="restore", task_payload={})


@pytest.mark.parametrize("names_a_job", [False, True])
def test_a_run_of_a_sql_client_is_settled_by_its_sources(
    job: BackupJob, agents: list[Agent], names_a_job: bool
) -> None:
    run = BackupJobRun.objects.create(job=job if names_a_job else None)
    source = job.sources.get(agent=agents[0]) if names_a_job else BackupJobSource.objects.create()
    AgentTask.objects.create(agent=agents[0], job_run=run, job_source=source, task_payload={})
    succeed(claim(agents[0]))
    assert seen(run) == ("succeeded", 1, 0)
    assert not BackupSnapshot.objects.exists()


DEFINITIONS: list[tuple[Any, dict[str, Any], str]] = [
    (registry.RepositoryDefinition, {"location": "rest:https://ada:secret@backup.example/"}, "/location"),
    (registry.RepositoryDefinition, {"location": ""}, "/location"),
    (registry.RepositoryDefinition, {"credential_ref": "../etc/passwd"}, "/credential_ref"),
    (registry.RepositoryDefinition, {"concurrent_backups": 0}, "/concurrent_backups"),
    (registry.RepositoryDefinition, {"name": " "}, "/name"),
]


@pytest.mark.parametrize(("definition", "values", "pointer"), DEFINITIONS)
def test_a_repository_that_would_not_work_or_holds_a_password_is_refused(
    definition: Any, values: dict[str, Any], pointer: str
) -> None:
    good = {"name": "main", "location": "sftp://ada@backup.example/web", "credential_ref": "main"}
    with pytest.raises(Invalid) as refused:
        registry.register_repository(definition(**good | values), by="ada")
    assert [problem.pointer for problem in refused.value.problems] == [pointer]
    registry.register_repository(definition(**good), by="ada")


@pytest.mark.parametrize(("values", "pointer"), [
    ({"retention": {}}, "/retention"),
    ({"retention": {"keep_last": 0}}, "/retention/keep_last"),
    ({"retention": {"keep": 1}}, "/retention/keep"),
    ({"settings": {"free": "flag"}}, "/settings/free"),
    ({"settings": {"stall_s": "1"}}, "/settings/stall_s"),
    ({"settings": {"one_file_system": 1}}, "/settings/one_file_system"),
    ({"max_attempts": 11}, "/max_attempts"),
    ({"repository": uuid.UUID(int=1)}, "/repository"),
    ({"name": "nightly"}, "/name"),
])  # fmt: skip
def test_a_backup_job_that_would_not_work_is_refused(job: BackupJob, values: dict[str, Any], pointer: str) -> None:
    good = {"name": "weekly", "repository": job.repository_id, "retention": {"keep_last": 3}}
    with pytest.raises(Invalid) as refused:
        registry.register_job(registry.JobDefinition(**good | values), by="ada")
    assert [problem.pointer for problem in refused.value.problems] == [pointer]


@pytest.mark.parametrize(("values", "pointer"), [
    ({"paths": []}, "/paths"),
    ({"paths": ["etc"]}, "/paths"),
    ({"paths": ["/e\x00tc"]}, "/paths/0"),
    ({"host": "two words"}, ""),
    ({"excludes": ["one\ntwo"]}, ""),
    ({"hooks_before": ["rm -rf /"]}, ""),
    ({"name": "web-1"}, "/name"),
])  # fmt: skip
def test_a_source_that_no_runner_would_take_is_refused(job: BackupJob, values: dict[str, Any], pointer: str) -> None:
    good = {"name": "srv", "host": "web-1", "paths": ["/srv"]}
    with pytest.raises(Invalid) as refused:
        registry.add_source(registry.SourceDefinition(**good | values), job_id=job.pk, agent="web-1", by="ada")
    assert pointer in [problem.pointer for problem in refused.value.problems]


def test_a_retired_source_is_in_no_further_run_and_its_name_is_free(job: BackupJob) -> None:
    source = BackupJobSource.objects.get(job=job, name="web-1")
    registry.retire_source(source_id=source.pk, by="ada", reason="gone")
    launch(job)
    assert not AgentTask.objects.filter(job_source=source).exists()
    again = registry.SourceDefinition(name="web-1", host="web-1", paths=["/etc"])
    registry.add_source(again, job_id=job.pk, agent="web-1", by="ada")


def test_the_parent_of_a_backup_lies_in_its_own_repository_and_its_size_is_compared_with_the_newest(
    job: BackupJob,
) -> None:
    source = BackupJobSource.objects.get(job=job, name="web-1")
    elsewhere = registry.register_repository(
        registry.RepositoryDefinition(name="offsite", location="/srv/offsite", credential_ref="offsite"), by="ada"
    )
    places = {"a" * 64: (job.repository_id, 3), "b" * 64: (job.repository_id, 2), "c" * 64: (elsewhere, 1)}
    for engine_id, (repository, age) in places.items():
        BackupSnapshot.objects.create(
            repository_id=repository, source=source, engine_id=engine_id, complete=True, files=age,
            taken_at=timezone.now() - timedelta(days=age),
        )  # fmt: skip
    seen = []
    for repository in (job.repository_id, elsewhere):
        BackupJob.objects.filter(pk=job.pk).update(repository=repository)
        task = AgentTask.objects.get(job_run=launch(job), job_source=source)
        seen.append((task.task_payload["parent_backup"], task.task_payload["settings"]["previous"]["files"]))
        launching.cancel_run(run_id=task.job_run_id, by="ada", reason="seen")
    assert seen == [("b" * 64, 1), ("c" * 64, 1)]
    BackupSnapshot.objects.filter(repository=elsewhere).delete()
    assert AgentTask.objects.get(job_run=launch(job), job_source=source).task_payload["parent_backup"] is None
