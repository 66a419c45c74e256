"""Maintenance of repositories: who may start it."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0014_backups_at_once"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="backuprepository",
            options={
                "ordering": ["name"],
                "permissions": [("maintain_backuprepository", "Can maintain backup repositories")],
                "verbose_name": "backup repository",
                "verbose_name_plural": "backup repositories",
            },
        ),
    ]
