"""`agent_jobs`: one launched job of an agent. The table is a contract with SQL clients; we only add to it."""

import pgtrigger
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import NamedIndex, SqlNow
from jobs.engine.leased import Leased, leased_constraints, leased_indexes
from jobs.engine.leases import LeaseQuerySet
from jobs.engine.lifecycle import Lifecycle
from jobs.engine.stored_json import StoredDocument
from jobs.engine.triggers import Trigger, history
from jobs.engine.walk import status_walk

from .agents import Agent

LIFE = Lifecycle(
    waiting="queued",
    leased=("running",),
    finished=("done", "failed", "cancelled"),
    failed="failed",
    cancelled="cancelled",
    agent="principal_key",
    agent_key="principal_key",
    kind="kind",
    document="spec",
    queued_at="queued_at",
    claimed_at="started_at",
    finished_at="finished_at",
    error="error",
    concurrency_key="concurrency_key",
    kinds="job_kinds",
)


@history(
    "AgentJobEvent", "agent_job_events",
    [
        "id", "agent", "kind", "status", "verdict", "error", "run_ref", "created_by", "root_id", "claim_id",
        "claimed_by", "ended_by", "attempt", "failure_class", "cancel_requested_at", "cancel_requested_by",
        "cancel_reason", "cancel_delivered_at",
    ],
)  # fmt: skip
class AgentJob(Leased):
    """One attempt of one job."""

    class Status(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    class Verdict(models.TextChoices):
        PASS = "pass", _("pass")
        FAIL = "fail", _("fail")
        RISK = "risk", _("risk")

    lifecycle = LIFE
    read_by_claim = (*Leased.read_by_claim, "kind", "spec", "labels", "started_at", "verdict", "finished_at")
    carried = (
        *Leased.carried, "agent", "kind", "spec", "created_by", "dedupe_key", "concurrency_key", "labels", "schedule",
    )  # fmt: skip

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    agent = models.ForeignKey(
        Agent,
        verbose_name=_("agent"),
        to_field="principal_key",
        db_column="principal_key",
        on_delete=models.DO_NOTHING,
        db_constraint=False,  # made by SQL: immediate, so that an error points to its statement
        db_index=False,  # agent_jobs_principal_status_idx serves it
        related_name="jobs",
    )
    kind = models.TextField(_("kind"))
    spec = models.JSONField(_("spec"), db_default={}, decoder=StoredDocument)
    status = models.TextField(_("status"), choices=Status, db_default=Status.QUEUED.value)
    verdict = models.TextField(_("verdict"), choices=Verdict, null=True, blank=True)
    results = models.JSONField(_("results"), null=True, blank=True, decoder=StoredDocument)
    error = models.TextField(_("error"), null=True, blank=True)
    run_ref = models.TextField(_("run"), null=True, blank=True)
    queued_at = models.DateTimeField(_("queued"), db_default=SqlNow())
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)
    created_by = models.TextField(_("created by"), null=True)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow())
    updated_at = models.DateTimeField(_("updated"), db_default=SqlNow())
    heartbeat_at = models.DateTimeField(_("last sign of life"), null=True, editable=False)
    failure_class = models.TextField(_("failure class"), null=True, blank=True)
    dedupe_key = models.TextField(_("dedupe key"), null=True, blank=True)
    concurrency_key = models.TextField(_("concurrency key"), null=True, blank=True)
    labels = models.JSONField(_("labels"), db_default={}, blank=True, decoder=StoredDocument)
    schedule = models.ForeignKey(
        "jobs.Schedule",
        verbose_name=_("schedule"),
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,  # made by SQL, without locking out writers
        db_index=False,  # agent_jobs_schedule_idx serves it
        related_name="jobs",
        editable=False,
    )

    objects = LeaseQuerySet["AgentJob"].as_manager()

    class Meta:
        db_table = "agent_jobs"
        db_table_comment = "One row is one attempt of one job of an agent; a retry is a new row."
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [
            ("cancel_agentjob", "Can cancel jobs"),
            ("retry_agentjob", "Can retry jobs"),
            ("force_agentjob", "Can close jobs by force"),
            ("hold_agentjob", "Can place and release legal holds"),
        ]
        constraints = [
            models.CheckConstraint(
                name="agent_jobs_status_check",
                condition=Q(status__in=["queued", "running", "done", "failed", "cancelled"]),
            ),
            models.CheckConstraint(name="agent_jobs_verdict_check", condition=Q(verdict__in=["pass", "fail", "risk"])),
            *leased_constraints("agent_jobs"),
            # A verdict on a job that was never evaluated would count as a test result.
            models.CheckConstraint(
                name="agent_jobs_verdict_when_done",
                condition=Q(claim_id__isnull=True) | Q(verdict__isnull=True) | Q(status="done"),
            ),
            # A failure that does not say why cannot be acted on.
            models.CheckConstraint(
                name="agent_jobs_failure_explained",
                condition=Q(claim_id__isnull=True)
                | Q(status__ne="failed")
                | (Q(error__isnull=False) & Q(failure_class__isnull=False)),
            ),
            # Two runs against one environment at once would judge each other's data.
            models.UniqueConstraint(
                name="agent_jobs_concurrency_idx", fields=["concurrency_key"], condition=Q(status="running")
            ),
            # A button pressed twice, or a schedule that catches up, must not do the work twice.
            models.UniqueConstraint(
                name="agent_jobs_dedupe_idx", fields=["dedupe_key"], condition=Q(status__in=["queued", "running"])
            ),
        ]
        indexes = [
            NamedIndex(name="agent_jobs_principal_status_idx", fields=["agent", "status", "queued_at"]),
            models.Index(name="agent_jobs_status_idx", fields=["status", "queued_at"]),
            *leased_indexes("agent_jobs", LIFE),
            # The admin's list, newest first.
            models.Index(F("queued_at").desc(), F("id").desc(), name="agent_jobs_newest_idx"),
            # The front page's last 24 hours and its charts, which read nothing but this index.
            NamedIndex(
                name="agent_jobs_ended_idx",
                fields=["finished_at"],
                include=["id", "status", "verdict", "queued_at", "not_before", "started_at"],
                condition=Q(finished_at__isnull=False),
            ),
            # The last runs of one kind.
            NamedIndex(
                name="agent_jobs_kind_ended_idx",
                fields=["kind", "finished_at"],
                condition=Q(finished_at__isnull=False),
            ),
            # The overlap of a schedule: what of its jobs is still open.
            NamedIndex(
                name="agent_jobs_schedule_idx",
                fields=["schedule"],
                condition=Q(schedule__isnull=False, status__in=["queued", "running"]),
            ),
            # Search by a key or a run, whole or by its beginning.
            NamedIndex(
                name="agent_jobs_dedupe_search_idx",
                fields=["dedupe_key"],
                opclasses=["text_pattern_ops"],
                condition=Q(dedupe_key__isnull=False),
            ),
            NamedIndex(
                name="agent_jobs_run_ref_idx",
                fields=["run_ref"],
                opclasses=["text_pattern_ops"],
                condition=Q(run_ref__isnull=False),
            ),
        ]
        triggers = [
            status_walk("agent_jobs", LIFE),
            Trigger(
                name="before_write",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.UpdateOf("principal_key"),  # type: ignore[no-untyped-call]  # pgtrigger gives it no types
                # SQL clients name agents that nobody registered; no job of theirs may be refused or invisible.
                func="""
                    IF NEW.root_id IS NULL THEN NEW.root_id = NEW.id; END IF;
                    INSERT INTO agents (principal_key) VALUES (NEW.principal_key)
                        ON CONFLICT (principal_key) DO NOTHING;
                    RETURN NEW;
                """,
            ),
            pgtrigger.Trigger(
                name="held",
                when=pgtrigger.Before,
                operation=pgtrigger.Delete,
                # Whoever deletes, and however: what a court may ask for stays. Its function runs as its owner, since
                # others see no holds.
                func="""
                    IF EXISTS (SELECT FROM legal_holds WHERE root_id = coalesce(OLD.root_id, OLD.id)) THEN
                        RAISE EXCEPTION 'Job % is under a legal hold.', OLD.id
                            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'agent_jobs_held', TABLE = 'agent_jobs';
                    END IF;
                    RETURN OLD;
                """,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {str(self.id)[:8]}"
