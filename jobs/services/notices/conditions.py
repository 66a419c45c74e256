"""What can be wrong without a job that ends: silent agents, tokens about to expire, failing duties, missed times."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.metrics import SILENT_AFTER, is_silent
from jobs.models import (
    Agent,
    AgentToken,
    BackupJob,
    BackupJobSource,
    BackupRepository,
    Event,
    MaintenanceDuty,
    Schedule,
    ScheduleSlot,
    Uptime,
)
from jobs.models.agent_instances import is_cloned
from jobs.models.schedules import UNDONE

from . import backup_conditions as backups
from .condition import Condition

EXPIRING = timedelta(days=7)
SCHEDULE_LABEL = "schedule"
FAILING_AFTER = 3  # times in a row; a single one may be an outage of a moment


def standing_conditions(events: Iterable[Event]) -> Iterable[Condition]:
    """Everything of these events that is wrong now."""
    for event in events:
        yield from _SOURCES[event]()


def name_of_the_good(event: Event, key: str) -> str:
    """What to call something that is not wrong any more; empty where that is no news."""
    match event:
        case Event.TOKEN_EXPIRING:  # replaced or revoked
            return ""
        case Event.SCHEDULE_MISSED:
            live = Schedule.objects.filter(pk=UUID(key)).exclude(state=Schedule.State.RETIRED)
            return live.values_list("name", flat=True).first() or ""  # retired: nothing runs again
        case Event.BACKUP_OVERDUE | Event.DRILL_FAILED:  # retired: nothing is backed up again
            sources = BackupJobSource.objects.filter(pk=UUID(key), retired_at=None)
            named = sources.values_list("job__name", "name").first()
            return " / ".join(map(str, named)) if named else ""
        case Event.BACKUP_RUN_BAD:
            jobs = BackupJob.objects.filter(pk=UUID(key)).exclude(state=BackupJob.State.RETIRED)
            return jobs.values_list("name", flat=True).first() or ""
        case Event.REPOSITORY_DAMAGED:
            repositories = BackupRepository.objects.filter(pk=UUID(key), retired_at=None)
            return repositories.values_list("name", flat=True).first() or ""
        case _:
            return key


def _silent() -> Iterable[Condition]:
    # After an outage everybody looks silent for a while: nobody could be heard.
    heard = Uptime.objects.filter(up_since__lt=Now() - SILENT_AFTER).exists()
    active = Q(state=Agent.State.ACTIVE) | Q(state_until__lte=Now())
    # One that was never heard is not installed yet.
    for agent in Agent.objects.filter(is_silent(), active, last_seen_at__isnull=False).order_by("principal_key"):
        yield Condition(
            event=Event.AGENT_SILENT, key=agent.principal_key, agent=agent.principal_key, is_certain=heard,
            title=_("Agent %(name)s is silent") % {"name": agent.principal_key},
            detail=_("Last seen on %(when)s UTC.") % {"when": f"{agent.last_seen_at:%Y-%m-%d %H:%M}"},
            path=reverse("admin:jobs_agent_change", args=[agent.pk]),
        )  # fmt: skip


def _cloned() -> Iterable[Condition]:
    for agent in Agent.objects.filter(is_cloned()).order_by("principal_key"):
        yield Condition(
            event=Event.AGENT_CLONED, key=agent.principal_key, agent=agent.principal_key,
            title=_("Two runners of one name act as %(name)s") % {"name": agent.principal_key},
            detail=_("Was its host copied together with its token? Enrol the copy as an agent of its own."),
            path=reverse("admin:jobs_agent_change", args=[agent.pk]),
        )  # fmt: skip


def _expiring() -> Iterable[Condition]:
    tokens = AgentToken.objects.filter(revoked_at=None, expires_at__gt=Now(), expires_at__lt=Now() + EXPIRING)
    for token in tokens.exclude(agent__state=Agent.State.DISABLED).select_related("agent").order_by("expires_at"):
        named = {
            "prefix": token.prefix,
            "agent": token.agent.principal_key,
            "when": f"{token.expires_at:%Y-%m-%d %H:%M}",
        }
        yield Condition(
            event=Event.TOKEN_EXPIRING, key=str(token.pk), agent=token.agent.principal_key,
            title=_("Token %(prefix)s… of %(agent)s expires on %(when)s UTC") % named,
            detail=_("Issue another one and hand it to the runner before."),
            path=reverse("admin:jobs_agent_change", args=[token.agent_id]),
        )  # fmt: skip


def _failing_duties() -> Iterable[Condition]:
    for duty in MaintenanceDuty.objects.filter(failures__gte=FAILING_AFTER).order_by("name"):
        yield Condition(
            event=Event.DUTY_FAILING, key=duty.name, agent="",
            title=_("Maintenance fails: %(name)s") % {"name": duty.name},
            detail=_("%(count)d times in a row: %(error)s") % {"count": duty.failures, "error": duty.last_error},
            path=reverse("admin:jobs_maintenanceduty_changelist"),
        )  # fmt: skip


def _missed() -> Iterable[Condition]:
    slots = ScheduleSlot.objects.filter(Q(outcome=ScheduleSlot.Outcome.ENQUEUED) | Q(reason__in=UNDONE))
    last = slots.filter(schedule=OuterRef("pk")).order_by("-due_at").values("pk")[:1]
    live = Schedule.objects.exclude(state=Schedule.State.RETIRED)
    # In two statements: as one, its plan depends on how many slots there are.
    lasts = [pk for pk in live.values_list(Subquery(last), flat=True) if pk]
    fared = ScheduleSlot.objects.filter(pk__in=lasts, reason__in=UNDONE)
    for slot in fared.select_related("schedule__agent").order_by("schedule__name"):
        schedule = slot.schedule
        said = {"when": f"{slot.due_at:%Y-%m-%d %H:%M}", "reason": slot.get_reason_display(), "note": slot.note}
        text = _("Due on %(when)s UTC: %(reason)s. %(note)s") if slot.note else _("Due on %(when)s UTC: %(reason)s.")
        labels = schedule.labels if isinstance(schedule.labels, dict) else {}
        yield Condition(
            event=Event.SCHEDULE_MISSED, key=str(schedule.pk), kind=schedule.kind,
            agent=schedule.agent.principal_key if schedule.agent else "",
            labels=labels | {SCHEDULE_LABEL: schedule.name},
            title=_("Schedule %(name)s enqueued no job") % {"name": schedule.name}, detail=text % said,
            path=reverse("admin:jobs_schedule_change", args=[schedule.pk]),
        )  # fmt: skip


_SOURCES: dict[Event, Callable[[], Iterable[Condition]]] = {
    Event.AGENT_SILENT: _silent,
    Event.AGENT_CLONED: _cloned,
    Event.TOKEN_EXPIRING: _expiring,
    Event.DUTY_FAILING: _failing_duties,
    Event.SCHEDULE_MISSED: _missed,
    Event.BACKUP_OVERDUE: backups.overdue,
    Event.BACKUP_RUN_BAD: backups.bad_runs,
    Event.REPOSITORY_DAMAGED: backups.damaged,
    Event.DRILL_FAILED: backups.drills,
}
