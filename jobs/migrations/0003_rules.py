"""The rules over adopted rows, added beside running clients: no lock is held for more than a moment."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from django.db.migrations.state import StateApps

import jobs.engine.ddl
import jobs.engine.migrating
import jobs.engine.triggers
from jobs.engine.migrating import LOCK_TIMEOUT

TABLES = ("agent_jobs", "agent_tasks")
BATCH = 5000


def adopt_rows(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Give adopted rows their chain and register the agents they name, a batch a transaction.

    `updated_at` is the client's own record and keeps its value, so its trigger rests for the moment of a batch. Rows
    that clients add meanwhile have their chain from the insert trigger.
    """
    alias = schema_editor.connection.alias
    with schema_editor.connection.cursor() as cursor:
        for table in TABLES:
            last = uuid.UUID(int=0)
            while True:
                with transaction.atomic(using=alias), updated_at_rests(cursor, table):
                    cursor.execute(
                        f"""WITH batch AS MATERIALIZED (
                              SELECT id FROM {table} WHERE id > %s ORDER BY id LIMIT {BATCH}
                            ), adopted AS (
                              UPDATE {table} SET root_id = {table}.id FROM batch
                              WHERE {table}.id = batch.id AND root_id IS NULL
                            )
                            SELECT id FROM batch ORDER BY id DESC LIMIT 1""",
                        [last],
                    )
                    found = cursor.fetchone()
                if found is None:
                    break
                last = found[0]
        cursor.execute(
            """INSERT INTO agents (principal_key) SELECT DISTINCT principal_key FROM agent_jobs
               ON CONFLICT (principal_key) DO NOTHING"""
        )


@contextmanager
def updated_at_rests(cursor: CursorWrapper, table: str) -> Iterator[None]:
    if table != "agent_jobs":
        yield
        return
    cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER agent_jobs_set_updated_at")
    yield
    cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER agent_jobs_set_updated_at")


def reference(table: str, column: str, target: str) -> list[migrations.RunSQL]:
    """A foreign key that holds for new rows at once, then reads the old ones without locking them."""
    name = f"{table}_{column}_fkey"
    drop = f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}"
    add = f"ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {target} NOT VALID"
    return [
        migrations.RunSQL([drop, add], drop),
        migrations.RunSQL(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}", migrations.RunSQL.noop),
    ]


def retry_of(table: str) -> list[migrations.RunSQL]:
    """One retry a row, and no cascade: the purge removes whole chains in one statement.

    Only retries are in the index: every other row, which is nearly all of them, would change it with each of its moves.
    """
    index = f"{table}_retry_of_key"
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {index}"
    return [
        migrations.RunSQL(drop, migrations.RunSQL.noop),
        migrations.RunSQL(
            f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} (retry_of) WHERE retry_of IS NOT NULL", drop
        ),
        *reference(table, "retry_of", f"{table} (id)"),
    ]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("jobs", "0002_additions"),
    ]

    operations = [
        migrations.RunSQL(LOCK_TIMEOUT, migrations.RunSQL.noop),
        migrations.RunPython(adopt_rows, migrations.RunPython.noop),
        *reference("agent_jobs", "principal_key", "agents (principal_key)"),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                models.F("agent"),
                models.F("kind"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("queued_at"),
                models.F("id"),
                condition=models.Q(("status", "queued")),
                name="agent_jobs_claim_idx",
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("status", "queued"), ("expires_at__isnull", False)),
                fields=["expires_at"],
                name="agent_jobs_expires_idx",
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agentjob",
            index=jobs.engine.ddl.NamedIndex(fields=["root_id"], name="agent_jobs_root_idx"),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agentjob",
            index=models.Index(
                models.OrderBy(models.F("queued_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="agent_jobs_newest_idx",
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agenttask",
            index=jobs.engine.ddl.NamedIndex(
                models.F("agent"),
                models.F("task_type"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("created_at"),
                models.F("id"),
                condition=models.Q(("status", "pending")),
                name="agent_tasks_claim_idx",
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agenttask",
            index=jobs.engine.ddl.NamedIndex(
                condition=models.Q(("status", "pending"), ("expires_at__isnull", False)),
                fields=["expires_at"],
                name="agent_tasks_expires_idx",
            ),
        ),
        jobs.engine.migrating.AddIndexBesideWrites(
            model_name="agenttask",
            index=jobs.engine.ddl.NamedIndex(fields=["root_id"], name="agent_tasks_root_idx"),
        ),
        jobs.engine.migrating.AddUniqueConcurrently(
            model_name="agentjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("claim_id__isnull", False)), fields=("claim_id",), name="agent_jobs_claim_id_idx"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("lease_seconds__gt", 0)), name="agent_jobs_lease_positive"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempt__gte", 1), ("max_attempts__gte", 1)), name="agent_jobs_attempts_valid"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(("ended_by__in", ["runner", "reaper", "person", "system"])),
                name="agent_jobs_ended_by_known",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cancel_requested_at__isnull", True), ("cancel_requested_by__isnull", False), _connector="OR"
                ),
                name="agent_jobs_cancel_has_author",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("claim_id__isnull", True),
                    (
                        "failure_class__in",
                        [
                            "transient",
                            "locked",
                            "resource",
                            "configuration",
                            "source",
                            "repository",
                            "lost",
                            "interrupted",
                            "timeout",
                            "internal",
                        ],
                    ),
                    _connector="OR",
                ),
                name="agent_jobs_class_known",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("claim_id__isnull", True), ("verdict__isnull", True), ("status", "done"), _connector="OR"
                ),
                name="agent_jobs_verdict_when_done",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agentjob",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("claim_id__isnull", True),
                    ("status__ne", "failed"),
                    models.Q(("error__isnull", False), ("failure_class__isnull", False)),
                    _connector="OR",
                ),
                name="agent_jobs_failure_explained",
            ),
        ),
        jobs.engine.migrating.AddUniqueConcurrently(
            model_name="agentjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "running")),
                fields=("concurrency_key",),
                name="agent_jobs_concurrency_idx",
            ),
        ),
        jobs.engine.migrating.AddUniqueConcurrently(
            model_name="agentjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status__in", ["queued", "running"])),
                fields=("dedupe_key",),
                name="agent_jobs_dedupe_idx",
            ),
        ),
        jobs.engine.migrating.AddUniqueConcurrently(
            model_name="agenttask",
            constraint=models.UniqueConstraint(
                condition=models.Q(("claim_id__isnull", False)), fields=("claim_id",), name="agent_tasks_claim_id_idx"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agenttask",
            constraint=models.CheckConstraint(
                condition=models.Q(("lease_seconds__gt", 0)), name="agent_tasks_lease_positive"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agenttask",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempt__gte", 1), ("max_attempts__gte", 1)), name="agent_tasks_attempts_valid"
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agenttask",
            constraint=models.CheckConstraint(
                condition=models.Q(("ended_by__in", ["runner", "reaper", "person", "system"])),
                name="agent_tasks_ended_by_known",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agenttask",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cancel_requested_at__isnull", True), ("cancel_requested_by__isnull", False), _connector="OR"
                ),
                name="agent_tasks_cancel_has_author",
            ),
        ),
        jobs.engine.migrating.AddCheckInTwoSteps(
            model_name="agenttask",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("claim_id__isnull", True),
                    (
                        "failure_class__in",
                        [
                            "transient",
                            "locked",
                            "resource",
                            "configuration",
                            "source",
                            "repository",
                            "lost",
                            "interrupted",
                            "timeout",
                            "internal",
                        ],
                    ),
                    _connector="OR",
                ),
                name="agent_tasks_class_known",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agentjob",
            trigger=pgtrigger.compiler.Trigger(
                name="status_walk",
                sql=jobs.engine.triggers.TriggerSql(
                    condition="WHEN (OLD.status IN ('done', 'failed', 'cancelled') OR OLD.status IS DISTINCT FROM NEW.status)",
                    func="\n            IF OLD.status IN ('done', 'failed', 'cancelled') THEN\n                IF to_jsonb(OLD) - 'updated_at' IS DISTINCT FROM to_jsonb(NEW) - 'updated_at' THEN\n                    RAISE EXCEPTION 'A finished row of agent_jobs never changes: % is %.', OLD.id, OLD.status\n                        USING ERRCODE = 'check_violation', CONSTRAINT = 'agent_jobs_finished_is_final', TABLE = 'agent_jobs';\n                END IF;\n            ELSIF NOT ((OLD.status = 'queued' AND NEW.status = 'running') OR (OLD.status = 'queued' AND NEW.status = 'cancelled') OR (OLD.status = 'running' AND NEW.status = 'done') OR (OLD.status = 'running' AND NEW.status = 'failed') OR (OLD.status = 'running' AND NEW.status = 'cancelled')) THEN\n                RAISE EXCEPTION 'A row of agent_jobs cannot go from % to %.', OLD.status, NEW.status\n                    USING ERRCODE = 'check_violation', CONSTRAINT = 'agent_jobs_status_walk', TABLE = 'agent_jobs';\n            END IF;\n            RETURN NEW;\n        ",
                    hash="78e123271c16dec7b1e31c1be5a673fb8228b94c",
                    operation="UPDATE",
                    pgid="pgtrigger_status_walk_39509",
                    table="agent_jobs",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="agenttask",
            trigger=pgtrigger.compiler.Trigger(
                name="status_walk",
                sql=jobs.engine.triggers.TriggerSql(
                    condition="WHEN (OLD.status IN ('succeeded', 'partial_failure', 'failed', 'cancelled') OR OLD.status IS DISTINCT FROM NEW.status)",
                    func="\n            IF OLD.status IN ('succeeded', 'partial_failure', 'failed', 'cancelled') THEN\n                IF to_jsonb(OLD) - 'updated_at' IS DISTINCT FROM to_jsonb(NEW) - 'updated_at' THEN\n                    RAISE EXCEPTION 'A finished row of agent_tasks never changes: % is %.', OLD.id, OLD.status\n                        USING ERRCODE = 'check_violation', CONSTRAINT = 'agent_tasks_finished_is_final', TABLE = 'agent_tasks';\n                END IF;\n            ELSIF NOT ((OLD.status = 'pending' AND NEW.status = 'claimed') OR (OLD.status = 'pending' AND NEW.status = 'cancelled') OR (OLD.status = 'claimed' AND NEW.status = 'running') OR (OLD.status = 'claimed' AND NEW.status = 'succeeded') OR (OLD.status = 'claimed' AND NEW.status = 'partial_failure') OR (OLD.status = 'claimed' AND NEW.status = 'failed') OR (OLD.status = 'claimed' AND NEW.status = 'cancelled') OR (OLD.status = 'running' AND NEW.status = 'succeeded') OR (OLD.status = 'running' AND NEW.status = 'partial_failure') OR (OLD.status = 'running' AND NEW.status = 'failed') OR (OLD.status = 'running' AND NEW.status = 'cancelled')) THEN\n                RAISE EXCEPTION 'A row of agent_tasks cannot go from % to %.', OLD.status, NEW.status\n                    USING ERRCODE = 'check_violation', CONSTRAINT = 'agent_tasks_status_walk', TABLE = 'agent_tasks';\n            END IF;\n            RETURN NEW;\n        ",
                    hash="c10df30fdcfeb0ecbcb67e0b14be2b75172b3fb5",
                    operation="UPDATE",
                    pgid="pgtrigger_status_walk_82147",
                    table="agent_tasks",
                    when="BEFORE",
                ),
            ),
        ),
        *(unique for table in TABLES for unique in retry_of(table)),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
