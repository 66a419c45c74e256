"""Indexes of the admin's lists and charts: what ended lately, also of one kind, and search by key or run."""

from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import LOCK_TIMEOUT, AddIndexBesideWrites


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("jobs", "0003_rules"),
    ]

    operations = [
        migrations.RunSQL(LOCK_TIMEOUT, migrations.RunSQL.noop),
        AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["finished_at"],
                include=["id", "status", "verdict", "queued_at", "not_before", "started_at"],
                name="agent_jobs_ended_idx",
            ),
        ),
        AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["kind", "finished_at"],
                name="agent_jobs_kind_ended_idx",
            ),
        ),
        AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("dedupe_key__isnull", False)),
                fields=["dedupe_key"],
                name="agent_jobs_dedupe_search_idx",
                opclasses=["text_pattern_ops"],
            ),
        ),
        AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("run_ref__isnull", False)),
                fields=["run_ref"],
                name="agent_jobs_run_ref_idx",
                opclasses=["text_pattern_ops"],
            ),
        ),
    ]
