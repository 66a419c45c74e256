"""Indexes for the sweep and for thumbnails, built beside running writes."""

from django.db import migrations, models
from django.db.models.functions import Collate

import jobs.engine.ddl
import jobs.engine.migrating


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("artifacts", "0004_thumbnails_and_removals"),
    ]

    operations = [
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="jobartifact",
            index=jobs.engine.ddl.NamedIndex(Collate("storage_path", "C"), name="agent_job_artifacts_key_idx"),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="jobartifact",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(
                    ("content_type__in", ["image/png", "image/jpeg", "image/webp", "image/gif"]),
                    ("missing_at__isnull", True),
                    ("sha256__isnull", False),
                    ("thumbnail_path__isnull", True),
                ),
                fields=["created_at"],
                name="agent_job_artifacts_thumb_idx",
            ),
        ),
    ]
