"""What arrival makes of a file: masked, verified, sensitive; and no file of a held job goes."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from jobs.engine.migrating import runs_as_owner


class Migration(migrations.Migration):
    dependencies = [
        ("artifacts", "0005_storage_indexes"),
        ("jobs", "0009_retention_and_holds"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AlterModelOptions(
            name="jobartifact",
            options={
                "permissions": [
                    ("open_jobartifact", "Can open artifacts"),
                    ("open_sensitive_jobartifact", "Can open sensitive artifacts"),
                ],
                "verbose_name": "artifact",
                "verbose_name_plural": "artifacts",
            },
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="masked",
            field=models.IntegerField(db_default=0, editable=False, verbose_name="secrets masked"),
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="received_sha256",
            field=models.TextField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="sensitive",
            field=models.BooleanField(db_default=False, editable=False, verbose_name="sensitive"),
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="verified_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="verified"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobartifact",
            trigger=pgtrigger.compiler.Trigger(
                name="held",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\n                    IF EXISTS (\n                        SELECT FROM agent_jobs job JOIN legal_holds hold ON hold.root_id = coalesce(job.root_id, job.id)\n                        WHERE job.id = OLD.job_id\n                    ) THEN\n                        RAISE EXCEPTION 'Job % of this file is under a legal hold.', OLD.job_id\n                            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'agent_job_artifacts_held',\n                            TABLE = 'agent_job_artifacts';\n                    END IF;\n                    RETURN OLD;\n                ",
                    hash="56461c671b2204a378755e156378940cfc858147",
                    operation="DELETE",
                    pgid="pgtrigger_held_d1871",
                    table="agent_job_artifacts",
                    when="BEFORE",
                ),
            ),
        ),
        runs_as_owner("pgtrigger_held_d1871"),
    ]
