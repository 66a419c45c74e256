"""Histories are never emptied, and refused bearers are counted."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

import jobs.engine.ddl
from jobs.engine.migrating import row_level_security


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0009_retention_and_holds"),
    ]

    operations = [
        migrations.CreateModel(
            name="RefusedBearers",
            fields=[
                ("slot", models.IntegerField(primary_key=True, serialize=False)),
                ("since", models.DateTimeField(db_default=jobs.engine.ddl.SqlNow())),
                ("refusals", models.IntegerField(db_default=1)),
            ],
            options={
                "verbose_name": "refused bearers",
                "db_table": "refused_bearers",
                "db_table_comment": "How often bearers were refused lately, by a hash of the client's address.",
            },
        ),
        # Counting needs no disk: a crash takes a minute of it away.
        migrations.RunSQL("ALTER TABLE refused_bearers SET UNLOGGED", migrations.RunSQL.noop),
        row_level_security("refused_bearers"),
        pgtrigger.migrations.AddTrigger(
            model_name="agentevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="f7ddf1921bf7ff181dc1eb18819b8958406dca67",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_3a2d5",
                    table="agent_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjobevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="0117cb4f8c4705931663fc292a84625d40f6b820",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_9eff6",
                    table="agent_job_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttaskevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="04bd54145aed97aa4f1d87398353fe2650537e48",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_00377",
                    table="agent_task_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttokenevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="235df7d7101d1ecab3666104bcb3f9fb7d6cdfbe",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_e81c4",
                    table="agent_token_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="auditevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="63d5e01ad8a90ff5a7b445473e48718b1109e867",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_1d5c8",
                    table="audit_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="jobkindevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="1704b02b0dda9e85442476d7fbe18e398881e592",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_bd57c",
                    table="job_kind_events",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="legalholdevent",
            trigger=pgtrigger.compiler.Trigger(
                name="never_emptied",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
                    hash="43dceb0b5f3a18e0094df27ddd1f3dccf0d8612c",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_never_emptied_886c6",
                    table="legal_hold_events",
                    when="BEFORE",
                ),
            ),
        ),
    ]
