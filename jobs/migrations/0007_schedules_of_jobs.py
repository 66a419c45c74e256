"""Which schedule enqueued a job, added beside running clients: no lock is held for more than a moment."""

import django.db.models.deletion
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import LOCK_TIMEOUT, AddIndexBesideWrites

DROP = "ALTER TABLE agent_jobs DROP CONSTRAINT IF EXISTS agent_jobs_schedule_id_fkey"
ADD = """ALTER TABLE agent_jobs ADD CONSTRAINT agent_jobs_schedule_id_fkey
    FOREIGN KEY (schedule_id) REFERENCES schedules (id) NOT VALID"""


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("jobs", "0007_schedules"),
    ]

    operations = [
        migrations.RunSQL(LOCK_TIMEOUT, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE agent_jobs ADD COLUMN IF NOT EXISTS schedule_id uuid",
                    "ALTER TABLE agent_jobs DROP COLUMN IF EXISTS schedule_id",
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="agentjob",
                    name="schedule",
                    field=models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="jobs",
                        to="jobs.schedule",
                        verbose_name="schedule",
                    ),
                )
            ],
        ),
        migrations.RunSQL([DROP, ADD], DROP),
        migrations.RunSQL(
            "ALTER TABLE agent_jobs VALIDATE CONSTRAINT agent_jobs_schedule_id_fkey", migrations.RunSQL.noop
        ),
        AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("schedule__isnull", False), ("status__in", ["queued", "running"])),
                fields=["schedule"],
                name="agent_jobs_schedule_idx",
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
