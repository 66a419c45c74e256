"""What the project adds to the contract: columns that are NULL or have a default, tables, triggers, history."""

import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
import jobs.engine.stored_json
import jobs.engine.triggers
from jobs.engine.claim import lookup_function_sql
from jobs.engine.migrating import TRIGGER_RIGHTS, row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0001_contract"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="AgentEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                ("principal_key", models.TextField(db_default=jobs.engine.ddl.RandomText(), verbose_name="key")),
                ("title", models.TextField(blank=True, db_default="", verbose_name="title")),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("active", "active"),
                            ("paused", "paused"),
                            ("draining", "draining"),
                            ("disabled", "disabled"),
                        ],
                        db_default="active",
                        verbose_name="state",
                    ),
                ),
                ("state_note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("state_until", models.DateTimeField(blank=True, null=True, verbose_name="until")),
                ("lease_seconds", models.IntegerField(db_default=90, verbose_name="lease (seconds)")),
            ],
            options={
                "db_table": "agent_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="AgentJobEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                ("kind", models.TextField(verbose_name="kind")),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        db_default="queued",
                        verbose_name="status",
                    ),
                ),
                (
                    "verdict",
                    models.TextField(
                        blank=True,
                        choices=[("pass", "pass"), ("fail", "fail"), ("risk", "risk")],
                        null=True,
                        verbose_name="verdict",
                    ),
                ),
                ("error", models.TextField(blank=True, null=True, verbose_name="error")),
                ("run_ref", models.TextField(blank=True, null=True, verbose_name="run")),
                ("created_by", models.TextField(null=True, verbose_name="created by")),
                ("root_id", models.UUIDField(editable=False, null=True)),
                ("claim_id", models.UUIDField(editable=False, null=True)),
                ("claimed_by", models.TextField(editable=False, null=True)),
                ("ended_by", models.TextField(editable=False, null=True)),
                ("attempt", models.IntegerField(db_default=1, editable=False)),
                ("failure_class", models.TextField(blank=True, null=True, verbose_name="failure class")),
                ("cancel_requested_at", models.DateTimeField(editable=False, null=True)),
                ("cancel_requested_by", models.TextField(editable=False, null=True)),
                ("cancel_reason", models.TextField(editable=False, null=True)),
                ("cancel_delivered_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "db_table": "agent_job_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="AgentTaskEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                (
                    "task_type",
                    models.TextField(
                        choices=[("backup", "backup"), ("restore", "restore")], db_default="backup", verbose_name="type"
                    ),
                ),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("pending", "pending"),
                            ("claimed", "claimed"),
                            ("running", "running"),
                            ("succeeded", "succeeded"),
                            ("partial_failure", "partial failure"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        db_default="pending",
                        verbose_name="status",
                    ),
                ),
                ("error_code", models.TextField(null=True, verbose_name="error code")),
                ("error_message", models.TextField(null=True, verbose_name="error")),
                ("root_id", models.UUIDField(editable=False, null=True)),
                ("claim_id", models.UUIDField(editable=False, null=True)),
                ("claimed_by", models.TextField(editable=False, null=True)),
                ("ended_by", models.TextField(editable=False, null=True)),
                ("attempt", models.IntegerField(db_default=1, editable=False)),
                ("failure_class", models.TextField(null=True, verbose_name="failure class")),
                ("cancel_requested_at", models.DateTimeField(editable=False, null=True)),
                ("cancel_requested_by", models.TextField(editable=False, null=True)),
                ("cancel_reason", models.TextField(editable=False, null=True)),
                ("cancel_delivered_at", models.DateTimeField(editable=False, null=True)),
                ("backup_id_in_repository", models.TextField(null=True, verbose_name="snapshot")),
            ],
            options={
                "db_table": "agent_task_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="AgentToken",
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
                ("digest", models.TextField(editable=False, unique=True)),
                ("prefix", models.TextField(editable=False, verbose_name="prefix")),
                ("note", models.TextField(blank=True, db_default="", verbose_name="note")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("revoked_at", models.DateTimeField(editable=False, null=True, verbose_name="revoked")),
                ("revoked_by", models.TextField(editable=False, null=True, verbose_name="revoked by")),
                ("last_used_at", models.DateTimeField(editable=False, null=True, verbose_name="last used")),
            ],
            options={
                "verbose_name": "agent token",
                "verbose_name_plural": "agent tokens",
                "db_table": "agent_tokens",
                "db_table_comment": "Bearers of agents, as SHA-256 digests.",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="AgentTokenEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                ("prefix", models.TextField(editable=False, verbose_name="prefix")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("revoked_at", models.DateTimeField(editable=False, null=True, verbose_name="revoked")),
                ("revoked_by", models.TextField(editable=False, null=True, verbose_name="revoked by")),
            ],
            options={
                "db_table": "agent_token_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="at")),
                (
                    "tag",
                    models.TextField(
                        choices=[
                            ("artifact_opened", "evidence opened"),
                            ("late_result", "result came too late"),
                            ("done_after_cancel", "finished although a cancel was requested"),
                            ("cancel_delivered", "cancel delivered to the runner"),
                            ("enqueued", "enqueued"),
                            ("cancel_requested", "cancel requested"),
                            ("forced", "closed by force"),
                            ("retried", "retried by a person"),
                            ("token_issued", "token issued"),
                            ("token_revoked", "token revoked"),
                            ("agent_state", "agent's state changed"),
                            ("code_made", "enrolment code made"),
                            ("code_revoked", "enrolment code revoked"),
                            ("enrolled", "host enrolled"),
                            ("enrolment_refused", "enrolment refused"),
                            ("schedule_state", "schedule's state changed"),
                            ("schedule_run", "schedule run by hand"),
                            ("unredacted", "runner sent unredacted data"),
                            ("verdict_differs", "the runner's verdict differs"),
                            ("evidence_exported", "evidence exported"),
                            ("hold_placed", "legal hold placed"),
                            ("hold_released", "legal hold released"),
                            ("files_purged", "files deleted, their time was over"),
                            ("job_purged", "job deleted, its time was over"),
                            ("acknowledged", "failure acknowledged"),
                            ("reopened", "failure is news again"),
                            ("channel_secret", "secret of a notice channel set"),
                            ("backup_defined", "backups defined anew"),
                            ("run_launched", "backup or restore launched"),
                            ("run_cancelled", "cancel of a run requested"),
                            ("run_reopened", "failed sources tried again"),
                            ("repository_damaged", "repository found damaged"),
                            ("repository_trusted", "repository trusted again"),
                            ("github_refused", "token of GitHub refused"),
                        ],
                        verbose_name="what",
                    ),
                ),
                ("actor", models.TextField(verbose_name="who")),
                ("subject_table", models.TextField(verbose_name="table")),
                ("subject_id", models.UUIDField(verbose_name="object")),
                ("reason", models.TextField(blank=True, db_default="", verbose_name="reason")),
                ("details", models.JSONField(db_default={}, verbose_name="details")),
            ],
            options={
                "verbose_name": "audit event",
                "verbose_name_plural": "audit events",
                "db_table": "audit_events",
                "db_table_comment": "Acts that change no governed row. Rows are only ever added.",
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="JobKind",
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
                ("name", models.TextField(unique=True, verbose_name="name")),
                ("title", models.TextField(blank=True, db_default="", verbose_name="title")),
                ("description", models.TextField(blank=True, db_default="", verbose_name="description")),
                ("schema", models.JSONField(blank=True, db_default={}, verbose_name="JSON Schema of the spec")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                ("max_attempts", models.IntegerField(db_default=3, verbose_name="attempts at most")),
                ("lease_seconds", models.IntegerField(blank=True, null=True, verbose_name="lease (seconds)")),
                ("max_run_seconds", models.IntegerField(db_default=86400, verbose_name="maximum run time (seconds)")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "job kind",
                "verbose_name_plural": "job kinds",
                "db_table": "job_kinds",
                "db_table_comment": "Registered kinds of jobs, with the JSON Schema of their spec.",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="JobKindEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                ("name", models.TextField(verbose_name="name")),
                ("title", models.TextField(blank=True, db_default="", verbose_name="title")),
                ("description", models.TextField(blank=True, db_default="", verbose_name="description")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                ("max_attempts", models.IntegerField(db_default=3, verbose_name="attempts at most")),
                ("lease_seconds", models.IntegerField(blank=True, null=True, verbose_name="lease (seconds)")),
                ("max_run_seconds", models.IntegerField(db_default=86400, verbose_name="maximum run time (seconds)")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "db_table": "job_kind_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Uptime",
            fields=[
                ("id", models.SmallIntegerField(db_default=1, primary_key=True, serialize=False)),
                ("up_since", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())),
                ("seen_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())),
            ],
            options={
                "db_table": "uptime",
                "db_table_comment": "Since when agents could be heard; one row.",
            },
        ),
        migrations.AlterModelOptions(
            name="agent",
            options={
                "ordering": ["principal_key"],
                "permissions": [("govern_agent", "Can pause, drain or disable agents")],
                "verbose_name": "agent",
                "verbose_name_plural": "agents",
            },
        ),
        migrations.AlterModelOptions(
            name="agentjob",
            options={
                "permissions": [
                    ("cancel_agentjob", "Can cancel jobs"),
                    ("retry_agentjob", "Can retry jobs"),
                    ("force_agentjob", "Can close jobs by force"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="agenttask",
            options={
                "permissions": [
                    ("cancel_agenttask", "Can cancel backup tasks"),
                    ("retry_agenttask", "Can retry backup tasks"),
                    ("force_agenttask", "Can close backup tasks by force"),
                ],
                "verbose_name": "backup task",
                "verbose_name_plural": "backup tasks",
            },
        ),
        migrations.AlterModelOptions(
            name="backupjobrun",
            options={"verbose_name": "backup run", "verbose_name_plural": "backup runs"},
        ),
        migrations.AlterModelOptions(
            name="backupjobsource",
            options={"verbose_name": "backup source", "verbose_name_plural": "backup sources"},
        ),
        migrations.AlterModelTableComment(
            name="agent",
            table_comment="Who may claim work. Rows without registered_at were named by plain SQL only.",
        ),
        migrations.AlterModelTableComment(
            name="agentjob",
            table_comment="One row is one attempt of one job of an agent; a retry is a new row.",
        ),
        migrations.AlterModelTableComment(
            name="agenttask",
            table_comment="One row is one attempt at backing up or restoring one source on one agent.",
        ),
        migrations.AlterModelTableComment(
            name="backupjobrun",
            table_comment="One launch of a backup job.",
        ),
        migrations.AlterModelTableComment(
            name="backupjobsource",
            table_comment="One source of a backup job on one agent.",
        ),
        migrations.AddField(
            model_name="agent",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
        ),
        migrations.AddField(
            model_name="agent",
            name="labels",
            field=models.JSONField(blank=True, db_default={}, verbose_name="labels"),
        ),
        migrations.AddField(
            model_name="agent",
            name="last_seen_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="last seen"),
        ),
        migrations.AddField(
            model_name="agent",
            name="lease_seconds",
            field=models.IntegerField(db_default=90, verbose_name="lease (seconds)"),
        ),
        migrations.AddField(
            model_name="agent",
            name="presence",
            field=models.TextField(
                choices=[("resident", "resident"), ("on-demand", "on demand")],
                db_default="on-demand",
                verbose_name="presence",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="registered_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="registered"),
        ),
        migrations.AddField(
            model_name="agent",
            name="runner_version",
            field=models.TextField(editable=False, null=True, verbose_name="runner"),
        ),
        migrations.AddField(
            model_name="agent",
            name="state",
            field=models.TextField(
                choices=[
                    ("active", "active"),
                    ("paused", "paused"),
                    ("draining", "draining"),
                    ("disabled", "disabled"),
                ],
                db_default="active",
                verbose_name="state",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="state_note",
            field=models.TextField(blank=True, db_default="", verbose_name="note"),
        ),
        migrations.AddField(
            model_name="agent",
            name="state_until",
            field=models.DateTimeField(blank=True, null=True, verbose_name="until"),
        ),
        migrations.AddField(
            model_name="agent",
            name="title",
            field=models.TextField(blank=True, db_default="", verbose_name="title"),
        ),
        # Beside updated_at: a heartbeat writes these three, and its log record spans whatever lies between them.
        migrations.AddField(
            model_name="agentjob",
            name="heartbeat_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="last sign of life"),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="progress",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="attempt",
            field=models.IntegerField(db_default=1, editable=False),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="cancel_delivered_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="cancel_reason",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="cancel_requested_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="cancel_requested_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="claim_digest",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="claim_id",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="claimed_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="concurrency_key",
            field=models.TextField(blank=True, null=True, verbose_name="concurrency key"),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="dedupe_key",
            field=models.TextField(blank=True, null=True, verbose_name="dedupe key"),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="details",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="ended_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="expires_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="failure_class",
            field=models.TextField(blank=True, null=True, verbose_name="failure class"),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="labels",
            field=models.JSONField(
                decoder=jobs.engine.stored_json.StoredDocument, blank=True, db_default={}, verbose_name="labels"
            ),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="lease_seconds",
            field=models.IntegerField(db_default=90),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="max_attempts",
            field=models.IntegerField(db_default=3),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="priority",
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="agentjob",
            name="result_digest",
            field=models.TextField(editable=False, null=True),
        ),
        # The database gets its unique index and its reference in the next migration, beside running writes.
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(
                    "ALTER TABLE agent_jobs ADD COLUMN retry_of uuid", "ALTER TABLE agent_jobs DROP COLUMN retry_of"
                )
            ],
            [
                migrations.AddField(
                    model_name="agentjob",
                    name="retry_of",
                    field=models.OneToOneField(
                        db_column="retry_of",
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="retried_as",
                        to="jobs.agentjob",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="agentjob",
            name="root_id",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="attempt",
            field=models.IntegerField(db_default=1, editable=False),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="cancel_delivered_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="cancel_reason",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="cancel_requested_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="cancel_requested_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="claim_digest",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="claim_id",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="claimed_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="details",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="ended_by",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="expires_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="lease_seconds",
            field=models.IntegerField(db_default=90),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="max_attempts",
            field=models.IntegerField(db_default=3),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="not_before",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="priority",
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="progress",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="result_digest",
            field=models.TextField(editable=False, null=True),
        ),
        # The database gets its unique index and its reference in the next migration, beside running writes.
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(
                    "ALTER TABLE agent_tasks ADD COLUMN retry_of uuid", "ALTER TABLE agent_tasks DROP COLUMN retry_of"
                )
            ],
            [
                migrations.AddField(
                    model_name="agenttask",
                    name="retry_of",
                    field=models.OneToOneField(
                        db_column="retry_of",
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="retried_as",
                        to="jobs.agenttask",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="agenttask",
            name="root_id",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AlterField(
            model_name="agent",
            name="principal_key",
            field=models.TextField(db_default=jobs.engine.ddl.RandomText(), unique=True, verbose_name="key"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="agent",
            field=models.ForeignKey(
                db_column="principal_key",
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="jobs",
                to="jobs.agent",
                to_field="principal_key",
                verbose_name="agent",
            ),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="created"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="created_by",
            field=models.TextField(null=True, verbose_name="created by"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="error",
            field=models.TextField(blank=True, null=True, verbose_name="error"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="finished_at",
            field=models.DateTimeField(null=True, verbose_name="finished"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="kind",
            field=models.TextField(verbose_name="kind"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="queued_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="queued"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="results",
            field=models.JSONField(
                decoder=jobs.engine.stored_json.StoredDocument, blank=True, null=True, verbose_name="results"
            ),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="run_ref",
            field=models.TextField(blank=True, null=True, verbose_name="run"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="spec",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, db_default={}, verbose_name="spec"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="started_at",
            field=models.DateTimeField(null=True, verbose_name="started"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="status",
            field=models.TextField(
                choices=[
                    ("queued", "queued"),
                    ("running", "running"),
                    ("done", "done"),
                    ("failed", "failed"),
                    ("cancelled", "cancelled"),
                ],
                db_default="queued",
                verbose_name="status",
            ),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="updated_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="updated"),
        ),
        migrations.AlterField(
            model_name="agentjob",
            name="verdict",
            field=models.TextField(
                blank=True,
                choices=[("pass", "pass"), ("fail", "fail"), ("risk", "risk")],
                null=True,
                verbose_name="verdict",
            ),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="backup_id_in_repository",
            field=models.TextField(null=True, verbose_name="snapshot"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="bytes_processed",
            field=models.BigIntegerField(db_default=0, verbose_name="bytes processed"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="bytes_written",
            field=models.BigIntegerField(db_default=0, verbose_name="bytes written"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="claimed_at",
            field=models.DateTimeField(null=True, verbose_name="claimed"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="completed_at",
            field=models.DateTimeField(null=True, verbose_name="completed"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="created"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="error_code",
            field=models.TextField(null=True, verbose_name="error code"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="error_message",
            field=models.TextField(null=True, verbose_name="error"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="failure_class",
            field=models.TextField(null=True, verbose_name="failure class"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="files_processed",
            field=models.BigIntegerField(db_default=0, verbose_name="files processed"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="files_skipped",
            field=models.BigIntegerField(db_default=0, verbose_name="files skipped"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="heartbeat_at",
            field=models.DateTimeField(null=True, verbose_name="last sign of life"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="job_run",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                to="jobs.backupjobrun",
                verbose_name="run",
            ),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="job_source",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                to="jobs.backupjobsource",
                verbose_name="source",
            ),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="started_at",
            field=models.DateTimeField(null=True, verbose_name="started"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="status",
            field=models.TextField(
                choices=[
                    ("pending", "pending"),
                    ("claimed", "claimed"),
                    ("running", "running"),
                    ("succeeded", "succeeded"),
                    ("partial_failure", "partial failure"),
                    ("failed", "failed"),
                    ("cancelled", "cancelled"),
                ],
                db_default="pending",
                verbose_name="status",
            ),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="task_payload",
            field=models.JSONField(decoder=jobs.engine.stored_json.StoredDocument, verbose_name="payload"),
        ),
        migrations.AlterField(
            model_name="agenttask",
            name="task_type",
            field=models.TextField(
                choices=[("backup", "backup"), ("restore", "restore")], db_default="backup", verbose_name="type"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agent",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "agent_events" ("id", "lease_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "principal_key", "state", "state_note", "state_until", "title") VALUES (NEW."id", NEW."lease_seconds", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."principal_key", NEW."state", NEW."state_note", NEW."state_until", NEW."title"); RETURN NULL;',
                    hash="d063f040daff0ca6f7f0bac1677a18c4a6bed56d",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_b5a42",
                    table="agents",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agent",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."lease_seconds" IS DISTINCT FROM (NEW."lease_seconds") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."state_note" IS DISTINCT FROM (NEW."state_note") OR OLD."state_until" IS DISTINCT FROM (NEW."state_until") OR OLD."title" IS DISTINCT FROM (NEW."title"))',
                    func='INSERT INTO "agent_events" ("id", "lease_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "principal_key", "state", "state_note", "state_until", "title") VALUES (NEW."id", NEW."lease_seconds", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."principal_key", NEW."state", NEW."state_note", NEW."state_until", NEW."title"); RETURN NULL;',
                    hash="393954214f05f69b4c87b015ee28b7691e559f76",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_3687c",
                    table="agents",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="before_write",
                sql=jobs.engine.triggers.TriggerSql(
                    func="\n                    IF NEW.root_id IS NULL THEN NEW.root_id = NEW.id; END IF;\n                    INSERT INTO agents (principal_key) VALUES (NEW.principal_key)\n                        ON CONFLICT (principal_key) DO NOTHING;\n                    RETURN NEW;\n                ",
                    hash="8f508c9aae5cae540c7ad1e184a26f22495f7f0c",
                    operation='INSERT OR UPDATE OF "principal_key"',
                    pgid="pgtrigger_before_write_9642a",
                    table="agent_jobs",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=jobs.engine.triggers.TriggerSql(
                    func='INSERT INTO "agent_job_events" ("attempt", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "created_by", "ended_by", "error", "failure_class", "id", "kind", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "principal_key", "root_id", "run_ref", "status", "verdict") VALUES (NEW."attempt", NEW."cancel_delivered_at", NEW."cancel_reason", NEW."cancel_requested_at", NEW."cancel_requested_by", NEW."claim_id", NEW."claimed_by", NEW."created_by", NEW."ended_by", NEW."error", NEW."failure_class", NEW."id", NEW."kind", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'insert\', NEW."id", NEW."principal_key", NEW."root_id", NEW."run_ref", NEW."status", NEW."verdict"); RETURN NULL;',
                    hash="0aabec4c5a81ee74d649ed64eeb39fce3c081de2",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_0e41c",
                    table="agent_jobs",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=jobs.engine.triggers.TriggerSql(
                    condition='WHEN (OLD."cancel_delivered_at" IS DISTINCT FROM (NEW."cancel_delivered_at") OR OLD."cancel_requested_at" IS DISTINCT FROM (NEW."cancel_requested_at") OR OLD."status" IS DISTINCT FROM (NEW."status"))',
                    func='INSERT INTO "agent_job_events" ("attempt", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "created_by", "ended_by", "error", "failure_class", "id", "kind", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "principal_key", "root_id", "run_ref", "status", "verdict") VALUES (NEW."attempt", NEW."cancel_delivered_at", NEW."cancel_reason", NEW."cancel_requested_at", NEW."cancel_requested_by", NEW."claim_id", NEW."claimed_by", NEW."created_by", NEW."ended_by", NEW."error", NEW."failure_class", NEW."id", NEW."kind", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'update\', NEW."id", NEW."principal_key", NEW."root_id", NEW."run_ref", NEW."status", NEW."verdict"); RETURN NULL;',
                    hash="f00394bb18b9e3a588093e0c8d4d49e6dd1ad2b9",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_96af8",
                    table="agent_jobs",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=jobs.engine.triggers.TriggerSql(
                    func='INSERT INTO "agent_job_events" ("attempt", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "created_by", "ended_by", "error", "failure_class", "id", "kind", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "principal_key", "root_id", "run_ref", "status", "verdict") VALUES (OLD."attempt", OLD."cancel_delivered_at", OLD."cancel_reason", OLD."cancel_requested_at", OLD."cancel_requested_by", OLD."claim_id", OLD."claimed_by", OLD."created_by", OLD."ended_by", OLD."error", OLD."failure_class", OLD."id", OLD."kind", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'delete\', OLD."id", OLD."principal_key", OLD."root_id", OLD."run_ref", OLD."status", OLD."verdict"); RETURN NULL;',
                    hash="8a2183982d3893cd3100a92095735bf9b56ec9ec",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_50b7d",
                    table="agent_jobs",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="before_insert",
                sql=jobs.engine.triggers.TriggerSql(
                    func="IF NEW.root_id IS NULL THEN NEW.root_id = NEW.id; END IF; RETURN NEW;",
                    hash="bbbfba199c0f0a64e94d94900b44d2b0f7ff5a33",
                    operation="INSERT",
                    pgid="pgtrigger_before_insert_2b190",
                    table="agent_tasks",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=jobs.engine.triggers.TriggerSql(
                    func='INSERT INTO "agent_task_events" ("agent_id", "attempt", "backup_id_in_repository", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "ended_by", "error_code", "error_message", "failure_class", "id", "job_run_id", "job_source_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "root_id", "status", "task_type") VALUES (NEW."agent_id", NEW."attempt", NEW."backup_id_in_repository", NEW."cancel_delivered_at", NEW."cancel_reason", NEW."cancel_requested_at", NEW."cancel_requested_by", NEW."claim_id", NEW."claimed_by", NEW."ended_by", NEW."error_code", NEW."error_message", NEW."failure_class", NEW."id", NEW."job_run_id", NEW."job_source_id", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'insert\', NEW."id", NEW."root_id", NEW."status", NEW."task_type"); RETURN NULL;',
                    hash="9045fa7e4e265ba9752085f02997675e6e67ab2f",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_b8b46",
                    table="agent_tasks",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=jobs.engine.triggers.TriggerSql(
                    condition='WHEN (OLD."cancel_delivered_at" IS DISTINCT FROM (NEW."cancel_delivered_at") OR OLD."cancel_requested_at" IS DISTINCT FROM (NEW."cancel_requested_at") OR OLD."status" IS DISTINCT FROM (NEW."status"))',
                    func='INSERT INTO "agent_task_events" ("agent_id", "attempt", "backup_id_in_repository", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "ended_by", "error_code", "error_message", "failure_class", "id", "job_run_id", "job_source_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "root_id", "status", "task_type") VALUES (NEW."agent_id", NEW."attempt", NEW."backup_id_in_repository", NEW."cancel_delivered_at", NEW."cancel_reason", NEW."cancel_requested_at", NEW."cancel_requested_by", NEW."claim_id", NEW."claimed_by", NEW."ended_by", NEW."error_code", NEW."error_message", NEW."failure_class", NEW."id", NEW."job_run_id", NEW."job_source_id", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'update\', NEW."id", NEW."root_id", NEW."status", NEW."task_type"); RETURN NULL;',
                    hash="bc58061c0d65de0dea610f2a13e759124ab83ce4",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_145e6",
                    table="agent_tasks",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=jobs.engine.triggers.TriggerSql(
                    func='INSERT INTO "agent_task_events" ("agent_id", "attempt", "backup_id_in_repository", "cancel_delivered_at", "cancel_reason", "cancel_requested_at", "cancel_requested_by", "claim_id", "claimed_by", "ended_by", "error_code", "error_message", "failure_class", "id", "job_run_id", "job_source_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "root_id", "status", "task_type") VALUES (OLD."agent_id", OLD."attempt", OLD."backup_id_in_repository", OLD."cancel_delivered_at", OLD."cancel_reason", OLD."cancel_requested_at", OLD."cancel_requested_by", OLD."claim_id", OLD."claimed_by", OLD."ended_by", OLD."error_code", OLD."error_message", OLD."failure_class", OLD."id", OLD."job_run_id", OLD."job_source_id", CASE WHEN current_setting(\'pghistory.context_id\', true) <> \'\' THEN _pgh_attach_context() END, NOW(), \'delete\', OLD."id", OLD."root_id", OLD."status", OLD."task_type"); RETURN NULL;',
                    hash="039bd9ce2aabef93412a3a3cf2c501236f4da886",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_0226d",
                    table="agent_tasks",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["active", "paused", "draining", "disabled"])),
                name="agents_state_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.CheckConstraint(
                condition=models.Q(("presence__in", ["resident", "on-demand"])), name="agents_presence_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.CheckConstraint(
                condition=models.Q(("lease_seconds__gt", 0)), name="agents_lease_positive"
            ),
        ),
        migrations.AddField(
            model_name="agentevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="agentevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_principal_key_title_state_state_note_state_until_lease_seconds_events",
                to="jobs.agent",
            ),
        ),
        migrations.AddField(
            model_name="agentjobevent",
            name="agent",
            field=models.ForeignKey(
                db_column="principal_key",
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                to_field="principal_key",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="agentjobevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="agentjobevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_agent_kind_status_verdict_error_run_ref_created_by_root_id_claim_id_claimed_by_ended_by_attempt_failure_class_cancel_requested_at_cancel_requested_by_cancel_reason_cancel_delivered_at_events",
                to="jobs.agentjob",
            ),
        ),
        migrations.AddField(
            model_name="agenttaskevent",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="agenttaskevent",
            name="job_run",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.backupjobrun",
                verbose_name="run",
            ),
        ),
        migrations.AddField(
            model_name="agenttaskevent",
            name="job_source",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.backupjobsource",
                verbose_name="source",
            ),
        ),
        migrations.AddField(
            model_name="agenttaskevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="agenttaskevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_agent_job_run_job_source_task_type_status_error_code_error_message_root_id_claim_id_claimed_by_ended_by_attempt_failure_class_cancel_requested_at_cancel_requested_by_cancel_reason_cancel_delivered_at_backup_id_in_repository_events",
                to="jobs.agenttask",
            ),
        ),
        migrations.AddField(
            model_name="agenttoken",
            name="agent",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="agenttokenevent",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="agenttokenevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="agenttokenevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_agent_prefix_created_by_expires_at_revoked_at_revoked_by_events",
                to="jobs.agenttoken",
            ),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["subject_id", "id"], name="audit_events_subject_idx"),
        ),
        migrations.AddConstraint(
            model_name="auditevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "tag__in",
                        [
                            "schedule_state",
                            "schedule_run",
                            "artifact_opened",
                            "late_result",
                            "done_after_cancel",
                            "cancel_delivered",
                            "enqueued",
                            "cancel_requested",
                            "forced",
                            "retried",
                            "token_issued",
                            "token_revoked",
                            "agent_state",
                            "unredacted",
                            "verdict_differs",
                            "evidence_exported",
                            "hold_placed",
                            "hold_released",
                            "files_purged",
                            "job_purged",
                            "acknowledged",
                            "reopened",
                            "channel_secret",
                            "backup_defined",
                            "run_launched",
                            "run_cancelled",
                            "run_reopened",
                            "repository_damaged",
                            "repository_trusted",
                            "code_made",
                            "code_revoked",
                            "enrolled",
                            "enrolment_refused",
                            "github_refused",
                        ],
                    )
                ),
                name="audit_events_tag_known",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="auditevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="bcef33b58be74497e843d239fd8cab76cec1b41a",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_e48e6",
                    table="audit_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("lease_seconds__range", (15, 86400))), name="job_kinds_lease_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_attempts__range", (1, 10))), name="job_kinds_attempts_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_run_seconds__gt", 0)), name="job_kinds_run_positive"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkind",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."id", NEW."lease_seconds", NEW."max_attempts", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."title"); RETURN NULL;',
                    hash="e644acbdd60ba300a8a2f80293333f5f443d8b14",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_75b79",
                    table="job_kinds",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkind",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."description" IS DISTINCT FROM (NEW."description") OR OLD."enabled" IS DISTINCT FROM (NEW."enabled") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."lease_seconds" IS DISTINCT FROM (NEW."lease_seconds") OR OLD."max_attempts" IS DISTINCT FROM (NEW."max_attempts") OR OLD."max_run_seconds" IS DISTINCT FROM (NEW."max_run_seconds") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."title" IS DISTINCT FROM (NEW."title"))',
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."id", NEW."lease_seconds", NEW."max_attempts", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."title"); RETURN NULL;',
                    hash="d02e453bd232ac864e60a8f88144967e75a58864",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_8b729",
                    table="job_kinds",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkind",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "title") VALUES (OLD."created_at", OLD."description", OLD."enabled", OLD."id", OLD."lease_seconds", OLD."max_attempts", OLD."max_run_seconds", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."title"); RETURN NULL;',
                    hash="99912119e2a847596fa0f66264b027bd60203a9a",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_b8f69",
                    table="job_kinds",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.jobkind",
            ),
        ),
        migrations.AddConstraint(
            model_name="uptime",
            constraint=models.CheckConstraint(condition=models.Q(("id", 1)), name="uptime_single_row"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="a6cd444f827b4374fcdcd832fd4e4119ddc7473f",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_ff277",
                    table="agent_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjobevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="d465bd86abcbd2a308ddb63337714d5c2fa58f32",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_ac713",
                    table="agent_job_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttaskevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="24e9855ac0d29354f6b80bf7eb20c663f9ef00e8",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_30d9c",
                    table="agent_task_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="agenttoken",
            constraint=models.CheckConstraint(
                condition=models.Q(("digest__regex", "^[0-9a-f]{64}$")), name="agent_tokens_digest_is_sha256"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttoken",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "agent_token_events" ("agent_id", "created_by", "expires_at", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "revoked_at", "revoked_by") VALUES (NEW."agent_id", NEW."created_by", NEW."expires_at", NEW."id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."prefix", NEW."revoked_at", NEW."revoked_by"); RETURN NULL;',
                    hash="d16cb2e7a12cd7dd9261806f47067bd2b9a59ec7",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_788d9",
                    table="agent_tokens",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttoken",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."expires_at" IS DISTINCT FROM (NEW."expires_at") OR OLD."revoked_at" IS DISTINCT FROM (NEW."revoked_at"))',
                    func='INSERT INTO "agent_token_events" ("agent_id", "created_by", "expires_at", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "revoked_at", "revoked_by") VALUES (NEW."agent_id", NEW."created_by", NEW."expires_at", NEW."id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."prefix", NEW."revoked_at", NEW."revoked_by"); RETURN NULL;',
                    hash="565db8e6153b2d4b1522469f00162084d7fa846a",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_7c128",
                    table="agent_tokens",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttokenevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="97f2f0d3dcedef1a494f174dcc18355e479bf029",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_2fdfc",
                    table="agent_token_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkindevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="8a551d83da8c703505b54e9b015c8d2829f570c6",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_d8999",
                    table="job_kind_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(*lookup_function_sql("agent_jobs")),
        migrations.RunSQL(*lookup_function_sql("agent_tasks")),
        row_level_security(
            "agents",
            "agent_tasks",
            "agent_tokens",
            "audit_events",
            "agent_events",
            "agent_token_events",
            "agent_job_events",
            "agent_task_events",
        ),
        migrations.RunSQL(TRIGGER_RIGHTS, migrations.RunSQL.noop),
    ]
