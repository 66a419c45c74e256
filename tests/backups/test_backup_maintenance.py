"""Maintenance of repositories: what it is told to remove, and what it really removed."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Agent, AgentJob, BackupJob, BackupJobSource, BackupRepository, BackupSnapshot
from jobs.services import execution, governance, reports, shipped_kinds
from jobs.services.backups import launching, maintaining, registry
from jobs.services.errors import Duplicate, Invalid

pytestmark = pytest.mark.django_db

RETAIN = maintaining.Plan(apply_retention=True, check="metadata")


@pytest.fixture
def snapshots(job: BackupJob) -> list[str]:
    """Three complete snapshots of one source, newest first, and a partial one that is newer than all."""
    BackupJob.objects.filter(pk=job.pk).update(retention={"keep_last": 1})
    shipped_kinds.sync_kinds()
    source = BackupJobSource.objects.filter(job=job)[0]
    made = [
        BackupSnapshot.objects.create(
            repository=job.repository, source=source, engine_id=f"{age:064x}", complete=age > 0,
            taken_at=timezone.now() - timedelta(days=age),
        )
        for age in range(4)
    ]  # fmt: skip
    return [snapshot.engine_id for snapshot in made]


def enqueue(job: BackupJob, plan: maintaining.Plan = RETAIN) -> AgentJob:
    job_id = maintaining.enqueue_maintenance(repository_id=job.repository_id, agent="web-1", plan=plan, by="ada")
    return AgentJob.objects.get(pk=job_id)


def finish(row: AgentJob, agent: Agent, status: str, results: dict[str, Any], **said: Any) -> None:
    caller = execution.Caller(agent=agent, token_id=uuid.uuid4())
    claim_id = uuid.uuid4()
    execution.claim(
        caller=caller, rows=AgentJob.objects.all(), claim_id=claim_id, kinds=[row.kind], request={},
        runner=execution.Runner(name="agentstore-runner", version="999.0"),
    )  # fmt: skip
    report = reports.Report(digest="d", status=status, results=results, **said)
    execution.finish(caller=caller, rows=AgentJob.objects.all(), row_id=row.pk, claim_id=claim_id, report=report)


def forgotten(job: BackupJob) -> set[str]:
    gone = BackupSnapshot.objects.filter(repository=job.repository, forgotten_at__isnull=False)
    return set(gone.values_list("engine_id", flat=True))


def test_retention_names_every_snapshot_that_goes_and_only_what_went_is_forgotten(
    job: BackupJob, agents: list[Agent], snapshots: list[str]
) -> None:
    row = enqueue(job)
    assert row.spec["forget"] == [snapshots[3], snapshots[2]]
    with pytest.raises(Duplicate):
        enqueue(job)
    results = {
        "version": 1, "forgotten": [snapshots[3], snapshots[1]], "kept": [snapshots[2]], "absent": [],
        "check": {"ok": True, "depth": "metadata", "message": ""},
    }  # fmt: skip
    finish(row, agents[0], "done", results)
    assert forgotten(job) == {snapshots[3]}  # nobody had asked for the last good one to go
    row.refresh_from_db()
    assert row.verdict == "risk"
    repository = BackupRepository.objects.get(pk=job.repository_id)
    assert (repository.check_result, repository.check_depth) == ("good", "metadata")


def test_what_a_waiting_restore_needs_is_not_let_go(job: BackupJob, snapshots: list[str]) -> None:
    needed = BackupSnapshot.objects.get(engine_id=snapshots[3])
    target = launching.Target(agent="web-2", path="/var/restore")
    launching.launch_restore(snapshot_id=needed.pk, target=target, by="ada", reason="lost it")
    assert enqueue(job).spec["forget"] == [snapshots[2]]


def test_what_a_waiting_maintenance_removes_is_not_restored(job: BackupJob, snapshots: list[str]) -> None:
    enqueue(job)
    target = launching.Target(agent="web-2", path="/var/restore")
    going, kept = (BackupSnapshot.objects.get(engine_id=snapshots[age]) for age in (3, 1))
    with pytest.raises(Invalid) as refused:
        launching.launch_restore(snapshot_id=going.pk, target=target, by="ada", reason="lost it")
    assert [problem.pointer for problem in refused.value.problems] == ["/snapshot"]
    launching.launch_restore(snapshot_id=kept.pk, target=target, by="ada", reason="lost it")
    AgentJob.objects.unfinished().update(status="cancelled", finished_at=timezone.now())
    launching.launch_restore(snapshot_id=going.pk, target=target, by="ada", reason="lost it")


def test_damage_stops_retention_and_nothing_else(job: BackupJob, agents: list[Agent], snapshots: list[str]) -> None:
    row = enqueue(job, maintaining.Plan(check="read_data"))
    assert row.spec["forget"] == []
    results = {"version": 1, "check": {"ok": False, "depth": "read_data", "message": "pack is missing"}}
    finish(row, agents[0], "failed", results, failure_class="repository", error="damage")
    repository = BackupRepository.objects.get(pk=job.repository_id)
    assert repository.damaged_at is not None
    assert repository.check_result == "damaged"
    with pytest.raises(Invalid) as refused:
        enqueue(job)
    assert refused.value.problems[0].pointer == "/apply_retention"
    enqueue(job, maintaining.Plan(check="metadata", unlock=True))
    assert not forgotten(job)


def test_people_cannot_enqueue_it_with_a_list_of_their_own(job: BackupJob, snapshots: list[str]) -> None:
    spec = enqueue(job).spec | {"forget": snapshots}
    with pytest.raises(Invalid) as refused:
        governance.enqueue(by="ada", agent="web-1", kind="backup.maintenance", spec=spec)
    assert [problem.pointer for problem in refused.value.problems] == ["/kind"]


def test_without_a_policy_everything_is_kept(job: BackupJob, snapshots: list[str]) -> None:
    definition = registry.JobDefinition(name=job.name, repository=job.repository_id)
    registry.change_job(definition, job_id=job.pk, by="ada")
    assert enqueue(job).spec["forget"] == []
