"""Backups: repositories, jobs and snapshots are new; runs and sources, which the contract names, gain what we need."""

import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
import jobs.engine.triggers
from jobs.engine.migrating import row_level_security, runs_as_owner


def reference(table: str, column: str, target: str, on_delete: str) -> migrations.RunSQL:
    """A foreign key that is checked at once, which Django's are not."""
    name = f"{table}_{column}_fkey"
    return migrations.RunSQL(
        f"ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {target} (id) ON DELETE {on_delete}",
        f"ALTER TABLE {table} DROP CONSTRAINT {name}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0011_targets"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="BackupJob",
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
                ("name", models.TextField(verbose_name="name")),
                ("settings", models.JSONField(blank=True, db_default={}, verbose_name="settings")),
                ("max_attempts", models.IntegerField(db_default=3, verbose_name="attempts at most")),
                (
                    "start_deadline_seconds",
                    models.IntegerField(db_default=43200, verbose_name="must begin within (seconds)"),
                ),
                ("max_run_seconds", models.IntegerField(db_default=86400, verbose_name="maximum run time (seconds)")),
                (
                    "overdue_after_seconds",
                    models.IntegerField(db_default=129600, verbose_name="overdue after (seconds)"),
                ),
                ("retention", models.JSONField(blank=True, null=True, verbose_name="retention")),
                (
                    "state",
                    models.TextField(
                        choices=[("active", "active"), ("paused", "paused"), ("retired", "retired")],
                        db_default="active",
                        verbose_name="state",
                    ),
                ),
                ("state_note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "backup job",
                "verbose_name_plural": "backup jobs",
                "db_table": "backup_jobs",
                "db_table_comment": "Which sources are backed up into which repository, and within which limits.",
                "ordering": ["name"],
                "permissions": [
                    ("run_backupjob", "Can run backup jobs"),
                    ("restore_backupjob", "Can restore from backups"),
                ],
            },
        ),
        migrations.CreateModel(
            name="BackupJobEvent",
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
                ("max_attempts", models.IntegerField(db_default=3, verbose_name="attempts at most")),
                (
                    "start_deadline_seconds",
                    models.IntegerField(db_default=43200, verbose_name="must begin within (seconds)"),
                ),
                ("max_run_seconds", models.IntegerField(db_default=86400, verbose_name="maximum run time (seconds)")),
                (
                    "overdue_after_seconds",
                    models.IntegerField(db_default=129600, verbose_name="overdue after (seconds)"),
                ),
                (
                    "state",
                    models.TextField(
                        choices=[("active", "active"), ("paused", "paused"), ("retired", "retired")],
                        db_default="active",
                        verbose_name="state",
                    ),
                ),
                ("state_note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "db_table": "backup_job_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="BackupJobSourceEvent",
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
                ("name", models.TextField(null=True, verbose_name="name")),
                ("host", models.TextField(null=True, verbose_name="host")),
                ("allow_empty", models.BooleanField(db_default=False, verbose_name="may be empty")),
                ("retired_at", models.DateTimeField(editable=False, null=True, verbose_name="retired")),
            ],
            options={
                "db_table": "backup_job_source_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="BackupRepository",
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
                ("location", models.TextField(verbose_name="location")),
                ("credential_ref", models.TextField(verbose_name="credential")),
                ("init_if_missing", models.BooleanField(db_default=False, verbose_name="create it if it is missing")),
                ("engine_repository_id", models.TextField(editable=False, null=True, verbose_name="repository id")),
                ("concurrent_backups", models.IntegerField(blank=True, null=True, verbose_name="backups at once")),
                ("checked_at", models.DateTimeField(editable=False, null=True, verbose_name="checked")),
                (
                    "check_result",
                    models.TextField(
                        choices=[("good", "good"), ("damaged", "damaged")],
                        editable=False,
                        null=True,
                        verbose_name="result of the check",
                    ),
                ),
                (
                    "check_depth",
                    models.TextField(
                        choices=[
                            ("metadata", "metadata only"),
                            ("read_data_subset", "a part of the data read"),
                            ("read_data", "all data read"),
                        ],
                        editable=False,
                        null=True,
                        verbose_name="depth of the check",
                    ),
                ),
                ("damaged_at", models.DateTimeField(editable=False, null=True, verbose_name="found damaged")),
                ("retired_at", models.DateTimeField(editable=False, null=True, verbose_name="retired")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "backup repository",
                "verbose_name_plural": "backup repositories",
                "db_table": "backup_repositories",
                "db_table_comment": "Where snapshots are kept; passwords are known to agents only, by the credential's name.",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="BackupRepositoryEvent",
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
                ("location", models.TextField(verbose_name="location")),
                ("credential_ref", models.TextField(verbose_name="credential")),
                ("init_if_missing", models.BooleanField(db_default=False, verbose_name="create it if it is missing")),
                ("engine_repository_id", models.TextField(editable=False, null=True, verbose_name="repository id")),
                ("concurrent_backups", models.IntegerField(blank=True, null=True, verbose_name="backups at once")),
                ("checked_at", models.DateTimeField(editable=False, null=True, verbose_name="checked")),
                (
                    "check_result",
                    models.TextField(
                        choices=[("good", "good"), ("damaged", "damaged")],
                        editable=False,
                        null=True,
                        verbose_name="result of the check",
                    ),
                ),
                (
                    "check_depth",
                    models.TextField(
                        choices=[
                            ("metadata", "metadata only"),
                            ("read_data_subset", "a part of the data read"),
                            ("read_data", "all data read"),
                        ],
                        editable=False,
                        null=True,
                        verbose_name="depth of the check",
                    ),
                ),
                ("damaged_at", models.DateTimeField(editable=False, null=True, verbose_name="found damaged")),
                ("retired_at", models.DateTimeField(editable=False, null=True, verbose_name="retired")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "db_table": "backup_repository_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="BackupSnapshot",
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
                ("engine_id", models.TextField(verbose_name="snapshot")),
                ("complete", models.BooleanField(verbose_name="complete")),
                ("files", models.BigIntegerField(db_default=0, verbose_name="files")),
                ("bytes", models.BigIntegerField(db_default=0, verbose_name="bytes")),
                ("taken_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="taken")),
                ("verified_at", models.DateTimeField(null=True, verbose_name="verified")),
                ("verified_ok", models.BooleanField(null=True, verbose_name="verified well")),
                ("forgotten_at", models.DateTimeField(null=True, verbose_name="forgotten")),
            ],
            options={
                "verbose_name": "snapshot",
                "verbose_name_plural": "snapshots",
                "db_table": "backup_snapshots",
                "db_table_comment": "The catalogue of snapshots: which are complete, which were forgotten.",
                "ordering": ["-taken_at"],
            },
        ),
        migrations.AlterModelOptions(
            name="backupjobrun",
            options={
                "permissions": [
                    ("cancel_backupjobrun", "Can cancel backup runs"),
                    ("retry_backupjobrun", "Can retry sources"),
                ],
                "verbose_name": "backup run",
                "verbose_name_plural": "backup runs",
            },
        ),
        migrations.AlterModelTableComment(
            name="backupjobrun",
            table_comment="One launch of a backup job, or one restore.",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="agenttask",
            name="before_insert",
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="bytes_processed",
            field=models.BigIntegerField(db_default=0, verbose_name="bytes processed"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="bytes_written",
            field=models.BigIntegerField(db_default=0, verbose_name="bytes written"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="cancel_reason",
            field=models.TextField(null=True, verbose_name="reason of the cancel"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="cancel_requested_at",
            field=models.DateTimeField(null=True, verbose_name="cancel requested"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="cancel_requested_by",
            field=models.TextField(null=True, verbose_name="cancel requested by"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="completed_at",
            field=models.DateTimeField(null=True, verbose_name="completed"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="launched at"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="created_by",
            field=models.TextField(null=True, verbose_name="launched by"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="definition",
            field=models.JSONField(db_default={}, verbose_name="definition"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="files_processed",
            field=models.BigIntegerField(db_default=0, verbose_name="files processed"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="files_skipped",
            field=models.BigIntegerField(db_default=0, verbose_name="files skipped"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="kind",
            field=models.TextField(
                choices=[("backup", "backup"), ("restore", "restore")], db_default="backup", verbose_name="kind"
            ),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="reason",
            field=models.TextField(db_default="", verbose_name="reason"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="scheduled_for",
            field=models.DateTimeField(null=True, verbose_name="due"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="slots_collapsed",
            field=models.IntegerField(db_default=0, verbose_name="times that fell into it"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="sources_cancelled",
            field=models.IntegerField(db_default=0, verbose_name="cancelled"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="sources_failed",
            field=models.IntegerField(db_default=0, verbose_name="failed"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="sources_partial",
            field=models.IntegerField(db_default=0, verbose_name="partial"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="sources_succeeded",
            field=models.IntegerField(db_default=0, verbose_name="succeeded"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="sources_total",
            field=models.IntegerField(db_default=0, verbose_name="sources"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="started_at",
            field=models.DateTimeField(null=True, verbose_name="started"),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="status",
            field=models.TextField(
                choices=[
                    ("pending", "pending"),
                    ("running", "running"),
                    ("succeeded", "succeeded"),
                    ("partial_failure", "partial failure"),
                    ("failed", "failed"),
                    ("cancelled", "cancelled"),
                    ("missed", "missed"),
                ],
                db_default="pending",
                verbose_name="status",
            ),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="trigger",
            field=models.TextField(
                choices=[("schedule", "schedule"), ("manual", "by hand"), ("catch_up", "caught up"), ("api", "API")],
                db_default="manual",
                verbose_name="launched",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="backup_sources",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="allow_empty",
            field=models.BooleanField(db_default=False, verbose_name="may be empty"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="excludes",
            field=models.JSONField(blank=True, db_default=[], verbose_name="excludes"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="hooks_after",
            field=models.JSONField(blank=True, db_default=[], verbose_name="commands after"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="hooks_before",
            field=models.JSONField(blank=True, db_default=[], verbose_name="commands before"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="host",
            field=models.TextField(null=True, verbose_name="host"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="name",
            field=models.TextField(null=True, verbose_name="name"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="paths",
            field=models.JSONField(null=True, verbose_name="paths"),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="retired_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="retired"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="before_insert",
                sql=jobs.engine.triggers.TriggerSql(
                    func="\n                    IF NEW.root_id IS NULL THEN NEW.root_id = NEW.id; END IF;\n                    IF NEW.retry_of IS NOT NULL AND NEW.task_payload ->> 'task_id' = NEW.retry_of::text THEN\n                        NEW.task_payload = replace(NEW.task_payload::text, NEW.retry_of::text, NEW.id::text)::jsonb\n                            || jsonb_build_object('attempt', NEW.attempt, 'backup_id', regexp_replace(\n                                NEW.task_payload ->> 'backup_id', '-a[0-9]+$', '-a' || NEW.attempt));\n                    END IF;\n                    RETURN NEW;\n                ",
                    hash="6d4f1e80e55e593320d17ae44e6cdb7e7945df45",
                    operation="INSERT",
                    pgid="pgtrigger_before_insert_2b190",
                    table="agent_tasks",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="jobs.backupjob",
                verbose_name="backup job",
            ),
        ),
        migrations.AddField(
            model_name="backupjobrun",
            name="repository",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="jobs.backuprepository",
                verbose_name="repository",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsource",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="sources",
                to="jobs.backupjob",
                verbose_name="backup job",
            ),
        ),
        migrations.AddIndex(
            model_name="backupjobrun",
            index=models.Index(
                models.F("job"),
                models.OrderBy(models.F("created_at"), descending=True),
                name="backup_job_runs_of_job_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="backupjobrun",
            index=models.Index(
                models.OrderBy(models.F("created_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="backup_job_runs_newest_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="backupjobsource",
            index=models.Index(
                condition=models.Q(("agent__isnull", False)), fields=["agent"], name="backup_job_sources_agent_idx"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "status__in",
                        ["pending", "running", "succeeded", "partial_failure", "failed", "cancelled", "missed"],
                    )
                ),
                name="backup_job_runs_status_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["backup", "restore"])), name="backup_job_runs_kind_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("trigger__in", ["schedule", "manual", "catch_up", "api"])),
                name="backup_job_runs_trigger_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("completed_at__isnull", True), ("status__in", ("pending", "running"))),
                    models.Q(
                        models.Q(("status__in", ("pending", "running")), _negated=True), ("completed_at__isnull", False)
                    ),
                    _connector="OR",
                ),
                name="backup_job_runs_completed_when_done",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("trigger__in", ["schedule", "catch_up"]), _negated=True),
                    ("scheduled_for__isnull", False),
                    _connector="OR",
                ),
                name="backup_job_runs_schedule_has_slot",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "succeeded"), _negated=True),
                    models.Q(
                        ("files_skipped", 0), ("sources_succeeded", models.F("sources_total")), ("sources_total__gt", 0)
                    ),
                    _connector="OR",
                ),
                name="backup_job_runs_success_is_total",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cancel_requested_at__isnull", True), ("cancel_requested_by__isnull", False), _connector="OR"
                ),
                name="backup_job_runs_cancel_has_author",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("trigger__in", ["schedule", "catch_up"])),
                fields=("job", "scheduled_for"),
                name="backup_job_runs_one_per_slot",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "backup"), ("status__in", ("pending", "running"))),
                fields=("job",),
                name="backup_job_runs_one_active_backup",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobsource",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("job__isnull", True),
                    models.Q(
                        ("agent__isnull", False),
                        ("host__isnull", False),
                        ("name__isnull", False),
                        ("paths__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="backup_job_sources_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobsource",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("paths__isnull", True),
                    jobs.engine.ddl.JsonHolds(
                        "paths",
                        "jsonb_typeof({}) = 'array' AND jsonb_array_length({}) BETWEEN 1 AND 100\n    AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != \"string\" || !(@ like_regex \"^(/|[A-Za-z]:)\"))')",
                    ),
                    _connector="OR",
                ),
                name="backup_job_sources_paths_absolute",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobsource",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    jobs.engine.ddl.JsonHolds(
                        "excludes",
                        "jsonb_typeof({}) = 'array' AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != \"string\")')",
                    ),
                    jobs.engine.ddl.JsonHolds(
                        "hooks_before",
                        "jsonb_typeof({}) = 'array' AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != \"string\")')",
                    ),
                    jobs.engine.ddl.JsonHolds(
                        "hooks_after",
                        "jsonb_typeof({}) = 'array' AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != \"string\")')",
                    ),
                ),
                name="backup_job_sources_lists_of_texts",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobsource",
            constraint=models.UniqueConstraint(
                condition=models.Q(("retired_at__isnull", True)),
                fields=("job", "name"),
                name="backup_job_sources_name_key",
            ),
        ),
        migrations.AddField(
            model_name="backupjobevent",
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
            model_name="backupjobevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.backupjob",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsourceevent",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsourceevent",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.backupjob",
                verbose_name="backup job",
            ),
        ),
        migrations.AddField(
            model_name="backupjobsourceevent",
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
            model_name="backupjobsourceevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_job_agent_name_host_allow_empty_retired_at_events",
                to="jobs.backupjobsource",
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("location", ""), _negated=True),
                    models.Q(("location__regex", "//[^/@]*:[^/]*@"), _negated=True),
                ),
                name="backup_repositories_no_password",
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(("credential_ref__regex", "^[a-z0-9][a-z0-9_-]{0,62}$")),
                name="backup_repositories_credential_is_name",
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("check_depth__isnull", True), ("check_result__isnull", True), ("checked_at__isnull", True)
                    ),
                    models.Q(
                        ("check_depth__in", ["metadata", "read_data_subset", "read_data"]),
                        ("check_result__in", ["good", "damaged"]),
                        ("checked_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="backup_repositories_check_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(("concurrent_backups__range", (1, 1000))), name="backup_repositories_limit_positive"
            ),
        ),
        migrations.AddField(
            model_name="backupjobevent",
            name="repository",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.backuprepository",
                verbose_name="repository",
            ),
        ),
        migrations.AddField(
            model_name="backupjob",
            name="repository",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="jobs",
                to="jobs.backuprepository",
                verbose_name="repository",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backuprepository",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "backup_repository_events" ("check_depth", "check_result", "checked_at", "concurrent_backups", "created_at", "created_by", "credential_ref", "damaged_at", "engine_repository_id", "id", "init_if_missing", "location", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."check_depth", NEW."check_result", NEW."checked_at", NEW."concurrent_backups", NEW."created_at", NEW."created_by", NEW."credential_ref", NEW."damaged_at", NEW."engine_repository_id", NEW."id", NEW."init_if_missing", NEW."location", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="f89ee9a36b767e496bad096797b242f93a36023e",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_699ec",
                    table="backup_repositories",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backuprepository",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."concurrent_backups" IS DISTINCT FROM (NEW."concurrent_backups") OR OLD."credential_ref" IS DISTINCT FROM (NEW."credential_ref") OR OLD."damaged_at" IS DISTINCT FROM (NEW."damaged_at") OR OLD."engine_repository_id" IS DISTINCT FROM (NEW."engine_repository_id") OR OLD."init_if_missing" IS DISTINCT FROM (NEW."init_if_missing") OR OLD."location" IS DISTINCT FROM (NEW."location") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."retired_at" IS DISTINCT FROM (NEW."retired_at"))',
                    func='INSERT INTO "backup_repository_events" ("check_depth", "check_result", "checked_at", "concurrent_backups", "created_at", "created_by", "credential_ref", "damaged_at", "engine_repository_id", "id", "init_if_missing", "location", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."check_depth", NEW."check_result", NEW."checked_at", NEW."concurrent_backups", NEW."created_at", NEW."created_by", NEW."credential_ref", NEW."damaged_at", NEW."engine_repository_id", NEW."id", NEW."init_if_missing", NEW."location", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="48ad383d139a857479daad5f7d7ddfff841afbb2",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_ad16f",
                    table="backup_repositories",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="backuprepositoryevent",
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
            model_name="backuprepositoryevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.backuprepository",
            ),
        ),
        migrations.AddField(
            model_name="backupsnapshot",
            name="repository",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="snapshots",
                to="jobs.backuprepository",
                verbose_name="repository",
            ),
        ),
        migrations.AddField(
            model_name="backupsnapshot",
            name="source",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="snapshots",
                to="jobs.backupjobsource",
                verbose_name="source",
            ),
        ),
        migrations.AddField(
            model_name="backupsnapshot",
            name="task",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="snapshots",
                to="jobs.agenttask",
                verbose_name="task",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobsourceevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="124c2b7326c70f3420efa02438b04a85f0e746ba",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_5aa83",
                    table="backup_job_source_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobsourceevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="434002d566f381b3747b50b3ba2e62fc2a366715",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_62124",
                    table="backup_job_source_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="f2dc1ede28ad7d5bc0b062115c6c91dcae618c1c",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_b2921",
                    table="backup_job_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="aed2c5429792775fefeed998bd3b3aef497dcb19",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_4c61d",
                    table="backup_job_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["active", "paused", "retired"])), name="backup_jobs_state_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_attempts__range", (1, 10))), name="backup_jobs_attempts_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("max_run_seconds__range", (60, 864000)),
                    ("overdue_after_seconds__range", (60, 31536000)),
                    ("start_deadline_seconds__range", (60, 2592000)),
                ),
                name="backup_jobs_times_bounds",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("retention__isnull", True),
                    jobs.engine.ddl.JsonHolds(
                        "retention",
                        "jsonb_typeof({}) = 'object' AND {} <> jsonb_build_object()\n    AND {} - ARRAY['keep_last', 'keep_hourly', 'keep_daily', 'keep_weekly', 'keep_monthly', 'keep_yearly'] = jsonb_build_object() AND NOT jsonb_path_exists({}, '$.* ? (@.type() != \"number\" || @ < 1)')",
                    ),
                    _connector="OR",
                ),
                name="backup_jobs_retention_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["active", "paused"])), fields=("name",), name="backup_jobs_name_key"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjob",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "backup_job_events" ("created_at", "created_by", "id", "max_attempts", "max_run_seconds", "name", "overdue_after_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "repository_id", "start_deadline_seconds", "state", "state_note") VALUES (NEW."created_at", NEW."created_by", NEW."id", NEW."max_attempts", NEW."max_run_seconds", NEW."name", NEW."overdue_after_seconds", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."repository_id", NEW."start_deadline_seconds", NEW."state", NEW."state_note"); RETURN NULL;',
                    hash="5d4ed0a902917dd0fd221bb0eda5b2eab5933c1b",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_ff40e",
                    table="backup_jobs",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjob",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."created_by" IS DISTINCT FROM (NEW."created_by") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."max_attempts" IS DISTINCT FROM (NEW."max_attempts") OR OLD."max_run_seconds" IS DISTINCT FROM (NEW."max_run_seconds") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."overdue_after_seconds" IS DISTINCT FROM (NEW."overdue_after_seconds") OR OLD."repository_id" IS DISTINCT FROM (NEW."repository_id") OR OLD."start_deadline_seconds" IS DISTINCT FROM (NEW."start_deadline_seconds") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."state_note" IS DISTINCT FROM (NEW."state_note"))',
                    func='INSERT INTO "backup_job_events" ("created_at", "created_by", "id", "max_attempts", "max_run_seconds", "name", "overdue_after_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "repository_id", "start_deadline_seconds", "state", "state_note") VALUES (NEW."created_at", NEW."created_by", NEW."id", NEW."max_attempts", NEW."max_run_seconds", NEW."name", NEW."overdue_after_seconds", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."repository_id", NEW."start_deadline_seconds", NEW."state", NEW."state_note"); RETURN NULL;',
                    hash="04df168046556e31318638d437e3056722413a03",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_f113f",
                    table="backup_jobs",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backuprepositoryevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="7a002820f35d7db53cbcac4e6ae0bd6eb42e427a",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_a2d4f",
                    table="backup_repository_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backuprepositoryevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="e20831a2822ba52128d4522b3f89da74111bea25",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_ce4fb",
                    table="backup_repository_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddIndex(
            model_name="backupsnapshot",
            index=models.Index(
                models.F("source"),
                models.OrderBy(models.F("taken_at"), descending=True),
                name="backup_snapshots_source_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="backupsnapshot",
            index=models.Index(
                condition=models.Q(("task__isnull", False)), fields=["task"], name="backup_snapshots_task_idx"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupsnapshot",
            constraint=models.UniqueConstraint(fields=("repository", "engine_id"), name="backup_snapshots_engine_key"),
        ),
        migrations.AddConstraint(
            model_name="backupsnapshot",
            constraint=models.CheckConstraint(
                condition=models.Q(("engine_id__regex", "^[0-9a-f]{64}$")), name="backup_snapshots_id_whole"
            ),
        ),
        migrations.AddConstraint(
            model_name="backupsnapshot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("verified_at__isnull", True), ("verified_ok__isnull", True)),
                    models.Q(("verified_at__isnull", False), ("verified_ok__isnull", False)),
                    _connector="OR",
                ),
                name="backup_snapshots_verified_pair",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="belongs_together",
                sql=jobs.engine.triggers.TriggerSql(
                    declare="DECLARE source_job uuid; source_agent uuid; run_job uuid;",
                    func="\n                    SELECT job_id, agent_id INTO source_job, source_agent\n                        FROM backup_job_sources WHERE id = NEW.job_source_id;\n                    IF source_job IS NOT NULL THEN\n                        SELECT job_id INTO run_job FROM backup_job_runs WHERE id = NEW.job_run_id;\n                        IF run_job IS DISTINCT FROM source_job\n                            OR (NEW.task_type = 'backup' AND NEW.agent_id IS DISTINCT FROM source_agent) THEN\n                            RAISE EXCEPTION 'The source % belongs to another backup job, or to another agent.',\n                                NEW.job_source_id USING ERRCODE = 'check_violation',\n                                CONSTRAINT = 'agent_tasks_belongs_together', TABLE = 'agent_tasks';\n                        END IF;\n                    END IF;\n                    RETURN NEW;\n                ",
                    hash="b36271e17e6a86365eda9e3a0f71aa02d93fd52f",
                    operation='INSERT OR UPDATE OF "agent_id", "job_run_id", "job_source_id", "task_type"',
                    pgid="pgtrigger_belongs_together_35593",
                    table="agent_tasks",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobsource",
            trigger=pgtrigger.compiler.Trigger(
                name="stays_where_it_is",
                sql=jobs.engine.triggers.TriggerSql(
                    condition="WHEN (OLD.job_id IS NOT NULL AND (OLD.job_id IS DISTINCT FROM NEW.job_id OR OLD.agent_id IS DISTINCT FROM NEW.agent_id))",
                    func="\n                    RAISE EXCEPTION 'A source keeps its job and its agent: retire %, and make another one.', OLD.id\n                        USING ERRCODE = 'check_violation', CONSTRAINT = 'backup_job_sources_stays',\n                        TABLE = 'backup_job_sources';\n                ",
                    hash="dd0336c65c031b8ac43615fc57c6f92729e566eb",
                    operation="UPDATE",
                    pgid="pgtrigger_stays_where_it_is_e621c",
                    table="backup_job_sources",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobsource",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "backup_job_source_events" ("agent_id", "allow_empty", "host", "id", "job_id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."agent_id", NEW."allow_empty", NEW."host", NEW."id", NEW."job_id", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="65703afad51844458b48c3b5466006990c036c6d",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_5722e",
                    table="backup_job_sources",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjobsource",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."agent_id" IS DISTINCT FROM (NEW."agent_id") OR OLD."allow_empty" IS DISTINCT FROM (NEW."allow_empty") OR OLD."host" IS DISTINCT FROM (NEW."host") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."job_id" IS DISTINCT FROM (NEW."job_id") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."retired_at" IS DISTINCT FROM (NEW."retired_at"))',
                    func='INSERT INTO "backup_job_source_events" ("agent_id", "allow_empty", "host", "id", "job_id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."agent_id", NEW."allow_empty", NEW."host", NEW."id", NEW."job_id", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="4321d4664ac5b182f9273b300f6310ce3c909151",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_879cf",
                    table="backup_job_sources",
                    when="AFTER",
                ),
            ),
        ),
        reference("backup_job_sources", "job_id", "backup_jobs", "RESTRICT"),
        reference("backup_job_sources", "agent_id", "agents", "RESTRICT"),
        reference("backup_job_runs", "job_id", "backup_jobs", "RESTRICT"),
        reference("backup_snapshots", "task_id", "agent_tasks", "SET NULL"),
        row_level_security(
            "backup_repositories",
            "backup_repository_events",
            "backup_jobs",
            "backup_job_events",
            "backup_job_sources",
            "backup_job_source_events",
            "backup_job_runs",
            "backup_snapshots",
        ),
        runs_as_owner("pgtrigger_belongs_together_35593"),
    ]
