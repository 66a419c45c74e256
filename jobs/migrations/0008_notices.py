"""Notices and acknowledgements: channels, rules, the outbox, and what people say about failures."""

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
        ("jobs", "0007_schedules_of_jobs"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Acknowledgement",
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
                ("root_id", models.UUIDField(unique=True, verbose_name="job")),
                ("agent", models.TextField(verbose_name="agent")),
                ("kind", models.TextField(verbose_name="kind")),
                ("reason", models.TextField(verbose_name="reason")),
                ("assignee", models.TextField(blank=True, db_default="", verbose_name="assigned to")),
                ("muted_until", models.DateTimeField(blank=True, null=True, verbose_name="muted until")),
                ("by", models.TextField(verbose_name="by")),
                ("at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="at")),
            ],
            options={
                "db_table": "acknowledgements",
                "db_table_comment": "Failed jobs that people know of, with who looks after them and until when they are muted.",
            },
        ),
        migrations.CreateModel(
            name="AcknowledgementEvent",
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
                ("root_id", models.UUIDField(verbose_name="job")),
                ("agent", models.TextField(verbose_name="agent")),
                ("kind", models.TextField(verbose_name="kind")),
                ("reason", models.TextField(verbose_name="reason")),
                ("assignee", models.TextField(blank=True, db_default="", verbose_name="assigned to")),
                ("muted_until", models.DateTimeField(blank=True, null=True, verbose_name="muted until")),
                ("by", models.TextField(verbose_name="by")),
                ("at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="at")),
            ],
            options={
                "db_table": "acknowledgement_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "delivery_id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(),
                        editable=False,
                        unique=True,
                        verbose_name="delivery id",
                    ),
                ),
                (
                    "event",
                    models.TextField(
                        choices=[
                            ("failed", "work failed, or its verdict is fail"),
                            ("risk", "verdict risk, or a partial backup"),
                            ("recovered", "good again"),
                            ("agent_silent", "agent silent"),
                            ("agent_cloned", "agent cloned"),
                            ("token_expiring", "token about to expire"),
                            ("duty_failing", "maintenance failing"),
                            ("schedule_missed", "schedule missed"),
                            ("backup_overdue", "backup overdue"),
                            ("backup_run_bad", "backup run not whole"),
                            ("repository_damaged", "backup repository damaged"),
                            ("digest", "digest"),
                            ("test", "test"),
                        ],
                        verbose_name="event",
                    ),
                ),
                ("root_id", models.UUIDField(null=True, verbose_name="job")),
                ("title", models.TextField(verbose_name="title")),
                ("body", models.TextField(db_default="", verbose_name="text")),
                ("path", models.TextField(db_default="", verbose_name="page")),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("held", "held"),
                            ("waiting", "waiting"),
                            ("sent", "sent"),
                            ("dead", "given up"),
                            ("refused", "test refused"),
                            ("digested", "in a digest"),
                        ],
                        db_default="held",
                        verbose_name="status",
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0, verbose_name="attempts")),
                ("next_attempt_at", models.DateTimeField(null=True, verbose_name="next attempt")),
                ("claim_id", models.UUIDField(null=True)),
                ("last_error", models.TextField(db_default="", verbose_name="error")),
                ("created_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="created")),
                ("released_at", models.DateTimeField(null=True, verbose_name="released")),
                ("sent_at", models.DateTimeField(null=True, verbose_name="sent")),
            ],
            options={
                "verbose_name": "notice",
                "verbose_name_plural": "notices",
                "db_table": "notices",
                "db_table_comment": "The outbox of notices: one row is one message to one channel.",
                "permissions": [("retry_notice", "Can send notices again")],
            },
        ),
        migrations.CreateModel(
            name="NoticeBookmark",
            fields=[
                ("source", models.TextField(primary_key=True, serialize=False)),
                ("done_id", models.BigIntegerField()),
                ("seen_id", models.BigIntegerField()),
                (
                    "writers",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None),
                ),
            ],
            options={
                "db_table": "notice_bookmarks",
                "db_table_comment": "How far the history of a table was read for notices.",
            },
        ),
        migrations.CreateModel(
            name="NoticeChannel",
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
                (
                    "transport",
                    models.TextField(
                        choices=[("email", "e-mail"), ("webhook", "webhook"), ("apprise", "chat service (Apprise)")],
                        verbose_name="transport",
                    ),
                ),
                ("address", models.TextField(verbose_name="address")),
                ("secret", models.TextField(editable=False, null=True)),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                ("digest_over", models.IntegerField(db_default=5, verbose_name="messages in a window")),
                ("digest_seconds", models.IntegerField(db_default=300, verbose_name="window (seconds)")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "notice channel",
                "verbose_name_plural": "notice channels",
                "db_table": "notice_channels",
                "db_table_comment": "Ways to tell people of events; secrets are sealed with a key of the installation.",
                "ordering": ["name"],
                "permissions": [("test_noticechannel", "Can send test notices")],
            },
        ),
        migrations.CreateModel(
            name="NoticeChannelEvent",
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
                (
                    "transport",
                    models.TextField(
                        choices=[("email", "e-mail"), ("webhook", "webhook"), ("apprise", "chat service (Apprise)")],
                        verbose_name="transport",
                    ),
                ),
                ("address", models.TextField(verbose_name="address")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                ("digest_over", models.IntegerField(db_default=5, verbose_name="messages in a window")),
                ("digest_seconds", models.IntegerField(db_default=300, verbose_name="window (seconds)")),
            ],
            options={
                "db_table": "notice_channel_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="NoticeRule",
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
                (
                    "listens_to",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(
                            choices=[
                                ("failed", "work failed, or its verdict is fail"),
                                ("risk", "verdict risk, or a partial backup"),
                                ("recovered", "good again"),
                                ("agent_silent", "agent silent"),
                                ("agent_cloned", "agent cloned"),
                                ("token_expiring", "token about to expire"),
                                ("duty_failing", "maintenance failing"),
                                ("schedule_missed", "schedule missed"),
                                ("backup_overdue", "backup overdue"),
                                ("backup_run_bad", "backup run not whole"),
                                ("repository_damaged", "backup repository damaged"),
                            ]
                        ),
                        size=None,
                        verbose_name="listens to",
                    ),
                ),
                ("kind", models.TextField(blank=True, db_default="", verbose_name="kind")),
                ("agent", models.TextField(blank=True, db_default="", verbose_name="agent")),
                ("schedule", models.TextField(blank=True, db_default="", verbose_name="schedule")),
                ("label", models.TextField(blank=True, db_default="", verbose_name="label")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "notice rule",
                "verbose_name_plural": "notice rules",
                "db_table": "notice_rules",
                "db_table_comment": "Which events go over which notice channel.",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="NoticeRuleEvent",
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
                (
                    "listens_to",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(
                            choices=[
                                ("failed", "work failed, or its verdict is fail"),
                                ("risk", "verdict risk, or a partial backup"),
                                ("recovered", "good again"),
                                ("agent_silent", "agent silent"),
                                ("agent_cloned", "agent cloned"),
                                ("token_expiring", "token about to expire"),
                                ("duty_failing", "maintenance failing"),
                                ("schedule_missed", "schedule missed"),
                                ("backup_overdue", "backup overdue"),
                                ("backup_run_bad", "backup run not whole"),
                                ("repository_damaged", "backup repository damaged"),
                            ]
                        ),
                        size=None,
                        verbose_name="listens to",
                    ),
                ),
                ("kind", models.TextField(blank=True, db_default="", verbose_name="kind")),
                ("agent", models.TextField(blank=True, db_default="", verbose_name="agent")),
                ("schedule", models.TextField(blank=True, db_default="", verbose_name="schedule")),
                ("label", models.TextField(blank=True, db_default="", verbose_name="label")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
            ],
            options={
                "db_table": "notice_rule_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="NoticeState",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("subject", models.TextField()),
                ("event", models.TextField()),
                ("since", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())),
            ],
            options={
                "db_table": "notice_states",
                "db_table_comment": "What each notice rule was told is wrong; a row goes when it is good again.",
            },
        ),
        migrations.AddIndex(
            model_name="acknowledgement",
            index=models.Index(
                condition=models.Q(("muted_until__isnull", False)),
                fields=["agent", "kind", "muted_until"],
                name="acknowledgements_muted_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="acknowledgement",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="acknowledgements_explained"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="acknowledgement",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "acknowledgement_events" ("agent", "assignee", "at", "by", "id", "kind", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "root_id") VALUES (NEW."agent", NEW."assignee", NEW."at", NEW."by", NEW."id", NEW."kind", NEW."muted_until", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."root_id"); RETURN NULL;',
                    hash="741b241fc5068062333fa4f781c819080282d1c2",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_a88a0",
                    table="acknowledgements",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="acknowledgement",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "acknowledgement_events" ("agent", "assignee", "at", "by", "id", "kind", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "root_id") VALUES (NEW."agent", NEW."assignee", NEW."at", NEW."by", NEW."id", NEW."kind", NEW."muted_until", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."root_id"); RETURN NULL;',
                    hash="bc2ac17577ee56008bffe0d821b62bf987f501d2",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_bbaa3",
                    table="acknowledgements",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="acknowledgement",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "acknowledgement_events" ("agent", "assignee", "at", "by", "id", "kind", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "root_id") VALUES (OLD."agent", OLD."assignee", OLD."at", OLD."by", OLD."id", OLD."kind", OLD."muted_until", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."root_id"); RETURN NULL;',
                    hash="e59967cfe326cf1ece4e318f23c0cb0672727792",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_02217",
                    table="acknowledgements",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="acknowledgementevent",
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
            model_name="acknowledgementevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.acknowledgement",
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="digest",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="digested", to="jobs.notice"
            ),
        ),
        migrations.AddConstraint(
            model_name="noticechannel",
            constraint=models.CheckConstraint(
                condition=models.Q(("transport__in", ["email", "webhook", "apprise"])),
                name="notice_channels_transport_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="noticechannel",
            constraint=models.CheckConstraint(
                condition=models.Q(("transport", "email"), ("secret__isnull", False), _connector="OR"),
                name="notice_channels_has_secret",
            ),
        ),
        migrations.AddConstraint(
            model_name="noticechannel",
            constraint=models.CheckConstraint(
                condition=models.Q(("digest_over__range", (1, 1000)), ("digest_seconds__range", (10, 86400))),
                name="notice_channels_digest_bounds",
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="channel",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="notices",
                to="jobs.noticechannel",
                verbose_name="channel",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticechannel",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "notice_channel_events" ("address", "digest_over", "digest_seconds", "enabled", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "transport") VALUES (NEW."address", NEW."digest_over", NEW."digest_seconds", NEW."enabled", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."transport"); RETURN NULL;',
                    hash="5304afa5a75cf9d4e7e147c32ed646a3e2f0bd4a",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_51f55",
                    table="notice_channels",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticechannel",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."address" IS DISTINCT FROM (NEW."address") OR OLD."digest_over" IS DISTINCT FROM (NEW."digest_over") OR OLD."digest_seconds" IS DISTINCT FROM (NEW."digest_seconds") OR OLD."enabled" IS DISTINCT FROM (NEW."enabled") OR OLD."name" IS DISTINCT FROM (NEW."name"))',
                    func='INSERT INTO "notice_channel_events" ("address", "digest_over", "digest_seconds", "enabled", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "transport") VALUES (NEW."address", NEW."digest_over", NEW."digest_seconds", NEW."enabled", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."transport"); RETURN NULL;',
                    hash="0d31daae04c9de2c25a1006e763f1079d0421c44",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_58c98",
                    table="notice_channels",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="noticechannelevent",
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
            model_name="noticechannelevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_name_transport_address_enabled_digest_over_digest_seconds_events",
                to="jobs.noticechannel",
            ),
        ),
        migrations.AddField(
            model_name="noticerule",
            name="channel",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="rules",
                to="jobs.noticechannel",
                verbose_name="channel",
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="rule",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="notices",
                to="jobs.noticerule",
                verbose_name="rule",
            ),
        ),
        migrations.AddField(
            model_name="noticeruleevent",
            name="channel",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.noticechannel",
                verbose_name="channel",
            ),
        ),
        migrations.AddField(
            model_name="noticeruleevent",
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
            model_name="noticeruleevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="jobs.noticerule",
            ),
        ),
        migrations.AddField(
            model_name="noticestate",
            name="rule",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="states", to="jobs.noticerule"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="acknowledgementevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="e6acbc97fa4018c30eb854ffe50445a8e140310b",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_6d44d",
                    table="acknowledgement_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="acknowledgementevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="cc8c8de7e448d4a626f996ea01a6ceca8e0691d4",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_61904",
                    table="acknowledgement_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticechannelevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="c8706c01b7118b563158326fd231ea7d5222d0a4",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_01d73",
                    table="notice_channel_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticechannelevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="1a81b572c6d2019723704b5861dbe05f495de3c1",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_65f78",
                    table="notice_channel_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="noticerule",
            constraint=models.CheckConstraint(
                condition=models.Q(("listens_to", []), _negated=True), name="notice_rules_listens"
            ),
        ),
        migrations.AddConstraint(
            model_name="noticerule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "listens_to__contained_by",
                        [
                            "failed",
                            "risk",
                            "recovered",
                            "agent_silent",
                            "agent_cloned",
                            "token_expiring",
                            "duty_failing",
                            "schedule_missed",
                            "backup_overdue",
                            "backup_run_bad",
                            "repository_damaged",
                        ],
                    )
                ),
                name="notice_rules_events_known",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticerule",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "notice_rule_events" ("agent", "channel_id", "created_at", "enabled", "id", "kind", "label", "listens_to", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "schedule") VALUES (NEW."agent", NEW."channel_id", NEW."created_at", NEW."enabled", NEW."id", NEW."kind", NEW."label", NEW."listens_to", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."schedule"); RETURN NULL;',
                    hash="d726d86d9356e5be9858e22f2b9d57bad136b817",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_6571f",
                    table="notice_rules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticerule",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "notice_rule_events" ("agent", "channel_id", "created_at", "enabled", "id", "kind", "label", "listens_to", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "schedule") VALUES (NEW."agent", NEW."channel_id", NEW."created_at", NEW."enabled", NEW."id", NEW."kind", NEW."label", NEW."listens_to", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."schedule"); RETURN NULL;',
                    hash="3904419cc1a836acfd64d1421c99225c2f745dfc",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_c9d03",
                    table="notice_rules",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(
                condition=models.Q(("status", "waiting")), fields=["channel", "id"], name="notices_due_idx"
            ),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(condition=models.Q(("status", "held")), fields=["channel"], name="notices_held_idx"),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(fields=["channel", "released_at"], name="notices_released_idx"),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["held", "waiting", "sent", "dead", "refused", "digested"])),
                name="notices_status_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "waiting"), _negated=True), ("next_attempt_at__isnull", False), _connector="OR"
                ),
                name="notices_waits_for_a_time",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticeruleevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="ea2825bce2e67fcc33c1d40e120bf51474193099",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_91b63",
                    table="notice_rule_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="noticeruleevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="f110fa69957e919507ca496856b9a5fb7d008df9",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_cd6ee",
                    table="notice_rule_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="noticestate",
            constraint=models.UniqueConstraint(fields=("rule", "subject"), name="notice_states_one_per_subject"),
        ),
        row_level_security(
            "notice_channels",
            "notice_channel_events",
            "notice_rules",
            "notice_rule_events",
            "notice_states",
            "notice_bookmarks",
            "notices",
            "acknowledgements",
            "acknowledgement_events",
        ),
    ]
