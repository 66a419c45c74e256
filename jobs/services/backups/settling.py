"""What the end of a task means for its run, the catalogue and the repository: in the transaction that ended the task.

The one place where a run changes its state. Locks are taken tasks first, then their run, as everywhere.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from jobs import audit
from jobs.engine.ddl import SqlNow
from jobs.engine.failure_classes import FailureClass
from jobs.engine.leases import violated
from jobs.engine.lifecycle import EndedBy
from jobs.models import AgentTask, BackupJobRun, BackupRepository, BackupSnapshot
from jobs.models.backup_runs import OPEN
from jobs.services.errors import AlreadyEnded, RunActive

from .aggregation import Attempt, aggregate

# What a drill ended with that says something of its snapshot, and not of the machine that it was restored on.
UNRESTORABLE = frozenset({"snapshot_not_found", "nothing_matched", "restore_incomplete"})
SNAPSHOT_ID = re.compile("[0-9a-f]{64}")
_READ = (
    "status", "attempt", "started_at", "bytes_processed", "bytes_written", "files_processed", "files_skipped",
)  # fmt: skip


def settle_result(task_id: UUID) -> None:
    """Take what a finished task reported into catalogue, repository and run."""
    tasks = AgentTask.objects.filter(pk=task_id).select_related("job_run__repository", "job_source")
    task = tasks.defer("task_payload").get()
    repository = task.job_run.repository
    if repository is not None:
        if task.failure_class == FailureClass.REPOSITORY:
            mark_damaged(repository, by=f"task:{task.pk}", note=task.error_message or "")
        if task.task_type == AgentTask.Type.BACKUP and task.status in ("succeeded", "partial_failure"):
            _catalogue(task, repository)
        if task.task_type == AgentTask.Type.RESTORE:
            _note_verification(task, repository)
    settle_run(task.job_run_id)


def settle_tasks(task_ids: Iterable[UUID]) -> None:
    """Settle the runs of tasks that changed, in an order that two callers share."""
    changed = AgentTask.objects.filter(pk__in=list(task_ids))
    for run_id in changed.order_by("job_run_id").values_list("job_run_id", flat=True).distinct():
        settle_run(run_id)


def settle_run(run_id: UUID) -> None:
    """Give an open run the state, the counts and the sums that its tasks come to; one that is over stays as it is."""
    run = BackupJobRun.objects.select_for_update(no_key=True, of=("self",)).get(pk=run_id)
    if run.status not in OPEN:
        return
    tasks = AgentTask.objects.filter(job_run=run)
    attempts = [
        Attempt(
            source=row.pop("job_source_id"),
            # A retry that waited too long: nobody asked for its end, and it says nothing of its source.
            is_expired=row.pop("ended_by") == EndedBy.SYSTEM,
            **row,
        )
        for row in tasks.values("job_source_id", "ended_by", *_READ)
    ]
    sources = run.sources_total or len({attempt.source for attempt in attempts})  # a SQL client's run counts none
    found = aggregate(attempts, sources=sources, is_cancelled=run.cancel_requested_at is not None)
    columns = asdict(found) | {"started_at": Coalesce(F("started_at"), found.started_at)}
    if found.is_over:
        columns["completed_at"] = Now()
    BackupJobRun.objects.filter(pk=run.pk).update(sources_total=sources, **columns)


def reopen(task_id: UUID) -> None:
    """Open the run of a retry that a person made, and give the retry a deadline of its own.

    Raises AlreadyEnded for a run that was cancelled, RunActive when the job runs anew meanwhile.
    """
    task = AgentTask.objects.select_related("job_run__job").defer("task_payload").get(pk=task_id)
    job = task.job_run.job
    if job is not None:
        deadline = SqlNow() + timedelta(seconds=job.start_deadline_seconds)
        AgentTask.objects.filter(pk=task_id).update(expires_at=deadline)
    run = BackupJobRun.objects.select_for_update(no_key=True, of=("self",)).get(pk=task.job_run_id)
    if run.status not in OPEN:
        if run.cancel_requested_at is not None:
            raise AlreadyEnded
        try:
            with transaction.atomic():
                BackupJobRun.objects.filter(pk=run.pk).update(status=BackupJobRun.Status.RUNNING, completed_at=None)
        except IntegrityError as conflict:
            if violated(conflict) != "backup_job_runs_one_active_backup":
                raise
            raise RunActive(active_run(run.job_id)) from None
    settle_run(run.pk)


def active_run(job_id: UUID | None) -> UUID | None:
    """The open backup run of a job."""
    runs = BackupJobRun.objects.filter(job_id=job_id, kind=BackupJobRun.Kind.BACKUP, status__in=OPEN)
    return runs.values_list("pk", flat=True).first()


def mark_damaged(repository: BackupRepository, *, by: str, note: str) -> None:
    """Say that a repository is damaged: retention stops for it until a person trusts it again."""
    if BackupRepository.objects.filter(pk=repository.pk, damaged_at=None).update(damaged_at=Now()):
        audit.record(audit.Tag.REPOSITORY_DAMAGED, repository, actor=by, details={"note": note[:2000]})


def _catalogue(task: AgentTask, repository: BackupRepository) -> None:
    """Add the snapshot of a backup, and keep the repository's own id from its first success."""
    details = task.details if isinstance(task.details, dict) else {}
    reported = details.get("engine_repository_id")
    if isinstance(reported, str) and SNAPSHOT_ID.fullmatch(reported):
        BackupRepository.objects.filter(pk=repository.pk, engine_repository_id=None).update(
            engine_repository_id=reported
        )
    engine_id = task.backup_id_in_repository or ""
    if not SNAPSHOT_ID.fullmatch(engine_id):
        return  # nothing had changed, or an id that a restore could not name
    snapshot = BackupSnapshot(
        repository=repository, engine_id=engine_id, source=task.job_source, task=task,
        complete=task.status == AgentTask.Status.SUCCEEDED, files=task.files_processed, bytes=task.bytes_processed,
    )  # fmt: skip
    BackupSnapshot.objects.bulk_create([snapshot], ignore_conflicts=True)


def _note_verification(task: AgentTask, repository: BackupRepository) -> None:
    """Note in the catalogue what a drill, or a restore of everything, proved of its snapshot.

    Most failures prove nothing: a full disk is no fault of the snapshot.
    """
    is_drill = task.job_run.trigger == BackupJobRun.Trigger.DRILL
    match task.task_payload:
        case {"restore": {"backup_id_in_repository": str(engine_id)} as asked}:
            is_proof = asked.get("verify") == "content" and not asked.get("dry_run")
            is_whole = is_drill or not asked.get("include")
        case _:
            return  # a SQL client's own
    is_good = task.status == AgentTask.Status.SUCCEEDED and is_proof and is_whole
    is_bad = task.failure_class == FailureClass.REPOSITORY or (is_drill and task.error_code in UNRESTORABLE)
    if is_good or is_bad:
        snapshots = BackupSnapshot.objects.filter(repository=repository, engine_id=engine_id)
        snapshots.update(verified_at=Now(), verified_ok=is_good)
