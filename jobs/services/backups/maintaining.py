"""Maintenance of repositories: which snapshots go, the job that removes them, and what it really did."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from agentstore_runner.contract import backup_jobs
from agentstore_runner.contract.problem import Problem
from django.db import transaction
from django.db.models.functions import Now

from jobs.engine.failure_classes import FailureClass
from jobs.models import AgentJob, AgentTask, BackupJob, BackupRepository, BackupSnapshot
from jobs.services import governance
from jobs.services.errors import Invalid, NotFound

from . import payloads
from .retention import Kept, forgettable
from .settling import mark_damaged

LABEL = "backup_repository"
AT_ONCE = 5000  # snapshots that one maintenance forgets; the ids of more do not fit into a spec
_DEPTHS = frozenset(BackupRepository.CheckDepth.values)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one maintenance does. `apply_retention`: forget what the jobs' policies let go, then prune.

    `check` is none, metadata, read_data_subset or read_data. `seen` is the mark of the list that somebody agreed to.
    """

    apply_retention: bool = False
    check: str = "none"
    unlock: bool = False
    seen: str | None = None


@dataclass(frozen=True, kw_only=True)
class LetGo:
    """What retention lets go of a repository now, the oldest first; `mark` differs for any other list."""

    snapshots: Sequence[UUID]
    engine_ids: Sequence[str]

    @property
    def mark(self) -> str:
        """A digest of the list."""
        return hashlib.sha256(",".join(self.engine_ids).encode()).hexdigest()[:32]


def dedupe_key(repository: BackupRepository) -> str:
    """What every maintenance of a repository holds while it waits or runs."""
    return f"backup_repository:{repository.pk}"


def let_go(repository: BackupRepository) -> LetGo:
    """What the jobs' policies let go now, the oldest AT_ONCE; never what a restore waits for."""
    restores = AgentTask.objects.unfinished().filter(task_type=AgentTask.Type.RESTORE)
    in_use = set(restores.values_list("task_payload__restore__backup_id_in_repository", flat=True))
    there = BackupSnapshot.objects.filter(repository=repository, forgotten_at=None).order_by("taken_at", "pk")
    found: list[BackupSnapshot] = []
    for job in BackupJob.objects.filter(sources__snapshots__in=there, retention__isnull=False).distinct():
        mine = list(there.filter(source__job=job).only("pk", "source_id", "taken_at", "complete", "engine_id"))
        gone = forgettable(
            (Kept(id=one.pk, source=one.source_id, taken_at=one.taken_at, complete=one.complete) for one in mine),
            job.retention,
        )  # fmt: skip
        found += [one for one in mine if one.pk in gone and one.engine_id not in in_use]
    oldest = sorted(found, key=lambda one: (one.taken_at, one.pk))[:AT_ONCE]
    return LetGo(snapshots=[one.pk for one in oldest], engine_ids=[one.engine_id for one in oldest])


def is_about_to_go(snapshot: BackupSnapshot) -> bool:
    """Whether a maintenance that waits or runs was told to forget it."""
    key = dedupe_key(snapshot.repository)
    going = AgentJob.objects.unfinished().filter(dedupe_key=key, kind=backup_jobs.MAINTENANCE)
    return going.filter(spec__forget__contains=[snapshot.engine_id]).exists()


@transaction.atomic
def enqueue_maintenance(*, repository_id: UUID, agent: str, plan: Plan, by: str) -> UUID:
    """Queue the maintenance of a repository on an agent that knows its credential; returns the job's id.

    Raises NotFound, Duplicate (maintenance of it waits or runs), or Invalid: a retired repository, a plan of
    nothing, another list of snapshots than the one that was seen, or retention while the repository is damaged, since
    what is forgotten then may be what is still whole.
    """
    repository = BackupRepository.objects.select_for_update(no_key=True).filter(pk=repository_id).first()
    if repository is None:
        raise NotFound
    if repository.retired_at is not None:
        raise Invalid([Problem("", "The repository is retired.")])
    if plan.apply_retention and repository.damaged_at is not None:
        raise Invalid([Problem("/apply_retention", "The repository is damaged: nothing is removed from it.")])
    if not (plan.apply_retention or plan.unlock or plan.check != "none"):
        raise Invalid([Problem("", "Choose at least one thing to do.")])
    found = let_go(repository) if plan.apply_retention else LetGo(snapshots=(), engine_ids=())
    if plan.apply_retention and plan.seen not in (None, found.mark):
        raise Invalid(
            [Problem("/apply_retention", "What would go is no longer what was shown: look at the list again.")]
        )
    forget = list(found.engine_ids)
    spec = {
        "version": 1,
        "repository": payloads.repository(repository),
        "forget": forget,
        "prune": bool(forget),
        "check": plan.check,
        "unlock": plan.unlock,
    }
    key = dedupe_key(repository)
    return governance.enqueue(
        by=by, agent=agent, kind=backup_jobs.MAINTENANCE, spec=spec, dedupe_key=key, concurrency_key=key,
        labels={LABEL: str(repository.pk)}, is_own=True,
    ).job_id  # fmt: skip


def settle_maintenance(job_id: UUID) -> None:
    """Take what a maintenance reported into the catalogue and the repository, also when it failed in the middle."""
    job = AgentJob.objects.get(pk=job_id)
    labels, results = job.labels, job.results
    if not isinstance(labels, dict) or not isinstance(results, dict):
        return
    repository_id = _uuid(labels.get(LABEL))
    repository = BackupRepository.objects.filter(pk=repository_id).first() if repository_id else None
    if repository is None:
        return  # a SQL client's own
    _note_check(repository, results.get("check"))
    asked = job.spec.get("forget", []) if isinstance(job.spec, dict) else []
    gone = {one for name in ("forgotten", "absent") for one in _texts(results.get(name)) if one in asked}
    snapshots = BackupSnapshot.objects.filter(repository=repository, engine_id__in=gone, forgotten_at=None)
    snapshots.update(forgotten_at=Now())
    if job.failure_class == FailureClass.REPOSITORY:
        mark_damaged(repository, by=f"job:{job.pk}", note=job.error or "")


def _note_check(repository: BackupRepository, said: object) -> None:
    match said:
        case {"ok": bool(is_good), "depth": str(depth)} if (word := depth.partition(" ")[0]) in _DEPTHS:
            BackupRepository.objects.filter(pk=repository.pk).update(
                checked_at=Now(), check_depth=word,
                check_result=BackupRepository.CheckResult.GOOD if is_good else BackupRepository.CheckResult.DAMAGED,
            )  # fmt: skip


def _texts(said: object) -> list[str]:
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _uuid(said: object) -> UUID | None:
    try:
        return UUID(said) if isinstance(said, str) else None
    except ValueError:
        return None
