"""The rules over adopted rows, added beside running clients."""

from django.db import migrations, models

import jobs.engine.migrating
from jobs.engine.migrating import LOCK_TIMEOUT


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("artifacts", "0002_additions"),
    ]

    operations = [
        migrations.RunSQL(LOCK_TIMEOUT, migrations.RunSQL.noop),
        jobs.engine.migrating.AddUniqueConcurrently(
            model_name="jobartifact",
            constraint=models.UniqueConstraint(
                condition=models.Q(("sha256__isnull", False)),
                fields=("job", "name"),
                name="agent_job_artifacts_name_idx",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="jobartifact",
            constraint=models.CheckConstraint(
                condition=models.Q(("sha256__regex", "^[0-9a-f]{64}$")), name="agent_job_artifacts_sha256_valid"
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
