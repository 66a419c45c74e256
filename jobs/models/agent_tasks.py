"""`agent_tasks`: one backup or restore of one source on one agent. A contract with SQL clients; we only add to it."""

import pgtrigger
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.leased import Leased, leased_constraints, leased_indexes
from jobs.engine.leases import LeaseQuerySet
from jobs.engine.lifecycle import Lifecycle
from jobs.engine.stored_json import StoredDocument
from jobs.engine.triggers import Trigger, history
from jobs.engine.walk import status_walk

from .agents import Agent
from .backup_runs import BackupJobRun
from .backups import BackupJobSource

LIFE = Lifecycle(
    waiting="pending",
    leased=("claimed", "running"),
    finished=("succeeded", "partial_failure", "failed", "cancelled"),
    failed="failed",
    cancelled="cancelled",
    agent="agent_id",
    agent_key="id",
    kind="task_type",
    document="task_payload",
    queued_at="created_at",
    claimed_at="claimed_at",
    finished_at="completed_at",
    error="error_message",
    error_code="error_code",
    # A whole number of at most ten days, as `execution` reads it for the runner's deadline.
    run_limit="""CASE WHEN jsonb_typeof(task_payload #> '{settings,max_runtime_s}') = 'number'
        AND task_payload #> '{settings,max_runtime_s}' BETWEEN '1' AND '864000'
        AND task_payload #>> '{settings,max_runtime_s}' ~ '^[0-9]+$'
        THEN (task_payload #> '{settings,max_runtime_s}')::int END""",
    # As a test for NULL, since the planner takes it for nearly always true, and so for no reason to leave the queue.
    admits="nullif(agent_tasks_admitted(waiting.job_run_id, waiting.task_type, {}), false) IS NOT NULL",
    # What is no list of texts is no requirement that anybody could meet: its runner says what is wrong with it.
    # As a test for NULL for the same reason.
    capable="""nullif(CASE
          WHEN jsonb_typeof(waiting.task_payload -> 'requires') = 'array'
            AND NOT jsonb_path_exists(waiting.task_payload -> 'requires', 'strict $[*] ? (@.type() != "string")')
          THEN waiting.task_payload -> 'requires' <@ to_jsonb(%(capabilities)s::text[]) ELSE true END, false)
          IS NOT NULL""",
    on_claim="""UPDATE backup_job_runs SET status = 'running', started_at = coalesce(backup_job_runs.started_at, now())
        FROM claimed WHERE backup_job_runs.id = claimed.job_run_id AND backup_job_runs.status = 'pending'""",
    exclusive=True,
)


@history(
    "AgentTaskEvent", "agent_task_events",
    [
        "id", "agent", "job_run", "job_source", "task_type", "status", "error_code", "error_message", "root_id",
        "claim_id", "claimed_by", "ended_by", "attempt", "failure_class", "cancel_requested_at", "cancel_requested_by",
        "cancel_reason", "cancel_delivered_at", "backup_id_in_repository",
    ],
)  # fmt: skip
class AgentTask(Leased):
    """One attempt of one source's backup or restore."""

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        CLAIMED = "claimed", _("claimed")
        RUNNING = "running", _("running")
        SUCCEEDED = "succeeded", _("succeeded")
        PARTIAL_FAILURE = "partial_failure", _("partial failure")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    class Type(models.TextChoices):
        BACKUP = "backup", _("backup")
        RESTORE = "restore", _("restore")

    lifecycle = LIFE
    read_by_claim = (*Leased.read_by_claim, "job_run", "task_type", "task_payload", "claimed_at", "completed_at")
    carried = (*Leased.carried, "agent", "job_run", "job_source", "task_type", "task_payload")

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    agent = models.ForeignKey(
        Agent, verbose_name=_("agent"), on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    job_run = models.ForeignKey(
        BackupJobRun, verbose_name=_("run"), on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    job_source = models.ForeignKey(
        BackupJobSource, verbose_name=_("source"), on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    task_type = models.TextField(_("type"), choices=Type, db_default=Type.BACKUP.value)
    status = models.TextField(_("status"), choices=Status, db_default=Status.PENDING.value)
    task_payload = models.JSONField(_("payload"), decoder=StoredDocument)
    bytes_processed = models.BigIntegerField(_("bytes processed"), db_default=0)
    bytes_written = models.BigIntegerField(_("bytes written"), db_default=0)
    files_processed = models.BigIntegerField(_("files processed"), db_default=0)
    files_skipped = models.BigIntegerField(_("files skipped"), db_default=0)
    backup_id_in_repository = models.TextField(_("snapshot"), null=True)
    error_code = models.TextField(_("error code"), null=True)
    error_message = models.TextField(_("error"), null=True)
    failure_class = models.TextField(_("failure class"), null=True)
    heartbeat_at = models.DateTimeField(_("last sign of life"), null=True)
    claimed_at = models.DateTimeField(_("claimed"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)
    completed_at = models.DateTimeField(_("completed"), null=True)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow())

    objects = LeaseQuerySet["AgentTask"].as_manager()

    class Meta:
        db_table = "agent_tasks"
        db_table_comment = "One row is one attempt at backing up or restoring one source on one agent."
        verbose_name = _("backup task")
        verbose_name_plural = _("backup tasks")
        permissions = [
            ("cancel_agenttask", "Can cancel backup tasks"),
            ("retry_agenttask", "Can retry backup tasks"),
            ("force_agenttask", "Can close backup tasks by force"),
        ]
        constraints = [
            models.CheckConstraint(
                name="agent_tasks_status_valid",
                condition=Q(
                    status__in=[
                        "pending", "claimed", "running", "succeeded", "partial_failure", "failed", "cancelled",
                    ]
                ),
            ),
            models.CheckConstraint(name="agent_tasks_type_valid", condition=Q(task_type__in=["backup", "restore"])),
            models.CheckConstraint(
                name="agent_tasks_completed_when_done",
                condition=Q(status__in=["pending", "claimed", "running"]) | Q(completed_at__isnull=False),
            ),
            models.CheckConstraint(
                name="agent_tasks_skipped_is_not_success", condition=Q(files_skipped=0) | Q(status__ne="succeeded")
            ),
            models.CheckConstraint(
                name="agent_tasks_failure_is_classified",
                condition=Q(status__ne="failed") | Q(failure_class__isnull=False),
            ),
            *leased_constraints("agent_tasks"),
            # Two restic processes of one host would lock each other out of the repository.
            models.UniqueConstraint(
                name="agent_tasks_single_active_idx", fields=["agent"], condition=Q(status__in=["claimed", "running"])
            ),
        ]  # fmt: skip
        indexes = [
            models.Index(name="agent_tasks_pending_idx", fields=["agent", "created_at"], condition=Q(status="pending")),
            models.Index(name="agent_tasks_job_run_idx", fields=["job_run"]),
            models.Index(
                name="agent_tasks_heartbeat_idx",
                fields=["heartbeat_at"],
                condition=Q(status__in=["claimed", "running"]),
            ),
            *leased_indexes("agent_tasks", LIFE),
        ]
        triggers = [
            status_walk("agent_tasks", LIFE),
            Trigger(
                name="before_insert",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert,
                # A retry is another task: what its payload says of the attempt before must not be said of this one.
                func="""
                    IF NEW.root_id IS NULL THEN NEW.root_id = NEW.id; END IF;
                    IF NEW.retry_of IS NOT NULL AND NEW.task_payload ->> 'task_id' = NEW.retry_of::text THEN
                        NEW.task_payload = replace(NEW.task_payload::text, NEW.retry_of::text, NEW.id::text)::jsonb
                            || jsonb_build_object('attempt', NEW.attempt, 'backup_id', regexp_replace(
                                NEW.task_payload ->> 'backup_id', '-a[0-9]+$', '-a' || NEW.attempt));
                    END IF;
                    RETURN NEW;
                """,
            ),
            # A task that hangs on another job's source, or backs up another host, would file its snapshot under it.
            # Rows of SQL clients have sources without a job, and stay legal.
            Trigger(
                name="belongs_together",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.UpdateOf("agent_id", "job_run_id", "job_source_id", "task_type"),  # type: ignore[no-untyped-call]  # pgtrigger gives it no types
                declare=[("source_job", "uuid"), ("source_agent", "uuid"), ("run_job", "uuid")],
                func="""
                    SELECT job_id, agent_id INTO source_job, source_agent
                        FROM backup_job_sources WHERE id = NEW.job_source_id;
                    IF source_job IS NOT NULL THEN
                        SELECT job_id INTO run_job FROM backup_job_runs WHERE id = NEW.job_run_id;
                        IF run_job IS DISTINCT FROM source_job
                            OR (NEW.task_type = 'backup' AND NEW.agent_id IS DISTINCT FROM source_agent) THEN
                            RAISE EXCEPTION 'The source % belongs to another backup job, or to another agent.',
                                NEW.job_source_id USING ERRCODE = 'check_violation',
                                CONSTRAINT = 'agent_tasks_belongs_together', TABLE = 'agent_tasks';
                        END IF;
                    END IF;
                    RETURN NEW;
                """,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_type} {str(self.id)[:8]}"
