"""Looks into snapshots: a job that lists one folder, and what the latest such job has found."""

import hashlib
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from agentstore_runner.contract import backup_jobs
from agentstore_runner.contract.problem import Problem
from django.db import transaction

from jobs.models import AgentJob, BackupSnapshot
from jobs.services import governance
from jobs.services.documents import storable_problems
from jobs.services.errors import Invalid, NotFound

from . import payloads

LABEL = "backup_snapshot"
MAX_PATH = 4096


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name in a folder; `kind` is file, dir, symlink or whatever else restic calls it; `size` is bytes."""

    name: str
    kind: str
    size: int
    mtime: str

    @property
    def is_folder(self) -> bool:
        """Whether there may be something in it."""
        return self.kind == "dir"


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What one folder of a snapshot holds, folders first; `is_cut`: there is more than a list may hold."""

    entries: Sequence[Entry]
    is_cut: bool


@transaction.atomic
def enqueue_listing(*, snapshot_id: UUID, path: str, agent: str, by: str) -> UUID:
    """Queue a look into one folder of a snapshot, on an agent that knows its repository's credential.

    Returns the job's id. Raises NotFound, Duplicate (the same look waits or runs), or Invalid.
    """
    snapshot = BackupSnapshot.objects.select_related("repository").filter(pk=snapshot_id).first()
    if snapshot is None:
        raise NotFound
    problems = storable_problems(path, "/path")
    if not path.startswith("/") or len(path) > MAX_PATH:
        problems = [*problems, Problem("/path", f"A path that begins with /, of at most {MAX_PATH} characters.")]
    if snapshot.forgotten_at is not None:
        problems = [*problems, Problem("/snapshot", "The snapshot was forgotten; its data may be gone.")]
    if problems:
        raise Invalid(problems)
    folder = whole(path)
    spec = {
        "version": 1,
        "repository": payloads.repository(snapshot.repository) | {"init_if_missing": False},
        "snapshot": snapshot.engine_id,
        "path": folder,
    }
    return governance.enqueue(
        by=by, agent=agent, kind=backup_jobs.LISTING, spec=spec, dedupe_key=_key(snapshot, folder),
        labels={LABEL: str(snapshot.pk)}, is_own=True,
    ).job_id  # fmt: skip


def latest_listings(snapshot: BackupSnapshot, path: str) -> tuple[AgentJob | None, AgentJob | None]:
    """The newest look into a folder that was done, and the newest of all, whatever became of it."""
    mine = AgentJob.objects.filter(dedupe_key=_key(snapshot, whole(path)), kind=backup_jobs.LISTING)
    newest_first = mine.order_by("-queued_at", "-pk").select_related("agent")
    return newest_first.filter(status=AgentJob.Status.DONE).first(), newest_first.first()


def folder_of(job: AgentJob) -> Folder:
    """What a look found, in whatever shape its report is."""
    results = job.results if isinstance(job.results, dict) else {}
    said = results.get("entries")
    entries = [
        Entry(name=one["name"], kind=str(one.get("type") or ""), size=_size(one.get("size")), mtime=_text(one, "mtime"))
        for one in (said if isinstance(said, list) else [])
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]
    entries.sort(key=lambda one: (not one.is_folder, one.name.casefold(), one.name))
    return Folder(entries=entries, is_cut=results.get("truncated") is True)


def whole(path: str) -> str:
    """A path as jobs and lists name it: without a slash at its end, without dots."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _key(snapshot: BackupSnapshot, folder: str) -> str:
    digest = hashlib.sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"backup_list:{snapshot.pk}:{digest}"


def _size(said: object) -> int:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 2**63 else 0


def _text(one: dict[str, object], name: str) -> str:
    said = one.get(name)
    return said if isinstance(said, str) else ""
