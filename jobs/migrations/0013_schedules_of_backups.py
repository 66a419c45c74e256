"""Schedules of backup jobs: a slot leads to a job, or to a run."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0012_backups"),
    ]

    operations = [
        migrations.AlterModelTableComment(
            name="schedule",
            table_comment="When which job is enqueued, or which backup job is run, by the clock.",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="schedule",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="schedule",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="schedule",
            name="delete_delete",
        ),
        migrations.AddField(
            model_name="schedule",
            name="backup_job",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="schedules",
                to="jobs.backupjob",
                verbose_name="backup job",
            ),
        ),
        migrations.AddField(
            model_name="scheduleevent",
            name="backup_job",
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
            model_name="scheduleslot",
            name="open_run_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="scheduleslot",
            name="run",
            field=models.OneToOneField(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="slot",
                to="jobs.backupjobrun",
                verbose_name="backup run",
            ),
        ),
        migrations.AlterField(
            model_name="scheduleevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_name_backup_job_agent_kind_priority_concurrency_key_expires_after_seconds_expression_zone_splay_seconds_misfire_catch_up_limit_grace_seconds_overlap_state_state_note_state_until_events",
                to="jobs.schedule",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "schedule_events" ("agent_id", "backup_job_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (NEW."agent_id", NEW."backup_job_id", NEW."catch_up_limit", NEW."concurrency_key", NEW."expires_after_seconds", NEW."expression", NEW."grace_seconds", NEW."id", NEW."kind", NEW."misfire", NEW."name", NEW."overlap", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."priority", NEW."splay_seconds", NEW."state", NEW."state_note", NEW."state_until", NEW."zone"); RETURN NULL;',
                    hash="c0a262485ec5cae3ff59cf40a14767fd1b545e50",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_f5033",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."agent_id" IS DISTINCT FROM (NEW."agent_id") OR OLD."backup_job_id" IS DISTINCT FROM (NEW."backup_job_id") OR OLD."catch_up_limit" IS DISTINCT FROM (NEW."catch_up_limit") OR OLD."concurrency_key" IS DISTINCT FROM (NEW."concurrency_key") OR OLD."expires_after_seconds" IS DISTINCT FROM (NEW."expires_after_seconds") OR OLD."expression" IS DISTINCT FROM (NEW."expression") OR OLD."grace_seconds" IS DISTINCT FROM (NEW."grace_seconds") OR OLD."kind" IS DISTINCT FROM (NEW."kind") OR OLD."labels" IS DISTINCT FROM (NEW."labels") OR OLD."misfire" IS DISTINCT FROM (NEW."misfire") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."overlap" IS DISTINCT FROM (NEW."overlap") OR OLD."priority" IS DISTINCT FROM (NEW."priority") OR OLD."spec" IS DISTINCT FROM (NEW."spec") OR OLD."splay_seconds" IS DISTINCT FROM (NEW."splay_seconds") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."state_note" IS DISTINCT FROM (NEW."state_note") OR OLD."state_until" IS DISTINCT FROM (NEW."state_until") OR OLD."zone" IS DISTINCT FROM (NEW."zone"))',
                    func='INSERT INTO "schedule_events" ("agent_id", "backup_job_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (NEW."agent_id", NEW."backup_job_id", NEW."catch_up_limit", NEW."concurrency_key", NEW."expires_after_seconds", NEW."expression", NEW."grace_seconds", NEW."id", NEW."kind", NEW."misfire", NEW."name", NEW."overlap", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."priority", NEW."splay_seconds", NEW."state", NEW."state_note", NEW."state_until", NEW."zone"); RETURN NULL;',
                    hash="f920de7046d38f37c43ea103b868d410753e0d1f",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_91d67",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "schedule_events" ("agent_id", "backup_job_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (OLD."agent_id", OLD."backup_job_id", OLD."catch_up_limit", OLD."concurrency_key", OLD."expires_after_seconds", OLD."expression", OLD."grace_seconds", OLD."id", OLD."kind", OLD."misfire", OLD."name", OLD."overlap", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."priority", OLD."splay_seconds", OLD."state", OLD."state_note", OLD."state_until", OLD."zone"); RETURN NULL;',
                    hash="95148244db5bbb597655de6e490fefd287c093dc",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_f858b",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("agent__isnull", False), ("backup_job__isnull", True)),
                    models.Q(("agent__isnull", True), ("backup_job__isnull", False)),
                    _connector="OR",
                ),
                name="schedules_of_one_sort",
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE schedule_slots ADD CONSTRAINT schedule_slots_run_id_fkey"
            " FOREIGN KEY (run_id) REFERENCES backup_job_runs (id) ON DELETE SET NULL",
            "ALTER TABLE schedule_slots DROP CONSTRAINT schedule_slots_run_id_fkey",
        ),
    ]
