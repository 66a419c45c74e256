"""Small pictures of images, and the keys of deleted rows, whose bytes are still to be removed."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("artifacts", "0003_rules"),
        ("jobs", "0003_rules"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="ArtifactRemoval",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.TextField(editable=False)),
                ("removed_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False)),
            ],
            options={
                "db_table": "artifact_removals",
                "db_table_comment": "Objects in the storage whose row was deleted and that are still to be removed.",
            },
        ),
        row_level_security("artifact_removals"),
        migrations.AddField(
            model_name="jobartifact",
            name="thumbnail_path",
            field=models.TextField(editable=False, null=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobartifact",
            trigger=pgtrigger.compiler.Trigger(
                name="keep_key",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.sha256 IS NOT NULL)",
                    func="\n                    INSERT INTO artifact_removals (key)\n                        SELECT key FROM (VALUES (OLD.storage_path), (nullif(OLD.thumbnail_path, ''))) AS keys (key)\n                        WHERE key IS NOT NULL;\n                    RETURN NULL;\n                ",
                    hash="d181eb334fdfe7a374a0f314235e28dfc18abc41",
                    operation="DELETE",
                    pgid="pgtrigger_keep_key_76b82",
                    table="agent_job_artifacts",
                    when="AFTER",
                ),
            ),
        ),
    ]
