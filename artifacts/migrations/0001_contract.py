"""The contract's table of files, as idempotent SQL: an existing database is adopted by migrating."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models

import jobs.engine.ddl

TABLE = """
SET LOCAL lock_timeout = '5s';
CREATE TABLE IF NOT EXISTS agent_job_artifacts (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  job_id        uuid NOT NULL REFERENCES agent_jobs (id) ON DELETE CASCADE,
  name          text NOT NULL,
  content_type  text NOT NULL DEFAULT 'image/png',
  storage_path  text NOT NULL,
  size_bytes    integer NOT NULL DEFAULT 0,
  created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS agent_job_artifacts_job_idx ON agent_job_artifacts (job_id);
ALTER TABLE agent_job_artifacts ENABLE ROW LEVEL SECURITY;
"""

DROP = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM agent_job_artifacts) THEN
    RAISE EXCEPTION 'agent_job_artifacts holds rows; empty it by hand before migrating back.';
  END IF;
END $$;
DROP TABLE agent_job_artifacts;
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = [("jobs", "0001_contract")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TABLE, DROP)],
            state_operations=[
                migrations.CreateModel(
                    "JobArtifact",
                    fields=[
                        (
                            "id",
                            models.UUIDField(
                                db_default=django.contrib.postgres.functions.RandomUUID(),
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        (
                            "job",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="artifacts",
                                to="jobs.agentjob",
                            ),
                        ),
                        ("name", models.TextField()),
                        ("content_type", models.TextField(db_default="image/png")),
                        ("storage_path", models.TextField()),
                        ("size_bytes", models.IntegerField(db_default=0)),
                        ("created_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())),
                    ],
                    options={
                        "db_table": "agent_job_artifacts",
                        "indexes": [jobs.engine.ddl.NamedIndex(fields=["job"], name="agent_job_artifacts_job_idx")],
                    },
                )
            ],
        )
    ]
