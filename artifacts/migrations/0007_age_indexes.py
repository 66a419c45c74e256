"""Indexes for what the purge and the verification look for, built beside running writes."""

from django.db import migrations, models

import jobs.engine.ddl
import jobs.engine.migrating


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("artifacts", "0006_arrival"),
    ]

    operations = [
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="jobartifact",
            index=jobs.engine.ddl.NamedIndex(fields=["created_at"], name="agent_job_artifacts_age_idx"),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="jobartifact",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("sensitive", True)), fields=["created_at"], name="agent_job_artifacts_sens_idx"
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="jobartifact",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(
                    ("missing_at__isnull", True), ("sha256__isnull", False), ("verified_at__isnull", True)
                ),
                fields=["created_at"],
                name="agent_job_artifacts_unver_idx",
            ),
        ),
    ]
