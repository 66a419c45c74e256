"""The three groups of people: Viewers look, Operators work, Governors decide.

The last migration of the app, since it needs every permission; one that comes before it is named here as a dependency.
"""

from copy import copy

from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

VIEWERS = frozenset({
    "view_agentjob", "view_agenttask", "view_agent", "view_jobkind", "view_jobartifact", "view_target",
    "view_maintenanceduty",
    "view_schedule", "view_scheduleslot",
    "view_backuprepository", "view_backupjob", "view_backupjobsource", "view_backupjobrun", "view_backupsnapshot",
})  # fmt: skip
OPERATORS = VIEWERS | {
    "add_agentjob", "cancel_agentjob", "retry_agentjob", "cancel_agenttask", "retry_agenttask", "open_jobartifact",
    "add_acknowledgement", "delete_acknowledgement",
    "pause_schedule", "run_schedule",
    "run_backupjob", "cancel_backupjobrun", "retry_backupjobrun", "list_backupsnapshot",
}  # fmt: skip
GOVERNORS = OPERATORS | {
    "force_agentjob", "force_agenttask", "add_agent", "govern_agent", "view_agenttoken", "add_agenttoken",
    "change_agenttoken", "view_enrolmentcode", "add_enrolmentcode", "change_enrolmentcode", "add_jobkind",
    "change_jobkind", "view_auditevent", "add_target", "change_target",
    "hold_agentjob", "open_sensitive_jobartifact",
    "view_noticechannel", "add_noticechannel", "change_noticechannel", "test_noticechannel",
    "view_githubtrust", "add_githubtrust", "change_githubtrust",
    "view_noticerule", "add_noticerule", "change_noticerule", "view_notice", "retry_notice",
    "add_schedule", "change_schedule",
    "add_backuprepository", "change_backuprepository", "maintain_backuprepository",
    "add_backupjob", "change_backupjob", "restore_backupjob",
}  # fmt: skip
GROUPS = {"Viewers": VIEWERS, "Operators": OPERATORS, "Governors": GOVERNORS}
APPS = ("jobs", "artifacts")


def create_groups(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the groups with what they may do; a group of that name that exists gains what it lacks."""
    using = schema_editor.connection.alias
    for label in APPS:
        # Django makes permissions after all migrations, which is too late for this one; it looks only into an app that
        # has models, which one of a migration's state does not say. A copy, since the app may be the running one.
        config = copy(apps.get_app_config(label))
        config.models_module = True
        create_permissions(config, apps=apps, verbosity=0, using=using)
    permissions = apps.get_model("auth", "Permission").objects.using(using).filter(content_type__app_label__in=APPS)
    for name, codenames in GROUPS.items():
        group, _ = apps.get_model("auth", "Group").objects.using(using).get_or_create(name=name)
        found = list(permissions.filter(codename__in=codenames))
        if len(found) != len(codenames):
            raise LookupError(f"{name}: no permission {sorted(codenames - {one.codename for one in found})}")
        group.permissions.add(*found)


def remove_groups(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Remove the groups; people keep their accounts."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    groups.filter(name__in=GROUPS).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0019_github"),
        ("artifacts", "0006_arrival"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(create_groups, remove_groups)]
