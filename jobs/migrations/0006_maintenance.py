"""The duties of the maintenance loops, the maximum run time, and what a kind says of retries and of waiting."""

import django.contrib.postgres.functions
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_list_indexes"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="uptime",
            name="fault",
            field=models.TextField(blank=True, db_default=""),
        ),
        migrations.CreateModel(
            name="MaintenanceDuty",
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
                ("name", models.TextField(unique=True, verbose_name="duty")),
                ("every_seconds", models.FloatField(db_default=0.0, verbose_name="interval (seconds)")),
                ("due_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="due")),
                ("leased_by", models.TextField(blank=True, db_default="", verbose_name="done by")),
                ("leased_until", models.DateTimeField(null=True, verbose_name="leased until")),
                ("term", models.BigIntegerField(db_default=0, verbose_name="term")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                ("last_seconds", models.FloatField(null=True, verbose_name="took (seconds)")),
                ("last_success_at", models.DateTimeField(null=True, verbose_name="last success")),
                ("last_error_at", models.DateTimeField(null=True, verbose_name="last error")),
                ("last_error", models.TextField(blank=True, db_default="", verbose_name="error")),
                ("failures", models.IntegerField(db_default=0, verbose_name="failures in a row")),
            ],
            options={
                "verbose_name": "maintenance duty",
                "verbose_name_plural": "maintenance duties",
                "db_table": "maintenance_duties",
                "db_table_comment": "What the maintenance loops do: interval, lease, last success and last error of each duty.",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("leased_until__isnull", True), ("leased_by__ne", ""), _connector="OR"),
                        name="maintenance_duties_lease_has_owner",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("every_seconds__gte", 0), ("failures__gte", 0), ("term__gte", 0)),
                        name="maintenance_duties_counts_valid",
                    ),
                ],
            },
        ),
        row_level_security("maintenance_duties"),
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
            model_name="agentjob",
            name="overdue_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="agenttask",
            name="overdue_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="expire_after_seconds",
            field=models.IntegerField(blank=True, null=True, verbose_name="waits at most (seconds)"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="retry_jitter_percent",
            field=models.IntegerField(db_default=10, verbose_name="retry jitter (percent)"),
        ),
        migrations.AddField(
            model_name="jobkind",
            name="retry_rules",
            field=models.JSONField(blank=True, db_default={}, verbose_name="retry rules"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="expire_after_seconds",
            field=models.IntegerField(blank=True, null=True, verbose_name="waits at most (seconds)"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="retry_jitter_percent",
            field=models.IntegerField(db_default=10, verbose_name="retry jitter (percent)"),
        ),
        migrations.AddField(
            model_name="jobkindevent",
            name="retry_rules",
            field=models.JSONField(blank=True, db_default={}, verbose_name="retry rules"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkind",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."expire_after_seconds", NEW."id", NEW."lease_seconds", NEW."max_attempts", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."retry_jitter_percent", NEW."retry_rules", NEW."title"); RETURN NULL;',
                    hash="fe206bacb88014af1651625c8fb0ae15031ca165",
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
                    condition='WHEN (OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."description" IS DISTINCT FROM (NEW."description") OR OLD."enabled" IS DISTINCT FROM (NEW."enabled") OR OLD."expire_after_seconds" IS DISTINCT FROM (NEW."expire_after_seconds") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."lease_seconds" IS DISTINCT FROM (NEW."lease_seconds") OR OLD."max_attempts" IS DISTINCT FROM (NEW."max_attempts") OR OLD."max_run_seconds" IS DISTINCT FROM (NEW."max_run_seconds") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."retry_jitter_percent" IS DISTINCT FROM (NEW."retry_jitter_percent") OR OLD."retry_rules" IS DISTINCT FROM (NEW."retry_rules") OR OLD."title" IS DISTINCT FROM (NEW."title"))',
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (NEW."created_at", NEW."description", NEW."enabled", NEW."expire_after_seconds", NEW."id", NEW."lease_seconds", NEW."max_attempts", NEW."max_run_seconds", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."retry_jitter_percent", NEW."retry_rules", NEW."title"); RETURN NULL;',
                    hash="7b733fa175144788facbb4c1d21669f00a654843",
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
                    func='INSERT INTO "job_kind_events" ("created_at", "description", "enabled", "expire_after_seconds", "id", "lease_seconds", "max_attempts", "max_run_seconds", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retry_jitter_percent", "retry_rules", "title") VALUES (OLD."created_at", OLD."description", OLD."enabled", OLD."expire_after_seconds", OLD."id", OLD."lease_seconds", OLD."max_attempts", OLD."max_run_seconds", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."retry_jitter_percent", OLD."retry_rules", OLD."title"); RETURN NULL;',
                    hash="51ea047c1334c276443a62fc318d8a954776ee77",
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
                condition=models.Q(("expire_after_seconds__gt", 0)), name="job_kinds_expiry_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="jobkind",
            constraint=models.CheckConstraint(
                condition=models.Q(("retry_jitter_percent__range", (0, 100))), name="job_kinds_jitter_bounds"
            ),
        ),
    ]
