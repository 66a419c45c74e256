"""GitHub: trust rules, tokens that were used, and the run that a bearer is bound to."""

import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0017_listing"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.AddField(
            model_name="agenttoken",
            name="run_ref",
            field=models.TextField(editable=False, null=True, verbose_name="run"),
        ),
        migrations.CreateModel(
            name="GithubSpentToken",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("issuer", models.TextField()),
                ("jti", models.TextField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "db_table": "github_spent_tokens",
                "db_table_comment": "Tokens of GitHub that were exchanged, until they would have expired anyway.",
                "indexes": [models.Index(fields=["expires_at"], name="github_spent_tokens_expiry_idx")],
                "constraints": [models.UniqueConstraint(fields=("issuer", "jti"), name="github_spent_tokens_once")],
            },
        ),
        migrations.CreateModel(
            name="GithubTrust",
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
                ("issuer", models.TextField(verbose_name="issuer")),
                ("repository_id", models.BigIntegerField(verbose_name="repository id")),
                ("repository_owner_id", models.BigIntegerField(verbose_name="owner id")),
                ("repository", models.TextField(blank=True, db_default="", verbose_name="repository")),
                ("workflow", models.TextField(blank=True, db_default="", verbose_name="workflow file")),
                ("reusable_workflow", models.TextField(blank=True, db_default="", verbose_name="reusable workflow")),
                ("ref", models.TextField(blank=True, db_default="", verbose_name="ref")),
                ("environment", models.TextField(blank=True, db_default="", verbose_name="environment")),
                ("event_name", models.TextField(blank=True, db_default="", verbose_name="event")),
                ("runner_environment", models.TextField(blank=True, db_default="", verbose_name="runner")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
                ("last_used_at", models.DateTimeField(editable=False, null=True, verbose_name="last used")),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="github_trusts",
                        to="jobs.agent",
                        verbose_name="agent",
                    ),
                ),
            ],
            options={
                "verbose_name": "GitHub trust rule",
                "verbose_name_plural": "GitHub trust rules",
                "db_table": "github_trusts",
                "db_table_comment": "Which workflow runs of GitHub may act as which agent.",
                "ordering": ["repository", "id"],
            },
        ),
        migrations.CreateModel(
            name="GithubTrustEvent",
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
                ("issuer", models.TextField(verbose_name="issuer")),
                ("repository_id", models.BigIntegerField(verbose_name="repository id")),
                ("repository_owner_id", models.BigIntegerField(verbose_name="owner id")),
                ("repository", models.TextField(blank=True, db_default="", verbose_name="repository")),
                ("workflow", models.TextField(blank=True, db_default="", verbose_name="workflow file")),
                ("reusable_workflow", models.TextField(blank=True, db_default="", verbose_name="reusable workflow")),
                ("ref", models.TextField(blank=True, db_default="", verbose_name="ref")),
                ("environment", models.TextField(blank=True, db_default="", verbose_name="environment")),
                ("event_name", models.TextField(blank=True, db_default="", verbose_name="event")),
                ("runner_environment", models.TextField(blank=True, db_default="", verbose_name="runner")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        related_query_name="+",
                        to="jobs.agent",
                        verbose_name="agent",
                    ),
                ),
                (
                    "pgh_context",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pghistory.context",
                    ),
                ),
                (
                    "pgh_obj",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="events",
                        to="jobs.githubtrust",
                    ),
                ),
            ],
            options={
                "db_table": "github_trust_events",
                "abstract": False,
            },
        ),
        migrations.AddIndex(
            model_name="githubtrust",
            index=models.Index(fields=["repository_id", "repository_owner_id"], name="github_trusts_repository_idx"),
        ),
        migrations.AddConstraint(
            model_name="githubtrust",
            constraint=models.CheckConstraint(
                condition=models.Q(("repository_id__gt", 0), ("repository_owner_id__gt", 0)),
                name="github_trusts_ids_positive",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="githubtrust",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "github_trust_events" ("agent_id", "created_at", "enabled", "environment", "event_name", "id", "issuer", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "ref", "repository", "repository_id", "repository_owner_id", "reusable_workflow", "runner_environment", "workflow") VALUES (NEW."agent_id", NEW."created_at", NEW."enabled", NEW."environment", NEW."event_name", NEW."id", NEW."issuer", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."ref", NEW."repository", NEW."repository_id", NEW."repository_owner_id", NEW."reusable_workflow", NEW."runner_environment", NEW."workflow"); RETURN NULL;',
                    hash="8d4777dd5ff0ede76e4663cd5c7f954fbe2f8b1a",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_d275e",
                    table="github_trusts",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="githubtrust",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."agent_id" IS DISTINCT FROM (NEW."agent_id") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at") OR OLD."enabled" IS DISTINCT FROM (NEW."enabled") OR OLD."environment" IS DISTINCT FROM (NEW."environment") OR OLD."event_name" IS DISTINCT FROM (NEW."event_name") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."issuer" IS DISTINCT FROM (NEW."issuer") OR OLD."ref" IS DISTINCT FROM (NEW."ref") OR OLD."repository_id" IS DISTINCT FROM (NEW."repository_id") OR OLD."repository_owner_id" IS DISTINCT FROM (NEW."repository_owner_id") OR OLD."reusable_workflow" IS DISTINCT FROM (NEW."reusable_workflow") OR OLD."runner_environment" IS DISTINCT FROM (NEW."runner_environment") OR OLD."workflow" IS DISTINCT FROM (NEW."workflow"))',
                    func='INSERT INTO "github_trust_events" ("agent_id", "created_at", "enabled", "environment", "event_name", "id", "issuer", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "ref", "repository", "repository_id", "repository_owner_id", "reusable_workflow", "runner_environment", "workflow") VALUES (NEW."agent_id", NEW."created_at", NEW."enabled", NEW."environment", NEW."event_name", NEW."id", NEW."issuer", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."ref", NEW."repository", NEW."repository_id", NEW."repository_owner_id", NEW."reusable_workflow", NEW."runner_environment", NEW."workflow"); RETURN NULL;',
                    hash="4dc24e7c09a3fd90c576cdd4c713386c4b221286",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_9ff51",
                    table="github_trusts",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="githubtrustevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="8c32535125d2ce49b511df2d96ad19e847b37643",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_89bfb",
                    table="github_trust_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="githubtrustevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="05d54c89c90aa1a791813aad724947c3e42ef1fe",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_63b3e",
                    table="github_trust_events",
                    when="BEFORE",
                ),
            ),
        ),
        row_level_security("github_trusts", "github_spent_tokens", "github_trust_events"),
    ]
