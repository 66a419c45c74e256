"""What people govern of backups: repositories, backup jobs, and their sources on agents."""

import pghistory
import pgtrigger
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import JsonHolds, SqlNow
from jobs.engine.trail import never_emptied
from jobs.engine.triggers import Trigger

from .agents import Agent

KEEP_RULES = ("keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly")
_KEEPS_BY_RULES = (
    f"""jsonb_typeof({{}}) = 'object' AND {{}} <> jsonb_build_object()
    AND {{}} - ARRAY[{", ".join(f"'{rule}'" for rule in KEEP_RULES)}] = jsonb_build_object()"""
    """ AND NOT jsonb_path_exists({}, '$.* ? (@.type() != "number" || @ < 1)')"""
)
_ARE_PATHS = """jsonb_typeof({}) = 'array' AND jsonb_array_length({}) BETWEEN 1 AND 100
    AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != "string" || !(@ like_regex "^(/|[A-Za-z]:)"))')"""
_ARE_TEXTS = """jsonb_typeof({}) = 'array' AND NOT jsonb_path_exists({}, '$[*] ? (@.type() != "string")')"""


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(
        condition=pghistory.AnyChange(
            "name", "location", "credential_ref", "engine_repository_id", "init_if_missing", "concurrent_backups",
            "damaged_at", "retired_at", "maintenance_agent", "maintenance_every_days", "maintenance_check",
        )
    ),
    append_only=True,
    model_name="BackupRepositoryEvent",
    meta={"db_table": "backup_repository_events", "triggers": [never_emptied()]},
)  # fmt: skip
class BackupRepository(models.Model):
    """Where snapshots are kept. Retired, never deleted: its catalogue is history."""

    class CheckResult(models.TextChoices):
        GOOD = "good", _("good")
        DAMAGED = "damaged", _("damaged")

    class CheckDepth(models.TextChoices):
        METADATA = "metadata", _("metadata only")
        SUBSET = "read_data_subset", _("a part of the data read")
        DATA = "read_data", _("all data read")

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"), unique=True)
    location = models.TextField(_("location"))
    credential_ref = models.TextField(_("credential"))  # a name that each agent resolves by itself
    init_if_missing = models.BooleanField(_("create it if it is missing"), db_default=False)
    # The engine's own id, kept from the first success: another repository at the same place is none of ours.
    engine_repository_id = models.TextField(_("repository id"), null=True, editable=False)
    concurrent_backups = models.IntegerField(_("backups at once"), null=True, blank=True)  # NULL: no limit
    checked_at = models.DateTimeField(_("checked"), null=True, editable=False)
    check_result = models.TextField(_("result of the check"), choices=CheckResult, null=True, editable=False)
    check_depth = models.TextField(_("depth of the check"), choices=CheckDepth, null=True, editable=False)
    damaged_at = models.DateTimeField(_("found damaged"), null=True, editable=False)
    # Maintenance by the clock: all of the first three, or none. It is due so many days after `maintenance_from`.
    maintenance_agent = models.ForeignKey(
        Agent, verbose_name=_("agent of the maintenance"), null=True, blank=True, on_delete=models.PROTECT,
        related_name="repositories",
    )  # fmt: skip
    maintenance_every_days = models.IntegerField(_("maintenance every (days)"), null=True, blank=True)
    maintenance_from = models.DateTimeField(_("maintenance counted from"), null=True, editable=False)
    maintenance_check = models.TextField(
        _("check of the maintenance"), choices=[("none", _("not")), *CheckDepth.choices],
        db_default=CheckDepth.METADATA.value,
    )  # fmt: skip
    retired_at = models.DateTimeField(_("retired"), null=True, editable=False)
    created_by = models.TextField(_("created by"), editable=False)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "backup_repositories"
        db_table_comment = "Where snapshots are kept; passwords are known to agents only, by the credential's name."
        verbose_name = _("backup repository")
        verbose_name_plural = _("backup repositories")
        ordering = ["name"]
        permissions = [("maintain_backuprepository", "Can maintain backup repositories")]
        constraints = [
            # A password in a location would stand in every payload, page and process list.
            models.CheckConstraint(
                name="backup_repositories_no_password",
                condition=~Q(location="") & ~Q(location__regex="//[^/@]*:[^/]*@"),
            ),
            # Anything but a plain name could be a path, or the secret itself.
            models.CheckConstraint(
                name="backup_repositories_credential_is_name",
                condition=Q(credential_ref__regex="^[a-z0-9][a-z0-9_-]{0,62}$"),
            ),
            # A result whose time or depth nobody knows proves nothing.
            models.CheckConstraint(
                name="backup_repositories_check_whole",
                condition=Q(checked_at__isnull=True, check_result__isnull=True, check_depth__isnull=True)
                | Q(
                    checked_at__isnull=False,
                    check_result__in=["good", "damaged"],
                    check_depth__in=["metadata", "read_data_subset", "read_data"],
                ),
            ),
            # A limit of nothing would keep every backup waiting for ever.
            models.CheckConstraint(
                name="backup_repositories_limit_positive", condition=Q(concurrent_backups__range=(1, 1000))
            ),
            # A maintenance without an agent, or without an interval, never comes and nobody misses it.
            models.CheckConstraint(
                name="backup_repositories_maintenance_whole",
                condition=Q(
                    maintenance_agent__isnull=True, maintenance_every_days__isnull=True, maintenance_from__isnull=True
                )
                | Q(
                    maintenance_agent__isnull=False,
                    maintenance_every_days__range=(1, 366),
                    maintenance_from__isnull=False,
                ),
            ),
            models.CheckConstraint(
                name="backup_repositories_maintenance_check_known",
                condition=Q(maintenance_check__in=["none", "metadata", "read_data_subset", "read_data"]),
            ),
        ]

    def __str__(self) -> str:
        return self.name


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    exclude=["settings", "retention"],
    append_only=True,
    model_name="BackupJobEvent",
    meta={"db_table": "backup_job_events", "triggers": [never_emptied()]},
)
class BackupJob(models.Model):
    """Which sources go into which repository, and within which limits. Retired, never deleted."""

    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        PAUSED = "paused", _("paused")
        RETIRED = "retired", _("retired")

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"))
    repository = models.ForeignKey(
        BackupRepository, verbose_name=_("repository"), on_delete=models.PROTECT, related_name="jobs"
    )
    settings = models.JSONField(_("settings"), db_default={}, blank=True)  # what it lacks is as shipped
    max_attempts = models.IntegerField(_("attempts at most"), db_default=3)
    start_deadline_seconds = models.IntegerField(_("must begin within (seconds)"), db_default=12 * 3600)
    max_run_seconds = models.IntegerField(_("maximum run time (seconds)"), db_default=24 * 3600)
    overdue_after_seconds = models.IntegerField(_("overdue after (seconds)"), db_default=36 * 3600)
    retention = models.JSONField(_("retention"), null=True, blank=True)  # NULL: everything is kept
    drill_every_days = models.IntegerField(_("restore drill every (days)"), null=True, blank=True)  # NULL: never
    drill_files = models.IntegerField(_("files of a restore drill"), db_default=20)
    state = models.TextField(_("state"), choices=State, db_default=State.ACTIVE.value)
    state_note = models.TextField(_("note"), blank=True, db_default="")
    created_by = models.TextField(_("created by"), editable=False)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "backup_jobs"
        db_table_comment = "Which sources are backed up into which repository, and within which limits."
        verbose_name = _("backup job")
        verbose_name_plural = _("backup jobs")
        ordering = ["name"]
        permissions = [
            ("run_backupjob", "Can run backup jobs"),
            ("restore_backupjob", "Can restore from backups"),
        ]
        constraints = [
            models.CheckConstraint(
                name="backup_jobs_state_valid", condition=Q(state__in=["active", "paused", "retired"])
            ),
            models.CheckConstraint(name="backup_jobs_attempts_bounds", condition=Q(max_attempts__range=(1, 10))),
            # A task that must begin at once never does; one of ten days outlives what the runner accepts.
            models.CheckConstraint(
                name="backup_jobs_times_bounds",
                condition=Q(start_deadline_seconds__range=(60, 2592000), max_run_seconds__range=(60, 864000),
                            overdue_after_seconds__range=(60, 31536000)),
            ),
            # A drill of nothing would verify everything.
            models.CheckConstraint(
                name="backup_jobs_drill_bounds",
                condition=Q(drill_files__range=(1, 1000))
                & (Q(drill_every_days__isnull=True) | Q(drill_every_days__range=(1, 366))),
            ),
            # An empty policy, or a rule that keeps none, would read as "delete all".
            models.CheckConstraint(
                name="backup_jobs_retention_valid",
                condition=Q(retention__isnull=True) | Q(JsonHolds("retention", _KEEPS_BY_RULES)),
            ),
            models.UniqueConstraint(
                name="backup_jobs_name_key", fields=["name"], condition=Q(state__in=["active", "paused"])
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    fields=["id", "job", "agent", "name", "host", "allow_empty", "retired_at"],
    append_only=True,
    model_name="BackupJobSourceEvent",
    meta={"db_table": "backup_job_source_events", "triggers": [never_emptied()]},
)
class BackupJobSource(models.Model):
    """Folders of one agent, as one backup job takes them. A row without a job is a SQL client's own.

    Job and agent never change: a source is retired and another one made, so that its snapshots stay what they are.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    # RESTRICT is made by SQL: neither goes while it has sources.
    job = models.ForeignKey(
        BackupJob,
        verbose_name=_("backup job"),
        null=True,
        on_delete=models.PROTECT,
        related_name="sources",
        db_constraint=False,
        db_index=False,
    )
    agent = models.ForeignKey(
        Agent,
        verbose_name=_("agent"),
        null=True,
        on_delete=models.PROTECT,
        related_name="backup_sources",
        db_constraint=False,
        db_index=False,
    )
    name = models.TextField(_("name"), null=True)
    # Fixed: restic finds the last snapshot by host and paths, and a new name means a full read.
    host = models.TextField(_("host"), null=True)
    paths = models.JSONField(_("paths"), null=True)
    excludes = models.JSONField(_("excludes"), db_default=[], blank=True)
    hooks_before = models.JSONField(_("commands before"), db_default=[], blank=True)  # names that the agent defines
    hooks_after = models.JSONField(_("commands after"), db_default=[], blank=True)
    allow_empty = models.BooleanField(_("may be empty"), db_default=False)
    retired_at = models.DateTimeField(_("retired"), null=True, editable=False)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "backup_job_sources"
        db_table_comment = "One source of a backup job on one agent."
        verbose_name = _("backup source")
        verbose_name_plural = _("backup sources")
        constraints = [
            # A source of a job without one of these cannot be backed up.
            models.CheckConstraint(
                name="backup_job_sources_whole",
                condition=Q(job__isnull=True)
                | Q(agent__isnull=False, name__isnull=False, host__isnull=False, paths__isnull=False),
            ),
            # A path that depends on where the runner was started backs up something else tomorrow.
            models.CheckConstraint(
                name="backup_job_sources_paths_absolute",
                condition=Q(paths__isnull=True) | Q(JsonHolds("paths", _ARE_PATHS)),
            ),
            models.CheckConstraint(
                name="backup_job_sources_lists_of_texts",
                condition=Q(JsonHolds("excludes", _ARE_TEXTS))
                & Q(JsonHolds("hooks_before", _ARE_TEXTS))
                & Q(JsonHolds("hooks_after", _ARE_TEXTS)),
            ),
            # Two of one name cannot be told apart when somebody restores in a hurry.
            models.UniqueConstraint(
                name="backup_job_sources_name_key", fields=["job", "name"], condition=Q(retired_at__isnull=True)
            ),
        ]
        indexes = [
            models.Index(name="backup_job_sources_agent_idx", fields=["agent"], condition=Q(agent__isnull=False)),
        ]
        triggers = [
            Trigger(
                name="stays_where_it_is",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "OLD.job_id IS NOT NULL"
                    " AND (OLD.job_id IS DISTINCT FROM NEW.job_id OR OLD.agent_id IS DISTINCT FROM NEW.agent_id)"
                ),
                func="""
                    RAISE EXCEPTION 'A source keeps its job and its agent: retire %, and make another one.', OLD.id
                        USING ERRCODE = 'check_violation', CONSTRAINT = 'backup_job_sources_stays',
                        TABLE = 'backup_job_sources';
                """,
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name or str(self.id)[:8]
