"""Targets: which addresses the specs of jobs may open, with what secrets, and on whose runners."""

import django.contrib.postgres.fields
import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0010_trail_and_refused_bearers"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.CreateModel(
            name="Target",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.TextField(unique=True, verbose_name="name")),
                ("environment", models.TextField(blank=True, db_default="", verbose_name="environment")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "allowed_hosts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        db_default=[],
                        size=None,
                        verbose_name="further hosts",
                    ),
                ),
                (
                    "allowed_secrets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, db_default=[], size=None, verbose_name="secrets"
                    ),
                ),
                (
                    "allowed_agents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, db_default=[], size=None, verbose_name="agents"
                    ),
                ),
                (
                    "restricted_requests",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        db_default=["script", "stylesheet", "image", "font", "media", "fetch", "websocket", "other"],
                        size=None,
                        verbose_name="restricted requests",
                    ),
                ),
                (
                    "allow_local",
                    models.BooleanField(db_default=False, verbose_name="loopback and link-local addresses"),
                ),
                ("allow_traces", models.BooleanField(db_default=False, verbose_name="traces")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "target",
                "verbose_name_plural": "targets",
                "db_table": "targets",
                "db_table_comment": "Web applications that specs may open: hosts, secrets and agents.",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="TargetEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(), editable=False, serialize=False
                    ),
                ),
                ("name", models.TextField(verbose_name="name")),
                ("environment", models.TextField(blank=True, db_default="", verbose_name="environment")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "allowed_hosts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        db_default=[],
                        size=None,
                        verbose_name="further hosts",
                    ),
                ),
                (
                    "allowed_secrets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, db_default=[], size=None, verbose_name="secrets"
                    ),
                ),
                (
                    "allowed_agents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, db_default=[], size=None, verbose_name="agents"
                    ),
                ),
                (
                    "restricted_requests",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        db_default=["script", "stylesheet", "image", "font", "media", "fetch", "websocket", "other"],
                        size=None,
                        verbose_name="restricted requests",
                    ),
                ),
                (
                    "allow_local",
                    models.BooleanField(db_default=False, verbose_name="loopback and link-local addresses"),
                ),
                ("allow_traces", models.BooleanField(db_default=False, verbose_name="traces")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "db_table": "target_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="TargetOrigin",
            fields=[
                ("origin", models.TextField(primary_key=True, serialize=False, verbose_name="base URL")),
            ],
            options={
                "verbose_name": "base URL of a target",
                "verbose_name_plural": "base URLs of targets",
                "db_table": "target_origins",
                "db_table_comment": "The base URLs of targets; an address belongs to one target.",
                "ordering": ["origin"],
            },
        ),
        migrations.CreateModel(
            name="TargetOriginEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("origin", models.TextField(serialize=False, verbose_name="base URL")),
            ],
            options={
                "db_table": "target_origin_events",
                "abstract": False,
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="target",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "target_events" ("allow_local", "allow_traces", "allowed_agents", "allowed_hosts", "allowed_secrets", "created_at", "enabled", "environment", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "restricted_requests") VALUES (NEW."allow_local", NEW."allow_traces", NEW."allowed_agents", NEW."allowed_hosts", NEW."allowed_secrets", NEW."created_at", NEW."enabled", NEW."environment", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."restricted_requests"); RETURN NULL;',
                    hash="aeeba4a1068ebf76b4dae8b58e04f9840f7a0119",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_4326f",
                    table="targets",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="target",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "target_events" ("allow_local", "allow_traces", "allowed_agents", "allowed_hosts", "allowed_secrets", "created_at", "enabled", "environment", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "restricted_requests") VALUES (NEW."allow_local", NEW."allow_traces", NEW."allowed_agents", NEW."allowed_hosts", NEW."allowed_secrets", NEW."created_at", NEW."enabled", NEW."environment", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."restricted_requests"); RETURN NULL;',
                    hash="628e4952584a4118983ea7a8fe51bd6c5c428bc8",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_11c03",
                    table="targets",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="target",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "target_events" ("allow_local", "allow_traces", "allowed_agents", "allowed_hosts", "allowed_secrets", "created_at", "enabled", "environment", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "restricted_requests") VALUES (OLD."allow_local", OLD."allow_traces", OLD."allowed_agents", OLD."allowed_hosts", OLD."allowed_secrets", OLD."created_at", OLD."enabled", OLD."environment", OLD."id", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."restricted_requests"); RETURN NULL;',
                    hash="2e43b3b61d777ff23a6ade81a9e458e2732183a0",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_390d7",
                    table="targets",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="targetevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="targetevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.target",
            ),
        ),
        migrations.AddField(
            model_name="targetorigin",
            name="target",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="origins",
                to="jobs.target",
                verbose_name="target",
            ),
        ),
        migrations.AddField(
            model_name="targetoriginevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="targetoriginevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.targetorigin",
            ),
        ),
        migrations.AddField(
            model_name="targetoriginevent",
            name="target",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.target",
                verbose_name="target",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="f9da1082f1a534a68e59d46ca46489ba99df731e",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_f81dd",
                    table="target_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetorigin",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "target_origin_events" ("origin", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "target_id") VALUES (NEW."origin", _pgh_attach_context(), NOW(), \'insert\', NEW."origin", NEW."target_id"); RETURN NULL;',
                    hash="9a05908a5d16a48b473269ed68d5a81421bc18db",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_66a05",
                    table="target_origins",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetorigin",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "target_origin_events" ("origin", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "target_id") VALUES (NEW."origin", _pgh_attach_context(), NOW(), \'update\', NEW."origin", NEW."target_id"); RETURN NULL;',
                    hash="6a31cb2e52fd635dd8fd566b1ca7f120e277abdc",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_5d6a7",
                    table="target_origins",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetorigin",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "target_origin_events" ("origin", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "target_id") VALUES (OLD."origin", _pgh_attach_context(), NOW(), \'delete\', OLD."origin", OLD."target_id"); RETURN NULL;',
                    hash="818a4a60713384b30bc63c02f2b0fa8e77bd2ac4",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_0c8e8",
                    table="target_origins",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetoriginevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="a27fda5bfb67cda32de1b653690eecef6d39f844",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_2757e",
                    table="target_origin_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="e528dddd7d2e99e087ec25e64ab241dc33b5f954",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_f73a2",
                    table="target_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="targetoriginevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="e691cebb6528642310d6ff43420554429fd304c7",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_150d9",
                    table="target_origin_events",
                    when="BEFORE",
                ),
            ),
        ),
        row_level_security("targets", "target_origins", "target_events", "target_origin_events"),
    ]
