"""Files that agents attach: first the bytes, then the row, so that every row has its bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.core.files.base import File
from django.db import transaction
from django.db.models.functions import Now

from artifacts.models import JobArtifact
from jobs import audit
from jobs.engine.answers import Holder
from jobs.engine.errors import EngineRefusal, UnknownRow
from jobs.models import AgentJob
from jobs.services.errors import Invalid, Refusal
from jobs.services.execution import Caller

from .limits import Limits, check_room, limits_of
from .masking import Arrival, arrival
from .names import name_problems
from .receiving import Stream, received
from .refusals import ArtifactMismatch
from .storage import PREFIX, calling, discard


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A stored file; `is_new` is False when the job had it already."""

    artifact: JobArtifact
    is_new: bool


def attach(
    *,
    caller: Caller,
    job_id: UUID,
    claim_id: UUID,
    name: str,
    length: int,
    sha256: str,
    stream: Stream,
    sensitive: bool = False,
) -> Attached:
    """Store a file of a job that the caller holds: `length` bytes of `stream` with the digest `sha256` (hex).

    Text is kept with its credentials masked. The same name with the same bytes is answered with the row that is there.
    Raises Invalid (the name), OverLimit, Incomplete, DigestMismatch, ArtifactMismatch, StorageUnavailable, UnknownRow,
    LeaseLost or Ended.
    """
    if problems := name_problems(name):
        raise Invalid(problems)
    holder = Holder(job_id, claim_id, caller.agent.principal_key)
    AgentJob.objects.check_held(holder)
    limits = limits_of(job_id)
    check_room(job_id, limits, name=name, size=length)
    with received(stream, length=length, sha256=sha256) as file:
        if found := same(job_id, name, sha256):
            return Attached(artifact=found, is_new=False)
        content, kept = arrival(file, name=name, size=length, sha256=sha256, sensitive=sensitive)
        key = new_key(job_id)
        with calling() as store:
            key = store.save(key, File(content))
    try:
        artifact = write_row(holder, name, key, kept, limits, is_verified=True)
    except (EngineRefusal, Refusal):
        # Only then: after trouble with the database nobody knows whether the row is there. The sweep will.
        discard(key)
        raise
    if artifact.storage_path != key:
        discard(key)
        return Attached(artifact=artifact, is_new=False)
    return Attached(artifact=artifact, is_new=True)


def artifacts_of(*, caller: Caller, job_id: UUID) -> Sequence[JobArtifact]:
    """The files of a job of the caller's agent, by name: what a restarted runner need not send again.

    Raises UnknownRow.
    """
    if not AgentJob.objects.filter(pk=job_id, agent=caller.agent).exists():
        raise UnknownRow
    return list(JobArtifact.objects.filter(job_id=job_id, sha256__isnull=False).order_by("name", "id"))


def new_key(job_id: UUID) -> str:
    """A key that was never used; nothing of it comes from outside."""
    return f"{PREFIX}{job_id}/{uuid4()}"


def same(job_id: UUID, name: str, sha256: str) -> JobArtifact | None:
    """The row that holds the file that was announced so, with its bytes.

    Raises ArtifactMismatch when other bytes have the name.
    """
    found = JobArtifact.objects.filter(job_id=job_id, name=name, sha256__isnull=False).first()
    if found and found.announced_sha256 != sha256:
        raise ArtifactMismatch(found)
    return None if found is None or found.missing_at else found


@transaction.atomic
def write_row(holder: Holder, name: str, key: str, kept: Arrival, limits: Limits, *, is_verified: bool) -> JobArtifact:
    """The row of a stored file, or the row that a simultaneous upload of the same bytes made."""
    # The lock keeps the lease as it is, and the uploads of one job one after another, until the row is there.
    AgentJob.objects.check_held(holder, lock=True)
    if found := same(holder.row_id, name, kept.received_sha256 or kept.sha256):
        return found
    check_room(holder.row_id, limits, name=name, size=kept.size)
    if kept.masked:
        details = {"count": kept.masked, "name": name}
        audit.record(audit.Tag.UNREDACTED, AgentJob(pk=holder.row_id), actor=str(holder.agent), details=details)
    # A row whose bytes were lost gets them back; it keeps its id, which reports refer to.
    row, _ = JobArtifact.objects.filter(sha256__isnull=False).update_or_create(
        job_id=holder.row_id, name=name,
        defaults={
            "storage_path": key, "content_type": kept.content_type, "size_bytes": kept.size, "sha256": kept.sha256,
            "received_sha256": kept.received_sha256, "masked": kept.masked, "sensitive": kept.sensitive,
            "verified_at": Now() if is_verified else None, "missing_at": None, "thumbnail_path": None,
        },
    )  # fmt: skip
    return row
