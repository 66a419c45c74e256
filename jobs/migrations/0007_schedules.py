"""Schedules and their slots."""

import django.contrib.postgres.functions
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_maintenance"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.CreateModel(
            name="ScheduleEvent",
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
                ("kind", models.TextField(verbose_name="kind")),
                ("priority", models.IntegerField(db_default=0, verbose_name="priority")),
                ("concurrency_key", models.TextField(blank=True, null=True, verbose_name="concurrency key")),
                (
                    "expires_after_seconds",
                    models.IntegerField(blank=True, null=True, verbose_name="expires after (seconds)"),
                ),
                ("expression", models.TextField(verbose_name="cron expression")),
                ("zone", models.TextField(db_default="UTC", verbose_name="time zone")),
                ("splay_seconds", models.IntegerField(db_default=0, verbose_name="splay (seconds)")),
                (
                    "misfire",
                    models.TextField(
                        choices=[
                            ("skip", "skip them all"),
                            ("latest", "run the latest one"),
                            ("all", "run them all, up to the limit"),
                        ],
                        db_default="latest",
                        verbose_name="missed times",
                    ),
                ),
                ("catch_up_limit", models.IntegerField(db_default=10, verbose_name="catch up at most")),
                ("grace_seconds", models.IntegerField(db_default=300, verbose_name="late after (seconds)")),
                (
                    "overlap",
                    models.TextField(
                        choices=[
                            ("skip", "skip the new one"),
                            ("queue", "queue the new one"),
                            ("cancel", "cancel the old one"),
                        ],
                        db_default="skip",
                        verbose_name="overlap",
                    ),
                ),
                (
                    "state",
                    models.TextField(
                        choices=[("active", "active"), ("paused", "paused"), ("retired", "retired")],
                        db_default="active",
                        verbose_name="state",
                    ),
                ),
                ("state_note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("state_until", models.DateTimeField(blank=True, null=True, verbose_name="until")),
            ],
            options={
                "db_table": "schedule_events",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="ScheduleSlot",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField(verbose_name="due")),
                (
                    "outcome",
                    models.TextField(
                        choices=[
                            ("enqueued", "enqueued"),
                            ("skipped", "skipped"),
                            ("missed", "missed"),
                            ("refused", "refused"),
                        ],
                        verbose_name="outcome",
                    ),
                ),
                (
                    "reason",
                    models.TextField(
                        blank=True,
                        choices=[
                            ("overlap", "the job of an earlier time was still open"),
                            ("queue_full", "too many jobs of this schedule were still open"),
                            ("paused", "the schedule was paused"),
                            ("late", "noticed too late, and missed times are skipped"),
                            ("superseded", "noticed too late, and a later time stands for it"),
                            ("over_limit", "noticed too late, and more were missed than are caught up"),
                            ("invalid", "the job could not be enqueued"),
                        ],
                        db_default="",
                        verbose_name="reason",
                    ),
                ),
                ("note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("open_job_id", models.UUIDField(null=True)),
                ("requested_by", models.TextField(null=True, verbose_name="run by")),
                ("recorded_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), verbose_name="recorded")),
            ],
            options={
                "verbose_name": "slot",
                "verbose_name_plural": "slots",
                "db_table": "schedule_slots",
                "db_table_comment": "Each time that a schedule was due, once, with what came of it.",
                "ordering": ["-due_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
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
                ("name", models.TextField(verbose_name="name")),
                ("kind", models.TextField(verbose_name="kind")),
                ("spec", models.JSONField(db_default={}, verbose_name="spec")),
                ("labels", models.JSONField(blank=True, db_default={}, verbose_name="labels")),
                ("priority", models.IntegerField(db_default=0, verbose_name="priority")),
                ("concurrency_key", models.TextField(blank=True, null=True, verbose_name="concurrency key")),
                (
                    "expires_after_seconds",
                    models.IntegerField(blank=True, null=True, verbose_name="expires after (seconds)"),
                ),
                ("expression", models.TextField(verbose_name="cron expression")),
                ("zone", models.TextField(db_default="UTC", verbose_name="time zone")),
                ("splay_seconds", models.IntegerField(db_default=0, verbose_name="splay (seconds)")),
                (
                    "misfire",
                    models.TextField(
                        choices=[
                            ("skip", "skip them all"),
                            ("latest", "run the latest one"),
                            ("all", "run them all, up to the limit"),
                        ],
                        db_default="latest",
                        verbose_name="missed times",
                    ),
                ),
                ("catch_up_limit", models.IntegerField(db_default=10, verbose_name="catch up at most")),
                ("grace_seconds", models.IntegerField(db_default=300, verbose_name="late after (seconds)")),
                (
                    "overlap",
                    models.TextField(
                        choices=[
                            ("skip", "skip the new one"),
                            ("queue", "queue the new one"),
                            ("cancel", "cancel the old one"),
                        ],
                        db_default="skip",
                        verbose_name="overlap",
                    ),
                ),
                (
                    "state",
                    models.TextField(
                        choices=[("active", "active"), ("paused", "paused"), ("retired", "retired")],
                        db_default="active",
                        verbose_name="state",
                    ),
                ),
                ("state_note", models.TextField(blank=True, db_default="", verbose_name="note")),
                ("state_until", models.DateTimeField(blank=True, null=True, verbose_name="until")),
                ("settled_at", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False)),
                ("next_due_at", models.DateTimeField(editable=False, null=True, verbose_name="next due")),
                ("created_by", models.TextField(editable=False, verbose_name="created by")),
                (
                    "created_at",
                    models.DateTimeField(db_default=jobs.engine.ddl.SqlNow(), editable=False, verbose_name="created"),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="schedules",
                        to="jobs.agent",
                        verbose_name="agent",
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": "schedules",
                "db_table_comment": "When which job is enqueued by the clock.",
                "ordering": ["name"],
                "permissions": [
                    ("pause_schedule", "Can pause schedules"),
                    ("run_schedule", "Can run schedules by hand"),
                ],
            },
        ),
        migrations.AddField(
            model_name="scheduleevent",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="jobs.agent",
                verbose_name="agent",
            ),
        ),
        migrations.AddField(
            model_name="scheduleevent",
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
            model_name="scheduleevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="id_name_agent_kind_priority_concurrency_key_expires_after_seconds_expression_zone_splay_seconds_misfire_catch_up_limit_grace_seconds_overlap_state_state_note_state_until_events",
                to="jobs.schedule",
            ),
        ),
        migrations.AddField(
            model_name="scheduleslot",
            name="job",
            field=models.OneToOneField(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="slot",
                to="jobs.agentjob",
                verbose_name="job",
            ),
        ),
        migrations.AddField(
            model_name="scheduleslot",
            name="schedule",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="slots",
                to="jobs.schedule",
                verbose_name="schedule",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(("next_due_at__isnull", False)), fields=["next_due_at"], name="schedules_due_idx"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["active", "paused", "retired"])), name="schedules_state_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("misfire__in", ["skip", "latest", "all"])), name="schedules_misfire_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ["skip", "queue", "cancel"])), name="schedules_overlap_valid"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("catch_up_limit__range", (1, 100))), name="schedules_catch_up_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("grace_seconds__range", (60, 86400))), name="schedules_grace_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("splay_seconds__range", (0, 43200))), name="schedules_splay_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("expires_after_seconds__gte", 60)), name="schedules_expiry_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("next_due_at__isnull", True), ("state", "retired")),
                    models.Q(("state__in", ["active", "paused"]), ("next_due_at__isnull", False)),
                    _connector="OR",
                ),
                name="schedules_retired_or_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["active", "paused"])), fields=("name",), name="schedules_name_key"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "schedule_events" ("agent_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (NEW."agent_id", NEW."catch_up_limit", NEW."concurrency_key", NEW."expires_after_seconds", NEW."expression", NEW."grace_seconds", NEW."id", NEW."kind", NEW."misfire", NEW."name", NEW."overlap", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."priority", NEW."splay_seconds", NEW."state", NEW."state_note", NEW."state_until", NEW."zone"); RETURN NULL;',
                    hash="b828705e7aa9cb884d1b16e5e4e02e24d176ab1c",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_f5033",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."agent_id" IS DISTINCT FROM (NEW."agent_id") OR OLD."catch_up_limit" IS DISTINCT FROM (NEW."catch_up_limit") OR OLD."concurrency_key" IS DISTINCT FROM (NEW."concurrency_key") OR OLD."expires_after_seconds" IS DISTINCT FROM (NEW."expires_after_seconds") OR OLD."expression" IS DISTINCT FROM (NEW."expression") OR OLD."grace_seconds" IS DISTINCT FROM (NEW."grace_seconds") OR OLD."kind" IS DISTINCT FROM (NEW."kind") OR OLD."labels" IS DISTINCT FROM (NEW."labels") OR OLD."misfire" IS DISTINCT FROM (NEW."misfire") OR OLD."name" IS DISTINCT FROM (NEW."name") OR OLD."overlap" IS DISTINCT FROM (NEW."overlap") OR OLD."priority" IS DISTINCT FROM (NEW."priority") OR OLD."spec" IS DISTINCT FROM (NEW."spec") OR OLD."splay_seconds" IS DISTINCT FROM (NEW."splay_seconds") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."state_note" IS DISTINCT FROM (NEW."state_note") OR OLD."state_until" IS DISTINCT FROM (NEW."state_until") OR OLD."zone" IS DISTINCT FROM (NEW."zone"))',
                    func='INSERT INTO "schedule_events" ("agent_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (NEW."agent_id", NEW."catch_up_limit", NEW."concurrency_key", NEW."expires_after_seconds", NEW."expression", NEW."grace_seconds", NEW."id", NEW."kind", NEW."misfire", NEW."name", NEW."overlap", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."priority", NEW."splay_seconds", NEW."state", NEW."state_note", NEW."state_until", NEW."zone"); RETURN NULL;',
                    hash="f84c22e9bf0c8f9d781ee64a80301aa62c1ab797",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_91d67",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="schedule",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "schedule_events" ("agent_id", "catch_up_limit", "concurrency_key", "expires_after_seconds", "expression", "grace_seconds", "id", "kind", "misfire", "name", "overlap", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "splay_seconds", "state", "state_note", "state_until", "zone") VALUES (OLD."agent_id", OLD."catch_up_limit", OLD."concurrency_key", OLD."expires_after_seconds", OLD."expression", OLD."grace_seconds", OLD."id", OLD."kind", OLD."misfire", OLD."name", OLD."overlap", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."priority", OLD."splay_seconds", OLD."state", OLD."state_note", OLD."state_until", OLD."zone"); RETURN NULL;',
                    hash="6b2cacf4c87ffb7463889ae7a917be8500c02c03",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_f858b",
                    table="schedules",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="scheduleevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="399dd92e66ff9199c584c7cd83bb6514a88e9494",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_be4e0",
                    table="schedule_events",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddIndex(
            model_name="scheduleslot",
            index=models.Index(fields=["-due_at", "-id"], name="schedule_slots_newest_idx"),
        ),
        migrations.AddIndex(
            model_name="scheduleslot",
            index=models.Index(
                condition=models.Q(
                    ("outcome", "enqueued"),
                    ("reason__in", ("late", "over_limit", "queue_full", "invalid")),
                    _connector="OR",
                ),
                fields=["schedule", "-due_at"],
                name="schedule_slots_fared_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="scheduleslot",
            constraint=models.UniqueConstraint(fields=("schedule", "due_at"), name="schedule_slots_due_key"),
        ),
        migrations.AddConstraint(
            model_name="scheduleslot",
            constraint=models.CheckConstraint(
                condition=models.Q(("outcome__in", ["enqueued", "skipped", "missed", "refused"])),
                name="schedule_slots_outcome_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="scheduleslot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("outcome", "enqueued"), ("reason", "")),
                    models.Q(("outcome", "skipped"), ("reason__in", ["overlap", "queue_full", "paused"])),
                    models.Q(("outcome", "missed"), ("reason__in", ["late", "superseded", "over_limit"])),
                    models.Q(("outcome", "refused"), ("reason", "invalid")),
                    _connector="OR",
                ),
                name="schedule_slots_reason_given",
            ),
        ),
        # A purge of the job leaves its slot, which says only then that there was one.
        migrations.RunSQL(
            "ALTER TABLE schedule_slots ADD CONSTRAINT schedule_slots_job_id_fkey"
            " FOREIGN KEY (job_id) REFERENCES agent_jobs (id) ON DELETE SET NULL",
            "ALTER TABLE schedule_slots DROP CONSTRAINT schedule_slots_job_id_fkey",
        ),
        row_level_security("schedules", "schedule_slots", "schedule_events"),
        pgtrigger.migrations.AddTrigger(
            model_name="scheduleevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="d39f29abbd6cea0b49e9fc368d533845cf90c11a",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_b13cf",
                    table="schedule_events",
                    when="BEFORE",
                ),
            ),
        ),
    ]
