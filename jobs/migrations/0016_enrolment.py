"""Enrolment codes, and what became of them."""

import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0015_upkeep"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="EnrolmentCode",
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
                ("title", models.TextField(verbose_name="what for")),
                ("digest", models.TextField(editable=False, unique=True)),
                ("prefix", models.TextField(editable=False, verbose_name="code")),
                ("name_prefix", models.TextField(blank=True, db_default="", verbose_name="keys begin with")),
                ("agent_title", models.TextField(blank=True, db_default="", verbose_name="title of new agents")),
                ("agent_labels", models.JSONField(blank=True, db_default={}, verbose_name="labels of new agents")),
                (
                    "presence",
                    models.TextField(
                        choices=[("resident", "resident"), ("on-demand", "on demand")],
                        db_default="resident",
                        verbose_name="presence of new agents",
                    ),
                ),
                ("uses", models.IntegerField(db_default=1, verbose_name="uses")),
                ("uses_left", models.IntegerField(db_default=1, editable=False, verbose_name="uses left")),
                ("expires_at", models.DateTimeField(verbose_name="expires")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                ("revoked_at", models.DateTimeField(editable=False, null=True, verbose_name="revoked")),
                ("revoked_by", models.TextField(editable=False, null=True, verbose_name="revoked by")),
                (
                    "agent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="enrolment_codes",
                        to="jobs.agent",
                        verbose_name="agent",
                    ),
                ),
            ],
            options={
                "verbose_name": "enrolment code",
                "verbose_name_plural": "enrolment codes",
                "db_table": "enrolment_codes",
                "db_table_comment": "Codes that hosts trade for tokens, as SHA-256 digests.",
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Enrolment",
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
                ("request_id", models.UUIDField()),
                ("name", models.TextField(verbose_name="host")),
                ("address", models.TextField(blank=True, db_default="", verbose_name="address")),
                (
                    "enrolled_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="at"),
                ),
                (
                    "token",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="enrolment", to="jobs.agenttoken"
                    ),
                ),
                (
                    "code",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="enrolments", to="jobs.enrolmentcode"
                    ),
                ),
            ],
            options={
                "verbose_name": "enrolment",
                "verbose_name_plural": "enrolments",
                "db_table": "enrolments",
                "db_table_comment": "Uses of enrolment codes, and the tokens that they became.",
                "ordering": ["-enrolled_at", "-id"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="EnrolmentCodeEvent",
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
                ("title", models.TextField(verbose_name="what for")),
                ("prefix", models.TextField(editable=False, verbose_name="code")),
                ("name_prefix", models.TextField(blank=True, db_default="", verbose_name="keys begin with")),
                ("uses", models.IntegerField(db_default=1, verbose_name="uses")),
                ("uses_left", models.IntegerField(db_default=1, editable=False, verbose_name="uses left")),
                ("expires_at", models.DateTimeField(verbose_name="expires")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                ("revoked_at", models.DateTimeField(editable=False, null=True, verbose_name="revoked")),
                ("revoked_by", models.TextField(editable=False, null=True, verbose_name="revoked by")),
                (
                    "agent",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
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
                        related_name="id_title_prefix_agent_name_prefix_uses_uses_left_expires_at_created_by_revoked_at_revoked_by_events",
                        to="jobs.enrolmentcode",
                    ),
                ),
            ],
            options={
                "db_table": "enrolment_code_events",
                "abstract": False,
            },
        ),
        migrations.AddConstraint(
            model_name="enrolmentcode",
            constraint=models.CheckConstraint(
                condition=models.Q(("digest__regex", "^[0-9a-f]{64}$")), name="enrolment_codes_digest_is_sha256"
            ),
        ),
        migrations.AddConstraint(
            model_name="enrolmentcode",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("uses__gte", 1), ("uses__lte", 1000), ("uses_left__gte", 0), ("uses_left__lte", models.F("uses"))
                ),
                name="enrolment_codes_uses_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="enrolmentcode",
            constraint=models.CheckConstraint(
                condition=models.Q(("presence__in", ["resident", "on-demand"])), name="enrolment_codes_presence_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="enrolmentcode",
            constraint=models.CheckConstraint(
                condition=models.Q(("agent__isnull", True), ("name_prefix", ""), _connector="OR"),
                name="enrolment_codes_one_purpose",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="enrolmentcode",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "enrolment_code_events" ("agent_id", "created_by", "expires_at", "id", "name_prefix", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "revoked_at", "revoked_by", "title", "uses", "uses_left") VALUES (NEW."agent_id", NEW."created_by", NEW."expires_at", NEW."id", NEW."name_prefix", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."prefix", NEW."revoked_at", NEW."revoked_by", NEW."title", NEW."uses", NEW."uses_left"); RETURN NULL;',
                    hash="9ab953d5962947066557172b555f0450daaf0e1f",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_29aa9",
                    table="enrolment_codes",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="enrolmentcode",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."revoked_at" IS DISTINCT FROM (NEW."revoked_at") OR OLD."uses_left" IS DISTINCT FROM (NEW."uses_left"))',
                    func='INSERT INTO "enrolment_code_events" ("agent_id", "created_by", "expires_at", "id", "name_prefix", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "revoked_at", "revoked_by", "title", "uses", "uses_left") VALUES (NEW."agent_id", NEW."created_by", NEW."expires_at", NEW."id", NEW."name_prefix", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."prefix", NEW."revoked_at", NEW."revoked_by", NEW."title", NEW."uses", NEW."uses_left"); RETURN NULL;',
                    hash="3a33490c16848a933301eeed03142d3fc9589937",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_2d9d6",
                    table="enrolment_codes",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="enrolment",
            constraint=models.UniqueConstraint(fields=("code", "request_id"), name="enrolments_request_uniq"),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="enrolmentcodeevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="7cc9fe4de9eb7c224a236f8c5a884464ce81c782",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_191d2",
                    table="enrolment_code_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="enrolmentcodeevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="d7ba3134f4721ab77c0333dc5587b971cbe7177d",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_1736f",
                    table="enrolment_code_events",
                    when="BEFORE",
                ),
            ),
        ),
        row_level_security("enrolment_codes", "enrolments", "enrolment_code_events"),
    ]
