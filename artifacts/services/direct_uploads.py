"""Large files that go straight to the bucket: a signed address for exactly these bytes, and a row once they are there.

The bytes come before the row, as everywhere: what was never completed has no row, and the sweep removes it after a day.
"""

import hashlib
import logging
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.core import signing
from django.db.models.functions import Now

from artifacts.models import OPAQUE, JobArtifact
from jobs.engine.answers import Holder
from jobs.engine.errors import EngineRefusal
from jobs.models import AgentJob
from jobs.services.errors import Invalid, Refusal
from jobs.services.execution import Caller

from .limits import check_room, limits_of
from .masking import LARGEST_MASKED, Arrival, ends_sensitive, holds_trace, starts_as_text
from .names import name_problems
from .refusals import DigestMismatch, DirectUnavailable, Incomplete
from .storage import Signed, calling, discard
from .uploads import Attached, new_key, same, write_row

SALT = "agentstore.artifacts.upload"
SECONDS = 300  # in which an upload must begin; a storage looks at the clock when the request comes
BLOCK = 8 * 1024 * 1024  # bytes that maintenance reads at once
HEAD, TAIL = 64 * 1024, 1024 * 1024  # bytes that tell what a file is

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Begun:
    """Where to put the bytes, and what to say when they are there."""

    upload: str
    request: Signed
    seconds: int


@dataclass(frozen=True, kw_only=True)
class Verified:
    """How many files were read and found to be what was announced, and how many were not and are gone."""

    verified: int
    refused: int


@dataclass(frozen=True, kw_only=True)
class _Announced:
    """What a signed upload stands for."""

    job: str
    claim: str
    key: str
    name: str
    size: int
    sha256: str
    sensitive: bool


def begin(
    *, caller: Caller, job_id: UUID, claim_id: UUID, name: str, size: int, sha256: str, sensitive: bool = False
) -> Begun | Attached:
    """Permit one upload of `size` bytes with the digest `sha256` (hex); Attached if the job has that file already.

    Raises Invalid (the name; a size that goes through the API, where texts are masked), OverLimit, ArtifactMismatch,
    DirectUnavailable, StorageUnavailable, UnknownRow, LeaseLost or Ended.
    """
    problems = name_problems(name)
    if size <= LARGEST_MASKED:
        problems.append(Problem("/size_bytes", f"Files of up to {LARGEST_MASKED:,} bytes go through the API."))
    if problems:
        raise Invalid(problems)
    AgentJob.objects.check_held(Holder(job_id, claim_id, caller.agent.principal_key))
    check_room(job_id, limits_of(job_id), name=name, size=size)
    if found := same(job_id, name, sha256):
        return Attached(artifact=found, is_new=False)
    announced = _Announced(
        job=str(job_id), claim=str(claim_id), key=new_key(job_id), name=name, size=size, sha256=sha256,
        sensitive=sensitive,
    )  # fmt: skip
    with calling() as store:
        request = store.signed_upload(announced.key, size=size, content_type=OPAQUE, sha256=sha256, seconds=SECONDS)
    if request is None:
        raise DirectUnavailable
    return Begun(upload=signing.dumps(asdict(announced), salt=SALT), request=request, seconds=SECONDS)


def complete(*, caller: Caller, job_id: UUID, claim_id: UUID, upload: str) -> Attached:
    """Make the row of a file whose bytes are in the bucket; repeating it is answered with the same row.

    It is verified at once where the storage keeps a checksum, else by maintenance. Raises Invalid, Incomplete (nothing
    or too little is there), DigestMismatch, OverLimit, ArtifactMismatch, StorageUnavailable, UnknownRow, LeaseLost or
    Ended.
    """
    holder = Holder(job_id, claim_id, caller.agent.principal_key)
    AgentJob.objects.check_held(holder)
    announced = _read(upload, job_id, claim_id)
    if found := same(job_id, announced.name, announced.sha256):
        return Attached(artifact=found, is_new=False)
    is_verified = _check(announced)
    kept = Arrival(
        size=announced.size, sha256=announced.sha256, received_sha256=None, content_type=OPAQUE, masked=0,
        sensitive=announced.sensitive or _looks_sensitive(announced),
    )  # fmt: skip
    try:
        limits = limits_of(job_id)
        artifact = write_row(holder, announced.name, announced.key, kept, limits, is_verified=is_verified)
    except (EngineRefusal, Refusal):
        discard(announced.key)
        raise
    if artifact.storage_path != announced.key:
        discard(announced.key)
    return Attached(artifact=artifact, is_new=artifact.storage_path == announced.key)


def verify(*, limit: int = 20) -> Verified:
    """Read files that nobody has verified, once their addresses have lapsed: nothing can change after that.

    A file that is not what was announced loses its bytes and is shown as missing; its runner may send it again. Safe
    to run several times at once. Raises StorageUnavailable; what was done until then stays.
    """
    waiting = JobArtifact.objects.filter(
        sha256__isnull=False, verified_at=None, missing_at=None, created_at__lt=Now() - timedelta(seconds=SECONDS)
    )
    verified = refused = 0
    for row in waiting.order_by("created_at")[:limit]:
        still = JobArtifact.objects.filter(pk=row.pk, storage_path=row.storage_path, verified_at=None)
        if _digest(row) == row.sha256:
            verified += still.update(verified_at=Now())
            continue
        logger.error("Artifact %s does not hold the bytes that were announced; they are removed", row.pk)
        discard(row.storage_path)
        refused += still.update(missing_at=Now())
    return Verified(verified=verified, refused=refused)


def _read(upload: str, job_id: UUID, claim_id: UUID) -> _Announced:
    try:
        announced = _Announced(**signing.loads(upload, salt=SALT))
    except signing.BadSignature:
        raise Invalid([Problem("/upload", "Must be the upload that the call before gave.")]) from None
    if (announced.job, announced.claim) != (str(job_id), str(claim_id)):
        raise Invalid([Problem("/upload", "Belongs to another job or claim.")])
    return announced


def _check(announced: _Announced) -> bool:
    """Whether the storage itself vouches for the bytes. Raises Incomplete or DigestMismatch."""
    with calling() as store:
        found = store.head(announced.key)
    if found is None:
        raise Incomplete
    if found.size != announced.size:
        discard(announced.key)
        raise Incomplete
    if found.sha256 and found.sha256 != announced.sha256:
        discard(announced.key)
        raise DigestMismatch
    return found.sha256 is not None


def _looks_sensitive(announced: _Announced) -> bool:
    """Whether it is a text, which nobody masked, or the record of a browser's session."""
    if ends_sensitive(announced.name):
        return True
    with calling() as store:
        head = store.part(announced.key, start=0, length=HEAD)
        if starts_as_text(head):
            return True
        start = max(0, announced.size - TAIL)
        return holds_trace(head, store.part(announced.key, start=start, length=TAIL))


def _digest(row: JobArtifact) -> str:
    digest, start = hashlib.sha256(), 0
    with calling() as store:
        try:
            while block := store.part(row.storage_path, start=start, length=BLOCK):
                digest.update(block)
                start += len(block)
        except FileNotFoundError:
            return ""
    return digest.hexdigest()
