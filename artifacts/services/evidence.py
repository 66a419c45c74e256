"""Evidence that people open: checked at the door, written into the audit trail, served by a short-lived address."""

from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.db import transaction

from artifacts.models import OPAQUE, RASTER, TEXT, JobArtifact
from jobs import audit
from jobs.models import AgentJob
from jobs.services.errors import NotFound

from .names import disposition
from .refusals import BytesMissing, Withheld
from .storage import calling, open_bytes

LONGEST = 300  # seconds; an address is a bearer, and browsers keep addresses


@transaction.atomic
def open_artifact(*, artifact_id: UUID, by: str, sensitive: bool, download: bool = False) -> str:
    """A signed address of a file's bytes, with an audit line that `by` opened it; `sensitive`: whether `by` may.

    Raises NotFound, Withheld, BytesMissing or StorageUnavailable.
    """
    artifact = visible(artifact_id=artifact_id)
    if artifact.sensitive and not sensitive:
        raise Withheld
    inline = artifact.is_image and not download
    details = {"artifact_id": str(artifact.pk), "name": artifact.name, "download": not inline}
    audit.record(audit.Tag.ARTIFACT_OPENED, AgentJob(pk=artifact.job_id), actor=by, details=details)
    return signed_url(artifact, inline=inline)


def visible(*, artifact_id: UUID) -> JobArtifact:
    """The row of a file that can be opened. Raises NotFound or BytesMissing."""
    artifact = JobArtifact.objects.filter(pk=artifact_id).first()
    if artifact is None:
        raise NotFound
    if artifact.missing_at:
        raise BytesMissing
    return artifact


def signed_url(artifact: JobArtifact, *, inline: bool) -> str:
    """An address that serves the file for a minute: type and disposition are ours, and part of the signature.

    Raises BytesMissing (only for a key that no object can have) or StorageUnavailable.
    """
    # Without a digest it is a plain SQL client that says what the file is.
    content_type = artifact.content_type if artifact.sha256 and artifact.content_type in (*RASTER, TEXT) else OPAQUE
    with calling() as store:
        try:
            return store.signed_url(
                artifact.storage_path,
                content_type=f"{TEXT}; charset=utf-8" if content_type == TEXT else content_type,
                disposition=disposition(artifact.name, inline=inline and artifact.is_image),
                seconds=min(settings.AGENTSTORE_SIGNED_URL_SECONDS, LONGEST),
            )
        except FileNotFoundError:
            raise BytesMissing from None


def open_thumbnail(*, artifact_id: UUID) -> "File[bytes]":
    """The small picture (WebP) of an image. Raises NotFound, BytesMissing or StorageUnavailable."""
    key = JobArtifact.objects.filter(pk=artifact_id).values_list("thumbnail_path", flat=True).first()
    if not key:
        raise NotFound
    return open_bytes(key)
