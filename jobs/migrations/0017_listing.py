"""Permission to list what a snapshot holds."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0015_drills"),
        ("jobs", "0016_capabilities"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="backupsnapshot",
            options={
                "ordering": ["-taken_at"],
                "permissions": [("list_backupsnapshot", "Can list files of snapshots")],
                "verbose_name": "snapshot",
                "verbose_name_plural": "snapshots",
            },
        ),
    ]
