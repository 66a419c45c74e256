"""What the project adds to the contract: the digest, and whether the bytes are there."""

import django.db.models.deletion
from django.db import migrations, models

import jobs.engine.ddl


class Migration(migrations.Migration):
    dependencies = [
        ("artifacts", "0001_contract"),
        ("jobs", "0001_contract"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AlterModelOptions(
            name="jobartifact",
            options={
                "permissions": [("open_jobartifact", "Can open artifacts")],
                "verbose_name": "artifact",
                "verbose_name_plural": "artifacts",
            },
        ),
        migrations.AlterModelTableComment(
            name="jobartifact",
            table_comment="One file that a runner attached to a job; the bytes lie in private storage.",
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="missing_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="bytes missing since"),
        ),
        migrations.AddField(
            model_name="jobartifact",
            name="sha256",
            field=models.TextField(editable=False, null=True, verbose_name="SHA-256"),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="content_type",
            field=models.TextField(db_default="image/png", verbose_name="content type"),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="created_at",
            field=models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="created"),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="artifacts",
                to="jobs.agentjob",
                verbose_name="job",
            ),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="name",
            field=models.TextField(verbose_name="name"),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="size_bytes",
            field=models.IntegerField(db_default=0, verbose_name="size (bytes)"),
        ),
        migrations.AlterField(
            model_name="jobartifact",
            name="storage_path",
            field=models.TextField(editable=False, verbose_name="storage key"),
        ),
    ]
