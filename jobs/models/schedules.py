"""Schedules, and their slots: one row for each time that a schedule was due, whatever came of it."""

import pghistory
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied

from .agents import Agent
from .backups import BackupJob

DEFINED_BY = (
    "name", "backup_job", "agent", "kind", "spec", "labels", "priority", "concurrency_key", "expires_after_seconds",
    "expression", "zone", "splay_seconds", "misfire", "catch_up_limit", "grace_seconds", "overlap",
)  # fmt: skip
GOVERNED = (*DEFINED_BY, "state", "state_note", "state_until")
DOCUMENTS = ("spec", "labels")
# Reasons of slots whose work is undone: neither does a later time stand for it, nor was it meant to be left out.
UNDONE = ("late", "over_limit", "queue_full", "invalid")


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(condition=pghistory.AnyChange(*GOVERNED)),
    pghistory.DeleteEvent(),
    fields=["id", *(name for name in GOVERNED if name not in DOCUMENTS)],
    append_only=True,
    model_name="ScheduleEvent",
    meta={"db_table": "schedule_events", "triggers": [never_emptied()]},
)
class Schedule(models.Model):
    """When which job is enqueued, or which backup job is run. Retired, never deleted: the slots are history."""

    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        PAUSED = "paused", _("paused")
        RETIRED = "retired", _("retired")

    class Misfire(models.TextChoices):
        SKIP = "skip", _("skip them all")
        LATEST = "latest", _("run the latest one")
        ALL = "all", _("run them all, up to the limit")

    class Overlap(models.TextChoices):
        SKIP = "skip", _("skip the new one")
        QUEUE = "queue", _("queue the new one")
        CANCEL = "cancel", _("cancel the old one")

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"))
    # A backup job says itself which agents work.
    backup_job = models.ForeignKey(
        BackupJob, verbose_name=_("backup job"), null=True, on_delete=models.PROTECT, related_name="schedules"
    )
    agent = models.ForeignKey(
        Agent, verbose_name=_("agent"), null=True, on_delete=models.PROTECT, related_name="schedules"
    )
    kind = models.TextField(_("kind"))
    spec = models.JSONField(_("spec"), db_default={})
    labels = models.JSONField(_("labels"), db_default={}, blank=True)
    priority = models.IntegerField(_("priority"), db_default=0)
    concurrency_key = models.TextField(_("concurrency key"), null=True, blank=True)
    expires_after_seconds = models.IntegerField(_("expires after (seconds)"), null=True, blank=True)
    expression = models.TextField(_("cron expression"))
    zone = models.TextField(_("time zone"), db_default="UTC")
    splay_seconds = models.IntegerField(_("splay (seconds)"), db_default=0)
    misfire = models.TextField(_("missed times"), choices=Misfire, db_default=Misfire.LATEST.value)
    catch_up_limit = models.IntegerField(_("catch up at most"), db_default=10)
    grace_seconds = models.IntegerField(_("late after (seconds)"), db_default=300)
    overlap = models.TextField(_("overlap"), choices=Overlap, db_default=Overlap.SKIP.value)
    state = models.TextField(_("state"), choices=State, db_default=State.ACTIVE.value)
    state_note = models.TextField(_("note"), blank=True, db_default="")
    state_until = models.DateTimeField(_("until"), null=True, blank=True)
    # Every time up to here has its slot. next_due_at only follows from it, for the index.
    settled_at = models.DateTimeField(db_default=SqlNow(), editable=False)
    next_due_at = models.DateTimeField(_("next due"), null=True, editable=False)
    created_by = models.TextField(_("created by"), editable=False)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "schedules"
        db_table_comment = "When which job is enqueued, or which backup job is run, by the clock."
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ["name"]
        permissions = [("pause_schedule", "Can pause schedules"), ("run_schedule", "Can run schedules by hand")]
        constraints = [
            # A word that the scheduler does not know would neither run nor skip a time.
            models.CheckConstraint(
                name="schedules_state_valid", condition=Q(state__in=["active", "paused", "retired"])
            ),
            models.CheckConstraint(name="schedules_misfire_valid", condition=Q(misfire__in=["skip", "latest", "all"])),
            models.CheckConstraint(
                name="schedules_overlap_valid", condition=Q(overlap__in=["skip", "queue", "cancel"])
            ),
            # A schedule of both would run one of them only, and one of neither nothing.
            models.CheckConstraint(
                name="schedules_of_one_sort",
                condition=Q(agent__isnull=False, backup_job__isnull=True)
                | Q(agent__isnull=True, backup_job__isnull=False),
            ),
            # A catch-up without a bound floods the agent after an outage.
            models.CheckConstraint(name="schedules_catch_up_bounds", condition=Q(catch_up_limit__range=(1, 100))),
            # Less than the slowest pace of the maintenance loop, and every time would be late.
            models.CheckConstraint(name="schedules_grace_bounds", condition=Q(grace_seconds__range=(60, 86400))),
            models.CheckConstraint(name="schedules_splay_bounds", condition=Q(splay_seconds__range=(0, 43200))),
            # A job that expires before an agent could ask is never done.
            models.CheckConstraint(name="schedules_expiry_bounds", condition=Q(expires_after_seconds__gte=60)),
            # A live schedule without a next time stops for ever and tells nobody; a retired one with it goes on.
            models.CheckConstraint(
                name="schedules_retired_or_due",
                condition=Q(state="retired", next_due_at__isnull=True)
                | (Q(state__in=["active", "paused"]) & Q(next_due_at__isnull=False)),
            ),
            # Two schedules of one name cannot be told apart in a job's labels.
            models.UniqueConstraint(
                name="schedules_name_key", fields=["name"], condition=Q(state__in=["active", "paused"])
            ),
        ]
        indexes = [
            # What the scheduler asks at each turn.
            models.Index(
                name="schedules_due_idx", fields=["next_due_at"], condition=Q(next_due_at__isnull=False)
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name


class ScheduleSlot(models.Model):
    """One time that a schedule was due, or was run by hand, and what came of it."""

    class Outcome(models.TextChoices):
        ENQUEUED = "enqueued", _("enqueued")
        SKIPPED = "skipped", _("skipped")
        MISSED = "missed", _("missed")
        REFUSED = "refused", _("refused")

    class Reason(models.TextChoices):
        OVERLAP = "overlap", _("the job of an earlier time was still open")
        QUEUE_FULL = "queue_full", _("too many jobs of this schedule were still open")
        PAUSED = "paused", _("the schedule was paused")
        LATE = "late", _("noticed too late, and missed times are skipped")
        SUPERSEDED = "superseded", _("noticed too late, and a later time stands for it")
        OVER_LIMIT = "over_limit", _("noticed too late, and more were missed than are caught up")
        INVALID = "invalid", _("the job could not be enqueued")

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(
        Schedule, verbose_name=_("schedule"), on_delete=models.PROTECT, db_index=False, related_name="slots"
    )
    due_at = models.DateTimeField(_("due"))
    outcome = models.TextField(_("outcome"), choices=Outcome)
    reason = models.TextField(_("reason"), choices=Reason, blank=True, db_default="")
    note = models.TextField(_("note"), blank=True, db_default="")
    job = models.OneToOneField(
        "jobs.AgentJob", verbose_name=_("job"), null=True, related_name="slot", on_delete=models.DO_NOTHING,
        db_constraint=False,  # made by SQL: a purge of the job leaves the slot, ON DELETE SET NULL
    )  # fmt: skip
    run = models.OneToOneField(
        "jobs.BackupJobRun", verbose_name=_("backup run"), null=True, related_name="slot", on_delete=models.DO_NOTHING,
        db_constraint=False,  # made by SQL like the job's
    )  # fmt: skip
    open_job_id = models.UUIDField(null=True)  # the job that was still open
    open_run_id = models.UUIDField(null=True)  # the backup run that was
    requested_by = models.TextField(_("run by"), null=True)  # NULL: the clock
    recorded_at = models.DateTimeField(_("recorded"), db_default=SqlNow())

    class Meta:
        db_table = "schedule_slots"
        db_table_comment = "Each time that a schedule was due, once, with what came of it."
        verbose_name = _("slot")
        verbose_name_plural = _("slots")
        ordering = ["-due_at", "-id"]
        constraints = [
            # Two schedulers, or a clock that is set back, must not run one time twice.
            models.UniqueConstraint(name="schedule_slots_due_key", fields=["schedule", "due_at"]),
            models.CheckConstraint(
                name="schedule_slots_outcome_valid",
                condition=Q(outcome__in=["enqueued", "skipped", "missed", "refused"]),
            ),
            # A time that was left out without a reason cannot be told from one that was lost.
            models.CheckConstraint(
                name="schedule_slots_reason_given",
                condition=Q(outcome="enqueued", reason="")
                | Q(outcome="skipped", reason__in=["overlap", "queue_full", "paused"])
                | Q(outcome="missed", reason__in=["late", "superseded", "over_limit"])
                | Q(outcome="refused", reason="invalid"),
            ),
        ]
        indexes = [
            # The list of slots, newest first, and the front page's last 24 hours.
            models.Index(name="schedule_slots_newest_idx", fields=["-due_at", "-id"]),
            # How a schedule fared last, behind however many times that passed in a pause.
            models.Index(
                name="schedule_slots_fared_idx", fields=["schedule", "-due_at"],
                condition=Q(outcome="enqueued") | Q(reason__in=UNDONE),
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.due_at:%Y-%m-%d %H:%M:%S}Z"
