"""What the runner of an agent can do, as it said last."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0016_instances"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="agent",
            name="capabilities",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(), editable=False, null=True, size=None, verbose_name="can"
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="engine",
            field=models.TextField(db_default="", editable=False, verbose_name="backup engine"),
        ),
    ]
