"""Small pictures of images, made by maintenance: a request never decodes what somebody else sent."""

import logging
import subprocess
import sys
from dataclasses import dataclass
from uuid import uuid4

from django.core.files.base import ContentFile
from django.db.models.functions import Now

from artifacts.models import RASTER, JobArtifact

from . import shrinking
from .refusals import BytesMissing
from .storage import calling, discard, open_bytes

SECONDS = 30  # of wall clock for one picture; its own clock stops it sooner
ENDING = ".thumb.webp"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Thumbnailed:
    """How many images got a thumbnail, and how many cannot have one."""

    made: int
    skipped: int


def make_thumbnails(*, limit: int = 20) -> Thumbnailed:
    """Make the thumbnails of at most `limit` images that wait, the newest first. Safe to run several times at once.

    Raises StorageUnavailable; what was made until then stays.
    """
    waiting = JobArtifact.objects.filter(
        thumbnail_path=None, sha256__isnull=False, missing_at=None, sensitive=False, content_type__in=list(RASTER)
    )
    made = skipped = 0
    for artifact in waiting.order_by("-created_at")[:limit]:
        # The first of several writers wins, and only while the row still has the bytes that were looked at.
        still = JobArtifact.objects.filter(pk=artifact.pk, thumbnail_path=None, storage_path=artifact.storage_path)
        try:
            key = _stored_thumbnail(artifact)
        except BytesMissing:
            still.update(missing_at=Now())
            continue
        won = still.update(thumbnail_path=key)
        if key and not won:
            discard(key)
        made += won if key else 0
        skipped += 0 if key else won
    return Thumbnailed(made=made, skipped=skipped)


def owner_of(key: str) -> str:
    """The key of the image that an object belongs to: itself, unless it is a thumbnail."""
    return key.removesuffix(ENDING).rpartition(".")[0] if key.endswith(ENDING) else key


def _stored_thumbnail(artifact: JobArtifact) -> str:
    """The key of a new thumbnail; empty if there can be none. Raises BytesMissing or StorageUnavailable."""
    with calling(), open_bytes(artifact.storage_path) as file:
        original = file.read()
    picture = thumbnail(original, artifact.content_type)
    if picture is None:
        return ""
    with calling() as store:
        # A key of its own each time: of two writers at once neither touches what the other stored.
        return store.save(f"{artifact.storage_path}.{uuid4().hex[:8]}{ENDING}", ContentFile(picture))


def thumbnail(original: bytes, content_type: str) -> bytes | None:
    """A WebP of at most 480 pixels a side; None for what is too large to decode safely, or cannot be decoded.

    Made by a child with limits of memory and time: what a picture does to its decoder, it does to nobody else.
    """
    command = [sys.executable, "-I", shrinking.__file__, RASTER[content_type]]
    try:
        done = subprocess.run(command, input=original, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        logger.warning("An image was given up: its thumbnail took more than %d seconds", SECONDS)
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None
