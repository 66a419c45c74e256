"""The shipped groups, as the migration makes and removes them."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import connection

from tests.admin.conftest import GROUPS

migration = import_module("jobs.migrations.0020_groups")


class Editor:
    """What a migration reads of its schema editor."""

    connection = connection


@pytest.mark.django_db
def test_the_migration_gives_each_group_exactly_its_permissions_even_before_django_made_them() -> None:
    Group.objects.all().delete()
    Permission.objects.filter(content_type__app_label__in=["jobs", "artifacts"]).delete()
    migration.create_groups(apps, Editor())
    for name, codenames in GROUPS.items():
        held = Group.objects.get(name=name).permissions.values_list("codename", flat=True)
        assert set(held) == set(codenames)


@pytest.mark.django_db
def test_the_migration_leaves_the_apps_as_it_found_them_so_that_django_still_makes_their_permissions() -> None:
    before = {config.label: config.models_module for config in apps.get_app_configs()}
    migration.create_groups(apps, Editor())
    assert {config.label: config.models_module for config in apps.get_app_configs()} == before
    Permission.objects.all().delete()
    for config in apps.get_app_configs():
        create_permissions(config, verbosity=0)
    assert set(Permission.objects.values_list("codename", flat=True)) >= GROUPS["Governors"]


@pytest.mark.django_db
def test_running_it_again_and_back_leaves_neither_doubles_nor_groups() -> None:
    migration.create_groups(apps, Editor())
    migration.create_groups(apps, Editor())
    assert Group.objects.filter(name__in=GROUPS).count() == 3
    migration.remove_groups(apps, Editor())
    assert not Group.objects.filter(name__in=GROUPS).exists()
