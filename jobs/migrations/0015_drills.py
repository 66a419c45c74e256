"""Restore drills: how often, how many files, and what is told when one fails."""

import django.contrib.postgres.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0015_upkeep"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        pgtrigger.migrations.RemoveTrigger(
            model_name="backupjob",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="backupjob",
            name="update_update",
        ),
        migrations.RemoveConstraint(
            model_name="backupjobrun",
            name="backup_job_runs_trigger_valid",
        ),
        migrations.RemoveConstraint(
            model_name="noticerule",
            name="notice_rules_events_known",
        ),
        migrations.AddField(
            model_name="backupjob",
            name="drill_every_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="restore drill every (days)"),
        ),
        migrations.AddField(
            model_name="backupjob",
            name="drill_files",
            field=models.IntegerField(db_default=20, verbose_name="files of a restore drill"),
        ),
        migrations.AddField(
            model_name="backupjobevent",
            name="drill_every_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="restore drill every (days)"),
        ),
        migrations.AddField(
            model_name="backupjobevent",
            name="drill_files",
            field=models.IntegerField(db_default=20, verbose_name="files of a restore drill"),
        ),
        migrations.AlterField(
            model_name="backupjobrun",
            name="trigger",
            field=models.TextField(
                choices=[
                    ("schedule", "schedule"),
                    ("manual", "by hand"),
                    ("catch_up", "caught up"),
                    ("api", "API"),
                    ("drill", "restore drill"),
                ],
                db_default="manual",
                verbose_name="launched",
            ),
        ),
        migrations.AlterField(
            model_name="notice",
            name="event",
            field=models.TextField(
                choices=[
                    ("failed", "work failed, or its verdict is fail"),
                    ("risk", "verdict risk, or a partial backup"),
                    ("recovered", "good again"),
                    ("agent_silent", "agent silent"),
                    ("agent_cloned", "agent cloned"),
                    ("token_expiring", "token about to expire"),
                    ("duty_failing", "maintenance failing"),
                    ("schedule_missed", "schedule missed"),
                    ("backup_overdue", "backup overdue"),
                    ("backup_run_bad", "backup run not whole"),
                    ("repository_damaged", "backup repository damaged"),
                    ("drill_failed", "restore drill failed"),
                    ("digest", "digest"),
                    ("test", "test"),
                ],
                verbose_name="event",
            ),
        ),
        migrations.AlterField(
            model_name="noticerule",
            name="listens_to",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(
                    choices=[
                        ("failed", "work failed, or its verdict is fail"),
                        ("risk", "verdict risk, or a partial backup"),
                        ("recovered", "good again"),
                        ("agent_silent", "agent silent"),
                        ("agent_cloned", "agent cloned"),
                        ("token_expiring", "token about to expire"),
                        ("duty_failing", "maintenance failing"),
                        ("schedule_missed", "schedule missed"),
                        ("backup_overdue", "backup overdue"),
                        ("backup_run_bad", "backup run not whole"),
                        ("repository_damaged", "backup repository damaged"),
                        ("drill_failed", "restore drill failed"),
                    ]
                ),
                size=None,
                verbose_name="listens to",
            ),
        ),
        migrations.AlterField(
            model_name="noticeruleevent",
            name="listens_to",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(
                    choices=[
                        ("failed", "work failed, or its verdict is fail"),
                        ("risk", "verdict risk, or a partial backup"),
                        ("recovered", "good again"),
                        ("agent_silent", "agent silent"),
                        ("agent_cloned", "agent cloned"),
                        ("token_expiring", "token about to expire"),
                        ("duty_failing", "maintenance failing"),
                        ("schedule_missed", "schedule missed"),
                        ("backup_overdue", "backup overdue"),
                        ("backup_run_bad", "backup run not whole"),
                        ("repository_damaged", "backup repository damaged"),
                        ("drill_failed", "restore drill failed"),
                    ]
                ),
                size=None,
                verbose_name="listens to",
            ),
        ),
        migrations.AddIndex(
            model_name="backupjobrun",
            index=models.Index(
                condition=models.Q(("trigger", "drill")),
                fields=["job", "-created_at"],
                name="backup_job_runs_drills_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="backupsnapshot",
            index=models.Index(
                models.OrderBy(models.F("taken_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="backup_snapshots_newest_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="backupsnapshot",
            index=models.Index(
                condition=models.Q(("verified_at__isnull", False)),
                fields=["source", "-verified_at"],
                name="backup_snapshots_verified_idx",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backupjob",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "backup_job_events" ("created_at", "created_by", "drill_every_days", "drill_files", "id", "max_attempts", "max_run_seconds", "name", "overdue_after_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "repository_id", "start_deadline_seconds", "state", "state_note") VALUES (NEW."created_at", NEW."created_by", NEW."drill_every_days", NEW."drill_files", NEW."id", NEW."max_attempts", NEW."max_run_seconds", NEW."name", NEW."overdue_after_seconds", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."repository_id", NEW."start_deadline_seconds", NEW."state", NEW."state_note"); RETURN NULL;',
                    hash="c79492472fa28d8077e8e74256ea413fa41cadfe",
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
                    condition='WHEN (OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."created_by" IS DISTINCT FROM (NEW."created_by") OR OLD."drill_every_days" IS DISTINCT FROM (NEW."drill_every_days") OR OLD."drill_files" IS DISTINCT FROM (NEW."drill_files") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."max_attempts" IS DISTINCT FROM (NEW."max_attempts") OR OLD."max_run_seconds" IS DISTINCT FROM (NEW."max_run_seconds") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."overdue_after_seconds" IS DISTINCT FROM (NEW."overdue_after_seconds") OR OLD."repository_id" IS DISTINCT FROM (NEW."repository_id") OR OLD."start_deadline_seconds" IS DISTINCT FROM (NEW."start_deadline_seconds") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."state_note" IS DISTINCT FROM (NEW."state_note"))',
                    func='INSERT INTO "backup_job_events" ("created_at", "created_by", "drill_every_days", "drill_files", "id", "max_attempts", "max_run_seconds", "name", "overdue_after_seconds", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "repository_id", "start_deadline_seconds", "state", "state_note") VALUES (NEW."created_at", NEW."created_by", NEW."drill_every_days", NEW."drill_files", NEW."id", NEW."max_attempts", NEW."max_run_seconds", NEW."name", NEW."overdue_after_seconds", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."repository_id", NEW."start_deadline_seconds", NEW."state", NEW."state_note"); RETURN NULL;',
                    hash="4ccc1495010c56e1e7f0baab698eba302857ccff",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_f113f",
                    table="backup_jobs",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("drill_files__range", (1, 1000)),
                    models.Q(
                        ("drill_every_days__isnull", True), ("drill_every_days__range", (1, 366)), _connector="OR"
                    ),
                ),
                name="backup_jobs_drill_bounds",
            ),
        ),
        migrations.AddConstraint(
            model_name="backupjobrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("trigger__in", ["schedule", "manual", "catch_up", "api", "drill"])),
                name="backup_job_runs_trigger_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="noticerule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "listens_to__contained_by",
                        [
                            "failed",
                            "risk",
                            "recovered",
                            "agent_silent",
                            "agent_cloned",
                            "token_expiring",
                            "duty_failing",
                            "schedule_missed",
                            "backup_overdue",
                            "backup_run_bad",
                            "repository_damaged",
                            "drill_failed",
                        ],
                    )
                ),
                name="notice_rules_events_known",
            ),
        ),
    ]
