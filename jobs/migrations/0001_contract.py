"""The contract with SQL clients, as idempotent SQL: an existing database is adopted by migrating.

Nothing here changes a table that is there already; what the project adds comes with the next migrations.
"""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models

import jobs.engine.ddl

PRELUDE = """
SET LOCAL lock_timeout = '5s';
DO $$ BEGIN
  IF to_regproc('iam_set_updated_at') IS NULL THEN
    CREATE FUNCTION iam_set_updated_at() RETURNS trigger LANGUAGE plpgsql AS
      $f$ BEGIN NEW.updated_at = now(); RETURN NEW; END $f$;
  END IF;
END $$;
CREATE TABLE IF NOT EXISTS agents (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
ALTER TABLE agents ADD COLUMN IF NOT EXISTS principal_key text NOT NULL DEFAULT (gen_random_uuid())::text
  CONSTRAINT agents_principal_key_key UNIQUE;
CREATE TABLE IF NOT EXISTS backup_job_runs (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS backup_job_sources (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
"""

AGENT_JOBS = """
CREATE TABLE IF NOT EXISTS agent_jobs (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  principal_key text NOT NULL,
  kind          text NOT NULL,
  spec          jsonb NOT NULL DEFAULT '{}'::jsonb,
  status        text NOT NULL DEFAULT 'queued'
                CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
  verdict       text CHECK (verdict IN ('pass', 'fail', 'risk')),
  results       jsonb,
  error         text,
  run_ref       text,
  queued_at     timestamptz NOT NULL DEFAULT now(),
  started_at    timestamptz,
  finished_at   timestamptz,
  created_by    text,
  created_at    timestamptz NOT NULL DEFAULT now(),
  updated_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS agent_jobs_principal_status_idx ON agent_jobs (principal_key, status, queued_at);
CREATE INDEX IF NOT EXISTS agent_jobs_status_idx ON agent_jobs (status, queued_at);
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger
                 WHERE tgrelid = 'agent_jobs'::regclass AND tgname = 'agent_jobs_set_updated_at') THEN
    CREATE TRIGGER agent_jobs_set_updated_at BEFORE UPDATE ON agent_jobs
      FOR EACH ROW EXECUTE FUNCTION iam_set_updated_at();
  END IF;
END $$;
ALTER TABLE agent_jobs ENABLE ROW LEVEL SECURITY;
"""

AGENT_TASKS = """
CREATE TABLE IF NOT EXISTS agent_tasks (
  id                    uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  agent_id              uuid NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  job_run_id            uuid NOT NULL REFERENCES backup_job_runs (id) ON DELETE CASCADE,
  job_source_id         uuid NOT NULL REFERENCES backup_job_sources (id) ON DELETE CASCADE,
  task_type             text NOT NULL DEFAULT 'backup',
  status                text NOT NULL DEFAULT 'pending',
  task_payload          jsonb NOT NULL,
  bytes_processed       bigint NOT NULL DEFAULT 0,
  bytes_written         bigint NOT NULL DEFAULT 0,
  files_processed       bigint NOT NULL DEFAULT 0,
  files_skipped         bigint NOT NULL DEFAULT 0,
  backup_id_in_repository text,
  error_code            text,
  error_message         text,
  failure_class         text,
  heartbeat_at          timestamptz,
  claimed_at            timestamptz,
  started_at            timestamptz,
  completed_at          timestamptz,
  created_at            timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT agent_tasks_status_valid CHECK (status IN
    ('pending', 'claimed', 'running', 'succeeded', 'partial_failure', 'failed', 'cancelled')),
  CONSTRAINT agent_tasks_type_valid CHECK (task_type IN ('backup', 'restore')),
  CONSTRAINT agent_tasks_completed_when_done CHECK
    (status IN ('pending', 'claimed', 'running') OR completed_at IS NOT NULL),
  CONSTRAINT agent_tasks_skipped_is_not_success CHECK (files_skipped = 0 OR status <> 'succeeded'),
  CONSTRAINT agent_tasks_failure_is_classified CHECK (status <> 'failed' OR failure_class IS NOT NULL)
);
CREATE UNIQUE INDEX IF NOT EXISTS agent_tasks_single_active_idx
  ON agent_tasks (agent_id) WHERE status IN ('claimed', 'running');
CREATE INDEX IF NOT EXISTS agent_tasks_pending_idx ON agent_tasks (agent_id, created_at) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS agent_tasks_job_run_idx ON agent_tasks (job_run_id);
CREATE INDEX IF NOT EXISTS agent_tasks_heartbeat_idx
  ON agent_tasks (heartbeat_at) WHERE status IN ('claimed', 'running');
"""

# Backwards only over empty tables: they may have been somebody's before they were ours. The function always stays.
DROP = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM agent_jobs) OR EXISTS (SELECT FROM agent_tasks) THEN
    RAISE EXCEPTION 'agent_jobs and agent_tasks hold rows; empty them by hand before migrating back.';
  END IF;
END $$;
DROP TABLE agent_tasks, agent_jobs, backup_job_sources, backup_job_runs, agents;
"""


def uuid_key() -> models.UUIDField:
    return models.UUIDField(
        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, primary_key=True, serialize=False
    )


def now() -> models.DateTimeField:
    return models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())


def reference(to: str) -> models.ForeignKey:
    return models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to=to)


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(PRELUDE + AGENT_JOBS + AGENT_TASKS, DROP)],
            state_operations=[
                migrations.CreateModel(
                    "Agent",
                    fields=[
                        ("id", uuid_key()),
                        ("principal_key", models.TextField(db_default=jobs.engine.ddl.RandomText(), unique=True)),
                    ],
                    options={"db_table": "agents"},
                ),
                migrations.CreateModel(
                    "BackupJobRun", fields=[("id", uuid_key())], options={"db_table": "backup_job_runs"}
                ),
                migrations.CreateModel(
                    "BackupJobSource", fields=[("id", uuid_key())], options={"db_table": "backup_job_sources"}
                ),
                migrations.CreateModel(
                    "AgentJob",
                    fields=[
                        ("id", uuid_key()),
                        (
                            "agent",
                            models.ForeignKey(
                                db_column="principal_key",
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="jobs",
                                to="jobs.agent",
                                to_field="principal_key",
                            ),
                        ),
                        ("kind", models.TextField()),
                        ("spec", models.JSONField(db_default={})),
                        ("status", models.TextField(db_default="queued")),
                        ("verdict", models.TextField(blank=True, null=True)),
                        ("results", models.JSONField(blank=True, null=True)),
                        ("error", models.TextField(blank=True, null=True)),
                        ("run_ref", models.TextField(blank=True, null=True)),
                        ("queued_at", now()),
                        ("started_at", models.DateTimeField(null=True)),
                        ("finished_at", models.DateTimeField(null=True)),
                        ("created_by", models.TextField(null=True)),
                        ("created_at", now()),
                        ("updated_at", now()),
                    ],
                    options={
                        "db_table": "agent_jobs",
                        "indexes": [
                            jobs.engine.ddl.NamedIndex(
                                fields=["agent", "status", "queued_at"], name="agent_jobs_principal_status_idx"
                            ),
                            models.Index(fields=["status", "queued_at"], name="agent_jobs_status_idx"),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(status__in=["queued", "running", "done", "failed", "cancelled"]),
                                name="agent_jobs_status_check",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(verdict__in=["pass", "fail", "risk"]),
                                name="agent_jobs_verdict_check",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    "AgentTask",
                    fields=[
                        ("id", uuid_key()),
                        ("agent", reference("jobs.agent")),
                        ("job_run", reference("jobs.backupjobrun")),
                        ("job_source", reference("jobs.backupjobsource")),
                        ("task_type", models.TextField(db_default="backup")),
                        ("status", models.TextField(db_default="pending")),
                        ("task_payload", models.JSONField()),
                        ("bytes_processed", models.BigIntegerField(db_default=0)),
                        ("bytes_written", models.BigIntegerField(db_default=0)),
                        ("files_processed", models.BigIntegerField(db_default=0)),
                        ("files_skipped", models.BigIntegerField(db_default=0)),
                        ("backup_id_in_repository", models.TextField(null=True)),
                        ("error_code", models.TextField(null=True)),
                        ("error_message", models.TextField(null=True)),
                        ("failure_class", models.TextField(null=True)),
                        ("heartbeat_at", models.DateTimeField(null=True)),
                        ("claimed_at", models.DateTimeField(null=True)),
                        ("started_at", models.DateTimeField(null=True)),
                        ("completed_at", models.DateTimeField(null=True)),
                        ("created_at", now()),
                    ],
                    options={
                        "db_table": "agent_tasks",
                        "indexes": [
                            models.Index(
                                condition=models.Q(status="pending"),
                                fields=["agent", "created_at"],
                                name="agent_tasks_pending_idx",
                            ),
                            models.Index(fields=["job_run"], name="agent_tasks_job_run_idx"),
                            models.Index(
                                condition=models.Q(status__in=["claimed", "running"]),
                                fields=["heartbeat_at"],
                                name="agent_tasks_heartbeat_idx",
                            ),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    status__in=[
                                        "pending",
                                        "claimed",
                                        "running",
                                        "succeeded",
                                        "partial_failure",
                                        "failed",
                                        "cancelled",
                                    ]
                                ),
                                name="agent_tasks_status_valid",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(task_type__in=["backup", "restore"]), name="agent_tasks_type_valid"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(status__in=["pending", "claimed", "running"])
                                | models.Q(completed_at__isnull=False),
                                name="agent_tasks_completed_when_done",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(files_skipped=0) | models.Q(status__ne="succeeded"),
                                name="agent_tasks_skipped_is_not_success",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(status__ne="failed") | models.Q(failure_class__isnull=False),
                                name="agent_tasks_failure_is_classified",
                            ),
                            models.UniqueConstraint(
                                condition=models.Q(status__in=["claimed", "running"]),
                                fields=["agent"],
                                name="agent_tasks_single_active_idx",
                            ),
                        ],
                    },
                ),
            ],
        )
    ]
