"""How much a job may keep: the installation's limits, or the lower ones of the job's kind."""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Subquery, Sum
from django.db.models.functions import Coalesce

from artifacts.models import JobArtifact
from jobs.models import AgentJob, JobKind

from .refusals import OverLimit

LARGEST = 2**31 - 1  # bytes; the contract's size_bytes is an integer


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bytes of one file, files of one job, and bytes of them together."""

    file_bytes: int
    files: int
    job_bytes: int


def limits_of(job_id: UUID) -> Limits:
    """The limits that hold for a job."""
    columns = ("max_file_bytes", "max_files", "max_job_bytes")
    found = JobKind.objects.filter(name=Subquery(AgentJob.objects.filter(pk=job_id).values("kind")))
    own = found.values_list(*columns).first() or (None, None, None)
    ours = (settings.ARTIFACT_MAX_BYTES, settings.ARTIFACT_MAX_FILES, settings.ARTIFACT_MAX_JOB_BYTES)
    file_bytes, files, job_bytes = (
        least if limit is None else min(limit, least) for limit, least in zip(own, ours, strict=True)
    )
    return Limits(file_bytes=file_bytes, files=files, job_bytes=job_bytes)


def check_room(job_id: UUID, limits: Limits, *, name: str, size: int) -> None:
    """Make sure that a file of this size still fits into its job. Raises OverLimit."""
    if size > LARGEST:
        raise OverLimit(f"A file may have at most {LARGEST:,} bytes: its size is kept in 32 bits.", LARGEST)
    if size > limits.file_bytes:
        raise OverLimit(f"A file may have at most {limits.file_bytes:,} bytes.", limits.file_bytes)
    others = JobArtifact.objects.filter(job_id=job_id).exclude(name=name)
    held = others.aggregate(files=Count("id"), size=Coalesce(Sum("size_bytes"), 0))
    if held["files"] >= limits.files:
        raise OverLimit(f"A job may have at most {limits.files:,} files.", limits.files)
    if held["size"] + size > limits.job_bytes:
        raise OverLimit(f"The files of a job may have at most {limits.job_bytes:,} bytes together.", limits.job_bytes)
