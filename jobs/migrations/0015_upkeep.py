"""Maintenance of repositories by the clock: how often, on which agent, how deep."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0015_maintenance"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        pgtrigger.migrations.RemoveTrigger(
            model_name="backuprepository",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="backuprepository",
            name="update_update",
        ),
        migrations.AddField(
            model_name="backuprepository",
            name="maintenance_agent",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="repositories",
                to="jobs.agent",
                verbose_name="agent of the maintenance",
            ),
        ),
        migrations.AddField(
            model_name="backuprepository",
            name="maintenance_check",
            field=models.TextField(
                choices=[
                    ("none", "not"),
                    ("metadata", "metadata only"),
                    ("read_data_subset", "a part of the data read"),
                    ("read_data", "all data read"),
                ],
                db_default="metadata",
                verbose_name="check of the maintenance",
            ),
        ),
        migrations.AddField(
            model_name="backuprepository",
            name="maintenance_every_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="maintenance every (days)"),
        ),
        migrations.AddField(
            model_name="backuprepository",
            name="maintenance_from",
            field=models.DateTimeField(editable=False, null=True, verbose_name="maintenance counted from"),
        ),
        migrations.AddField(
            model_name="backuprepositoryevent",
            name="maintenance_agent",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                verbose_name="agent of the maintenance",
            ),
        ),
        migrations.AddField(
            model_name="backuprepositoryevent",
            name="maintenance_check",
            field=models.TextField(
                choices=[
                    ("none", "not"),
                    ("metadata", "metadata only"),
                    ("read_data_subset", "a part of the data read"),
                    ("read_data", "all data read"),
                ],
                db_default="metadata",
                verbose_name="check of the maintenance",
            ),
        ),
        migrations.AddField(
            model_name="backuprepositoryevent",
            name="maintenance_every_days",
            field=models.IntegerField(blank=True, null=True, verbose_name="maintenance every (days)"),
        ),
        migrations.AddField(
            model_name="backuprepositoryevent",
            name="maintenance_from",
            field=models.DateTimeField(editable=False, null=True, verbose_name="maintenance counted from"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="backuprepository",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "backup_repository_events" ("check_depth", "check_result", "checked_at", "concurrent_backups", "created_at", "created_by", "credential_ref", "damaged_at", "engine_repository_id", "id", "init_if_missing", "location", "maintenance_agent_id", "maintenance_check", "maintenance_every_days", "maintenance_from", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."check_depth", NEW."check_result", NEW."checked_at", NEW."concurrent_backups", NEW."created_at", NEW."created_by", NEW."credential_ref", NEW."damaged_at", NEW."engine_repository_id", NEW."id", NEW."init_if_missing", NEW."location", NEW."maintenance_agent_id", NEW."maintenance_check", NEW."maintenance_every_days", NEW."maintenance_from", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="d56937dea1c1a469568393836a6603889013d0c8",
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
                    condition='WHEN (OLD."concurrent_backups" IS DISTINCT FROM (NEW."concurrent_backups") OR OLD."credential_ref" IS DISTINCT FROM (NEW."credential_ref") OR OLD."damaged_at" IS DISTINCT FROM (NEW."damaged_at") OR OLD."engine_repository_id" IS DISTINCT FROM (NEW."engine_repository_id") OR OLD."init_if_missing" IS DISTINCT FROM (NEW."init_if_missing") OR OLD."location" IS DISTINCT FROM (NEW."location") OR OLD."maintenance_agent_id" IS DISTINCT FROM (NEW."maintenance_agent_id") OR OLD."maintenance_check" IS DISTINCT FROM (NEW."maintenance_check") OR OLD."maintenance_every_days" IS DISTINCT FROM (NEW."maintenance_every_days") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."retired_at" IS DISTINCT FROM (NEW."retired_at"))',
                    func='INSERT INTO "backup_repository_events" ("check_depth", "check_result", "checked_at", "concurrent_backups", "created_at", "created_by", "credential_ref", "damaged_at", "engine_repository_id", "id", "init_if_missing", "location", "maintenance_agent_id", "maintenance_check", "maintenance_every_days", "maintenance_from", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "retired_at") VALUES (NEW."check_depth", NEW."check_result", NEW."checked_at", NEW."concurrent_backups", NEW."created_at", NEW."created_by", NEW."credential_ref", NEW."damaged_at", NEW."engine_repository_id", NEW."id", NEW."init_if_missing", NEW."location", NEW."maintenance_agent_id", NEW."maintenance_check", NEW."maintenance_every_days", NEW."maintenance_from", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."retired_at"); RETURN NULL;',
                    hash="67bc35817a01b77acd2e4a74f83842354a5e7517",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_ad16f",
                    table="backup_repositories",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("maintenance_agent__isnull", True),
                        ("maintenance_every_days__isnull", True),
                        ("maintenance_from__isnull", True),
                    ),
                    models.Q(
                        ("maintenance_agent__isnull", False),
                        ("maintenance_every_days__range", (1, 366)),
                        ("maintenance_from__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="backup_repositories_maintenance_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="backuprepository",
            constraint=models.CheckConstraint(
                condition=models.Q(("maintenance_check__in", ["none", "metadata", "read_data_subset", "read_data"])),
                name="backup_repositories_maintenance_check_known",
            ),
        ),
    ]
