"""`agent_job_artifacts`: one file that a runner attached to a job. A contract with SQL clients; we only add to it."""

import pgtrigger
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Collate
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import NamedIndex, SqlNow
from jobs.models import AgentJob

# Every type that a checked file can have. Raster images are shown in the browser, all else is only downloaded.
RASTER = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF"}
TEXT, OPAQUE = "text/plain", "application/octet-stream"


class JobArtifact(models.Model):
    """The row of a file. Its name is display text; `storage_path` is the key that the server made."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    job = models.ForeignKey(
        AgentJob,
        verbose_name=_("job"),
        on_delete=models.CASCADE,
        db_constraint=False,  # the contract's own, ON DELETE CASCADE in the database
        db_index=False,  # agent_job_artifacts_job_idx
        related_name="artifacts",
    )
    name = models.TextField(_("name"))
    content_type = models.TextField(_("content type"), db_default="image/png")
    storage_path = models.TextField(_("storage key"), editable=False)
    size_bytes = models.IntegerField(_("size (bytes)"), db_default=0)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow())
    sha256 = models.TextField(_("SHA-256"), null=True, editable=False)  # NULL: a plain SQL client's row, never verified
    # As announced and received, where masking changed what is stored; the digest above is always of the stored bytes.
    received_sha256 = models.TextField(null=True, editable=False)
    masked = models.IntegerField(_("secrets masked"), db_default=0, editable=False)
    verified_at = models.DateTimeField(_("verified"), null=True, editable=False)  # when the server saw these bytes
    sensitive = models.BooleanField(_("sensitive"), db_default=False, editable=False)
    missing_at = models.DateTimeField(_("bytes missing since"), null=True, editable=False)
    # The key of the small picture; NULL: not tried yet, empty: there can be none.
    thumbnail_path = models.TextField(null=True, editable=False)

    class Meta:
        db_table = "agent_job_artifacts"
        db_table_comment = "One file that a runner attached to a job; the bytes lie in private storage."
        verbose_name = _("artifact")
        verbose_name_plural = _("artifacts")
        permissions = [
            ("open_jobartifact", "Can open artifacts"),
            ("open_sensitive_jobartifact", "Can open sensitive artifacts"),
        ]
        indexes = [
            NamedIndex(name="agent_job_artifacts_job_idx", fields=["job"]),
            # The sweep walks rows and objects side by side, in the order in which a storage lists its keys.
            NamedIndex(Collate("storage_path", "C"), name="agent_job_artifacts_key_idx"),
            # Images that wait for their thumbnail.
            NamedIndex(
                name="agent_job_artifacts_thumb_idx",
                fields=["created_at"],
                condition=Q(
                    thumbnail_path__isnull=True,
                    sha256__isnull=False,
                    missing_at__isnull=True,
                    content_type__in=["image/png", "image/jpeg", "image/webp", "image/gif"],
                ),
            ),
            # What the purge looks for: files by age, of all kinds and the sensitive ones.
            NamedIndex(name="agent_job_artifacts_age_idx", fields=["created_at"]),
            NamedIndex(name="agent_job_artifacts_sens_idx", fields=["created_at"], condition=Q(sensitive=True)),
            # Direct uploads that maintenance must still read.
            NamedIndex(
                name="agent_job_artifacts_unver_idx",
                fields=["created_at"],
                condition=Q(sha256__isnull=False, verified_at__isnull=True, missing_at__isnull=True),
            ),
        ]
        constraints = [
            # A repeated upload must find its first row; only rows of ours, since SQL clients may reuse a name.
            models.UniqueConstraint(
                name="agent_job_artifacts_name_idx", fields=["job", "name"], condition=Q(sha256__isnull=False)
            ),
            # The digest is what makes evidence of a file.
            models.CheckConstraint(
                name="agent_job_artifacts_sha256_valid", condition=Q(sha256__regex=r"^[0-9a-f]{64}$")
            ),
        ]
        triggers = [
            pgtrigger.Trigger(
                name="held",
                when=pgtrigger.Before,
                operation=pgtrigger.Delete,
                # A file of a held job goes with nobody. Its function runs as its owner, since others see no holds.
                func="""
                    IF EXISTS (
                        SELECT FROM agent_jobs job JOIN legal_holds hold ON hold.root_id = coalesce(job.root_id, job.id)
                        WHERE job.id = OLD.job_id
                    ) THEN
                        RAISE EXCEPTION 'Job % of this file is under a legal hold.', OLD.job_id
                            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'agent_job_artifacts_held',
                            TABLE = 'agent_job_artifacts';
                    END IF;
                    RETURN OLD;
                """,
            ),
            pgtrigger.Trigger(
                name="keep_key",
                when=pgtrigger.After,
                operation=pgtrigger.Delete,
                # Rows go with their job by cascade, where no application sees their keys. Bytes of a plain SQL
                # client's row are that client's own.
                condition=pgtrigger.Condition("OLD.sha256 IS NOT NULL"),
                func="""
                    INSERT INTO artifact_removals (key)
                        SELECT key FROM (VALUES (OLD.storage_path), (nullif(OLD.thumbnail_path, ''))) AS keys (key)
                        WHERE key IS NOT NULL;
                    RETURN NULL;
                """,
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_image(self) -> bool:
        """Whether the bytes are a raster image that maintenance has decoded, which alone is ever shown inline."""
        return bool(self.sha256 and self.thumbnail_path) and self.content_type in RASTER

    @property
    def announced_sha256(self) -> str | None:
        """The digest of the bytes as the runner sent them."""
        return self.received_sha256 or self.sha256


class ArtifactRemoval(models.Model):
    """An object in the storage whose row is gone; the sweep removes it, however long the storage is down."""

    id = models.BigAutoField(primary_key=True)
    key = models.TextField(editable=False)
    removed_at = models.DateTimeField(db_default=SqlNow(), editable=False)  # when its row was

    class Meta:
        db_table = "artifact_removals"
        db_table_comment = "Objects in the storage whose row was deleted and that are still to be removed."

    def __str__(self) -> str:
        return self.key
