"""Legal holds, and per kind: limits of files and how long files and jobs are kept."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security, runs_as_owner


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0008_notices"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="LegalHold",
            fields=[
                (
                    "root",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.RESTRICT,
                        primary_key=True,
                        related_name="legal_hold",
                        serialize=False,
                        to="jobs.agentjob",
                    ),
                ),
                (
                    "placed_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="since"),
                ),
                ("placed_by", models.TextField(verbose_name="by")),
                ("reason", models.TextField(verbose_name="reason")),
            ],
            options={
                "verbose_name": "legal hold",
                "verbose_name_plural": "legal holds",
                "db_table": "legal_holds",
                "db_table_comment": "Jobs that nobody may delete; releasing a hold deletes its row.",
            },
        ),
        migrations.CreateModel(
            name="LegalHoldEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "placed_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="since"),
                ),
                ("placed_by", models.TextField(verbose_name="by")),
                ("reason", models.TextField(verbose_name="reason")),
            ],
            options={
                "db_table": "legal_hold_events",
                "abstract": False,
            },
        ),
        migrations.AlterModelOptions(
            name="agentjob",
            options={
                "permissions": [
                    ("cancel_agentjob", "Can cancel jobs"),
                    ("retry_agentjob", "Can retry jobs"),
                    ("force_agentjob", "Can close jobs by force"),
                    ("hold_agentjob", "Can place and release legal holds"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="jobkind",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="jobkind",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="jobkind",
            name="delete_delete",
        ),
        migrations.AddField(
            model_name="jobkind",
            name="keep_files_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="keep files (days)"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="keep_jobs_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="keep jobs (days)"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="max_file_bytes",
            field=models.IntegerField(blank=True, null=True, verbose_name="bytes of a file at most"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="max_files",
            field=models.IntegerField(blank=True, null=True, verbose_name="files of a job at most"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="max_job_bytes",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="bytes of a job's files at most"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="keep_files_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="keep files (days)"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="keep_jobs_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="keep jobs (days)"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="max_file_bytes",
            field=models.IntegerField(blank=True, null=True, verbose_name="bytes of a file at most"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="max_files",
            field=models.IntegerField(blank=True, null=True, verbose_name="files of a job at most"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="max_job_bytes",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="bytes of a job's files at most"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="held",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\n                    IF EXISTS (SELECT FROM legal_holds WHERE root_id = coalesce(OLD.root_id, OLD.id)) THEN\n                        RAISE EXCEPTION 'Job % is under a legal hold.', OLD.id\n                            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'agent_jobs_held', TABLE = 'agent_jobs';\n                    END IF;\n                    RETURN OLD;\n                ",
                    hash="47b697abbd91c3cd70b9ec0605530f508ead399e",
                    operation="DELETE",
                    pgid="pgtrigger_held_cb436",
                    table="agent_jobs",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkind",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "keep_files_days", "keep_jobs_days", "lease_seconds", "max_attempts", "max_file_bytes", "max_files", "max_job_bytes", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."expire_after_seconds", NEW."id", NEW."keep_files_days", NEW."keep_jobs_days", NEW."lease_seconds", NEW."max_attempts", NEW."max_file_bytes", NEW."max_files", NEW."max_job_bytes", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."retry_jitter_percent", NEW."retry_rules", NEW."title"); RETURN NULL;',
                    hash="e26d7e569e5cc2ec7c813f30ef6606653b295daa",
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
                    condition='WHEN (OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."description" IS DISTINCT FROM (NEW."description") OR OLD."enabled" IS DISTINCT FROM (NEW."enabled") OR OLD."expire_after_seconds" IS DISTINCT FROM (NEW."expire_after_seconds") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."keep_files_days" IS DISTINCT FROM (NEW."keep_files_days") OR OLD."keep_jobs_days" IS DISTINCT FROM (NEW."keep_jobs_days") OR OLD."lease_seconds" IS DISTINCT FROM (NEW."lease_seconds") OR OLD."max_attempts" IS DISTINCT FROM (NEW."max_attempts") OR OLD."max_file_bytes" IS DISTINCT FROM (NEW."max_file_bytes") OR OLD."max_files" IS DISTINCT FROM (NEW."max_files") OR OLD."max_job_bytes" IS DISTINCT FROM (NEW."max_job_bytes") OR OLD."max_run_seconds" IS DISTINCT FROM (NEW."max_run_seconds") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."retry_jitter_percent" IS DISTINCT FROM (NEW."retry_jitter_percent") OR OLD."retry_rules" IS DISTINCT FROM (NEW."retry_rules") OR OLD."title" IS DISTINCT FROM (NEW."title"))',
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "keep_files_days", "keep_jobs_days", "lease_seconds", "max_attempts", "max_file_bytes", "max_files", "max_job_bytes", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."expire_after_seconds", NEW."id", NEW."keep_files_days", NEW."keep_jobs_days", NEW."lease_seconds", NEW."max_attempts", NEW."max_file_bytes", NEW."max_files", NEW."max_job_bytes", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."retry_jitter_percent", NEW."retry_rules", NEW."title"); RETURN NULL;',
                    hash="629142592c489e9a399e8fb621a5486b00ebbb46",
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
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "keep_files_days", "keep_jobs_days", "lease_seconds", "max_attempts", "max_file_bytes", "max_files", "max_job_bytes", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (OLD."created_at", OLD."description", OLD."enabled", OLD."expire_after_seconds", OLD."id", OLD."keep_files_days", OLD."keep_jobs_days", OLD."lease_seconds", OLD."max_attempts", OLD."max_file_bytes", OLD."max_files", OLD."max_job_bytes", OLD."max_run_seconds", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."retry_jitter_percent", OLD."retry_rules", OLD."title"); RETURN NULL;',
                    hash="4feb3f242fbf495f86ab4e0af9e7a8fd11127247",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_b8f69",
                    table="job_kinds",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("keep_files_days__gt", 0), ("keep_jobs_days__gt", 0)),
                name="job_kinds_keep_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_file_bytes__gt", 0), ("max_files__gt", 0), ("max_job_bytes__gt", 0)),
                name="job_kinds_files_positive",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="legalhold",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "legal_hold_events" ("pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "placed_at", "placed_by", "reason", "root_id") VALUES (_pgh_attach_context(), NOW(), \'insert\', NEW."root_id", NEW."placed_at", NEW."placed_by", NEW."reason", NEW."root_id"); RETURN NULL;',
                    hash="276bac9898a044d26a0b939ded0beab4d2b731fd",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_6f6de",
                    table="legal_holds",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="legalhold",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "legal_hold_events" ("pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "placed_at", "placed_by", "reason", "root_id") VALUES (_pgh_attach_context(), NOW(), \'delete\', OLD."root_id", OLD."placed_at", OLD."placed_by", OLD."reason", OLD."root_id"); RETURN NULL;',
                    hash="0494fb3baca289437e2e41da0a05341e57a72cbf",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_912a8",
                    table="legal_holds",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="legalholdevent",
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
            model_name="legalholdevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.legalhold",
            ),
        ),
        migrations.AddField(
            model_name="legalholdevent",
            name="root",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                serialize=False,
                to="jobs.agentjob",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="legalholdevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="44168b9430734df48f973b3f6c83d01a068721bf",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_71bf5",
                    table="legal_hold_events",
                    when="BEFORE",
                ),
            ),
        ),
        row_level_security("legal_holds", "legal_hold_events"),
        runs_as_owner("pgtrigger_held_cb436"),
    ]
