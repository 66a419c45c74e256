"""What people and the clock do with runs: launch a backup or a restore, try failed sources again, cancel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from agentstore_runner.contract.backup import SAMPLED_BYTES
from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.engine.ddl import SqlNow
from jobs.engine.leases import violated
from jobs.models import Agent, AgentTask, BackupJob, BackupJobRun, BackupJobSource, BackupSnapshot
from jobs.models.backup_runs import OPEN
from jobs.services import governance
from jobs.services.calendar import splay_offset
from jobs.services.documents import storable_problems
from jobs.services.errors import AlreadyEnded, Invalid, NotFound, RunActive

from . import maintaining, payloads
from .settling import active_run, settle_run

RESTORE_PRIORITY, DRILL_PRIORITY = 100, -100  # restores go before backups, and drills after all
DRILL_SECONDS, DRILL_DEADLINE_SECONDS = 3600, 12 * 3600
MAX_INCLUDES = 1000
TRIES = 10  # looks for tasks that appeared while their run is cancelled


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A run that waits for its agents, with the ids of its tasks."""

    run_id: UUID
    task_ids: Sequence[UUID]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a restore goes, and what it may do there.

    `mode` is directory (needs `path`), in_place, or scratch (a folder of the agent's own, emptied afterwards). A drill
    takes `sample_files` of the snapshot's files only, into the agent's folder for drills; 0 takes all.
    """

    agent: str
    mode: str = "directory"
    path: str = ""
    overwrite: str = "never"
    delete_extra: bool = False
    verify: str = "content"
    dry_run: bool = False
    sample_files: int = 0


@transaction.atomic
def launch_backup(
    *,
    job_id: UUID,
    by: str,
    trigger: BackupJobRun.Trigger = BackupJobRun.Trigger.MANUAL,
    scheduled_for: datetime | None = None,
    splay_seconds: int = 0,
) -> Launched:
    """Launch a run of a backup job, paused or not: one task for each source, as job and sources are defined now.

    Each agent begins later by an offset of its own within `splay_seconds`, so that many do not start together.

    Raises NotFound, RunActive (a run of this job is open), or Invalid (a retired job, no sources, or a definition that
    no runner would take).
    """
    job = _job(job_id)
    sources = list(job.sources.filter(retired_at=None).select_related("agent").order_by("name"))
    if job.state == BackupJob.State.RETIRED:
        raise Invalid([Problem("", "The backup job is retired.")])
    if not sources:
        raise Invalid([Problem("/sources", "The backup job has no sources.")])
    run = BackupJobRun(
        pk=uuid4(), job=job, repository=job.repository, kind=BackupJobRun.Kind.BACKUP, trigger=trigger,
        scheduled_for=scheduled_for, definition=_definition(job, sources), sources_total=len(sources), created_by=by,
    )  # fmt: skip
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except IntegrityError as conflict:
        if violated(conflict) not in ("backup_job_runs_one_active_backup", "backup_job_runs_one_per_slot"):
            raise
        raise RunActive(active_run(job.pk)) from None
    last_good = _last_good(sources)
    tasks = []
    for source in sources:
        task_id = uuid4()
        payload = payloads.backup(
            task_id=task_id, run=run, job=job, source=source, last_good=last_good[source.pk]
        )  # fmt: skip
        task = _task(task_id, run, job, source, source.agent, payload)
        if splay_seconds and source.agent:
            begins = SqlNow() + splay_offset(source.agent.principal_key, splay_seconds)
            task.not_before, task.expires_at = begins, begins + timedelta(seconds=job.start_deadline_seconds)
        tasks.append(task)
    return _launch(run, tasks, by=by, reason="")


@transaction.atomic
def launch_restore(
    *, snapshot_id: UUID, target: Target, include: Sequence[str] = (), by: str, reason: str, is_drill: bool = False
) -> Launched:
    """Launch a restore of one snapshot, whole or only of the paths in `include`, to any agent; a drill when it is idle.

    Raises NotFound, or Invalid with what is wrong with the request.
    """
    governance.check_reason(reason)
    snapshot = BackupSnapshot.objects.select_related("source").filter(pk=snapshot_id).first()
    if snapshot is None or snapshot.source.job_id is None:
        raise NotFound
    source, job = snapshot.source, _job(snapshot.source.job_id)
    agent, asked = governance.find_agent(target.agent), _asked(target, include)
    problems = [*governance.agent_problems(agent), *storable_problems(asked, "/target")]
    if snapshot.forgotten_at is not None:
        problems.append(Problem("/snapshot", "The snapshot was forgotten; its data may be gone."))
    elif maintaining.is_about_to_go(snapshot):
        problems.append(
            Problem("/snapshot", "A maintenance that waits or runs is about to remove it: cancel that first.")
        )
    if len(include) > MAX_INCLUDES:
        problems.append(Problem("/include", f"At most {MAX_INCLUDES} paths."))
    if problems or agent is None:
        raise Invalid(problems)
    # The payload must name the repository that holds the snapshot, whatever the job uses now.
    job.repository = snapshot.repository
    run = BackupJobRun(
        pk=uuid4(), job=job, repository=job.repository, kind=BackupJobRun.Kind.RESTORE, created_by=by,
        trigger=BackupJobRun.Trigger.DRILL if is_drill else BackupJobRun.Trigger.MANUAL,
    )  # fmt: skip
    task_id = uuid4()
    payload = payloads.restore(
        task_id=task_id, run=run, job=job, source=source, snapshot=snapshot, asked=asked,
        most_seconds=DRILL_SECONDS if is_drill else job.max_run_seconds,
    )  # fmt: skip
    run.definition = _definition(job, [source]) | {"restore": payload["restore"], "agent": agent.principal_key}
    run.sources_total, run.reason = 1, reason
    run.save(force_insert=True)
    task = _task(task_id, run, job, source, agent, payload)
    task.task_type, task.priority = AgentTask.Type.RESTORE, RESTORE_PRIORITY
    if is_drill:
        seconds = min(job.start_deadline_seconds, DRILL_DEADLINE_SECONDS)
        task.priority, task.expires_at = DRILL_PRIORITY, SqlNow() + timedelta(seconds=seconds)
    return _launch(run, [task], by=by, reason=reason)


@transaction.atomic
def retry_failed_sources(*, run_id: UUID, by: str, reason: str) -> Sequence[UUID]:
    """Try every failed or partial source of a run that is over again; returns the new attempts.

    Raises NotFound, AlreadyEnded (the run was cancelled), RunActive, or Invalid (nothing to try again, or the reason).
    """
    governance.check_reason(reason)
    run = BackupJobRun.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound
    rows = AgentTask.objects.all()
    latest = rows.latest_attempts().filter(job_run=run, status__in=governance.retryable(rows))
    failed = list(latest.order_by("pk").values_list("pk", flat=True))
    if not failed:
        raise Invalid([Problem("", "No source of this run failed.")])
    again = [governance.retry(rows, task_id, by=by, reason=reason) for task_id in failed]
    audit.record(audit.Tag.RUN_REOPENED, run, actor=by, reason=reason, details={"sources": len(again)})
    return again


@transaction.atomic
def cancel_run(*, run_id: UUID, by: str, reason: str) -> None:
    """Cancel all tasks of a run: those that wait at once, the others by asking their runners to stop.

    A second cancel changes nothing. Raises NotFound, AlreadyEnded, or Invalid for the reason.
    """
    governance.check_reason(reason)
    if not BackupJobRun.objects.filter(pk=run_id).exists():
        raise NotFound
    rows = AgentTask.objects.all()
    for _ in range(TRIES):  # a task that fails at this moment leaves a retry behind
        asked = rows.unfinished().filter(job_run=run_id, cancel_requested_at=None).order_by("pk")
        found = list(asked.select_for_update(no_key=True, of=("self",)).values_list("pk", flat=True))
        for task_id in found:
            rows.request_cancel(task_id, by=by, reason=reason)
        if not found:
            break
    run = BackupJobRun.objects.select_for_update(no_key=True, of=("self",)).get(pk=run_id)
    if run.status not in OPEN:
        raise AlreadyEnded
    if run.cancel_requested_at is None:
        BackupJobRun.objects.filter(pk=run_id).update(
            cancel_requested_at=Now(), cancel_requested_by=by, cancel_reason=reason
        )
        audit.record(audit.Tag.RUN_CANCELLED, run, actor=by, reason=reason)
    settle_run(run_id)


def _job(job_id: UUID) -> BackupJob:
    """The job, which nobody changes until the transaction ends."""
    jobs = BackupJob.objects.select_related("repository").select_for_update(no_key=True, of=("self",))
    job = jobs.filter(pk=job_id).first()
    if job is None:
        raise NotFound
    return job


def _task(
    task_id: UUID,
    run: BackupJobRun,
    job: BackupJob,
    source: BackupJobSource,
    agent: Agent | None,
    payload: dict[str, Any],
) -> AgentTask:
    return AgentTask(
        pk=task_id, agent=agent, job_run=run, job_source=source, task_type=AgentTask.Type.BACKUP, task_payload=payload,
        max_attempts=job.max_attempts, lease_seconds=agent.lease_seconds if agent else 90,
        expires_at=SqlNow() + timedelta(seconds=job.start_deadline_seconds),
    )  # fmt: skip


def _launch(run: BackupJobRun, tasks: Sequence[AgentTask], *, by: str, reason: str) -> Launched:
    AgentTask.objects.bulk_create(tasks)
    details = {"kind": run.kind, "trigger": run.trigger, "tasks": len(tasks)}
    audit.record(audit.Tag.RUN_LAUNCHED, run, actor=by, reason=reason, details=details)
    return Launched(run_id=run.pk, task_ids=[task.pk for task in tasks])


def _definition(job: BackupJob, sources: Sequence[BackupJobSource]) -> dict[str, Any]:
    """Job, repository and sources as they are now."""
    return {
        "job": {
            "name": job.name, "settings": job.settings, "max_attempts": job.max_attempts,
            "start_deadline_seconds": job.start_deadline_seconds, "max_run_seconds": job.max_run_seconds,
        },
        "repository": {
            "id": str(job.repository.pk), "name": job.repository.name, **payloads.repository(job.repository),
        },
        "sources": [
            {
                "id": str(source.pk), "name": source.name, "agent": source.agent and source.agent.principal_key,
                "host": source.host, "paths": source.paths, "excludes": source.excludes,
                "hooks_before": source.hooks_before, "hooks_after": source.hooks_after,
                "allow_empty": source.allow_empty,
            }
            for source in sources
        ],
    }  # fmt: skip


def _asked(target: Target, include: Sequence[str]) -> Mapping[str, Any]:
    where = {"mode": target.mode, "path": target.path} if target.mode == "directory" else {"mode": target.mode}
    sample = {"sample": {"files": target.sample_files, "bytes": SAMPLED_BYTES}} if target.sample_files else {}
    return sample | {
        "include": list(include), "target": where, "overwrite": target.overwrite, "delete_extra": target.delete_extra,
        "verify": target.verify, "dry_run": target.dry_run,
    }  # fmt: skip


def _last_good(sources: Sequence[BackupJobSource]) -> dict[UUID, list[BackupSnapshot]]:
    """The complete snapshots of each source that are still there: the newest of each repository, newest first."""
    found = BackupSnapshot.objects.filter(source__in=sources, complete=True, forgotten_at=None)
    newest: dict[UUID, list[BackupSnapshot]] = {source.pk: [] for source in sources}
    for snapshot in found.order_by("source_id", "repository_id", "-taken_at").distinct("source_id", "repository_id"):
        newest[snapshot.source_id].append(snapshot)
    return {source: sorted(ones, key=lambda one: one.taken_at, reverse=True) for source, ones in newest.items()}
