"""Runner processes that acted as an agent lately."""

import django.db.models.deletion
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0016_enrolment"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="AgentInstance",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("instance", models.UUIDField()),
                ("name", models.TextField(verbose_name="runner")),
                ("first_seen_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="since")),
                ("last_seen_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="last seen")),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="instances", to="jobs.agent"
                    ),
                ),
            ],
            options={
                "verbose_name": "runner process",
                "verbose_name_plural": "runner processes",
                "db_table": "agent_instances",
                "db_table_comment": "Runner processes that acted as an agent within the last hour.",
                "ordering": ["-last_seen_at", "-id"],
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("agent", "instance"), name="agent_instances_instance_uniq")
                ],
            },
        ),
        row_level_security("agent_instances"),
    ]
