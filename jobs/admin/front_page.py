"""The front page: is anything wrong? Every number leads to its list."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Case, Count, Min, Q, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import localize
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.metrics import is_silent
from jobs.models import Agent, AgentJob, AgentTask, BackupJobSource, BackupRepository, Notice, ScheduleSlot
from jobs.models.agent_instances import is_cloned
from jobs.models.backup_freshness import bad_last_runs, failed_drills, with_freshness
from jobs.services.acknowledging import is_known, is_wrong

from .badges import badge, in_words, moment, span
from .duties import Maintenance
from .front_charts import charts

RECENT = timedelta(hours=24)
DEAD_FOR = timedelta(days=7)
SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number with its meaning, its list, and whether it is a worry."""

    label: str
    value: Any
    note: Any
    url: str
    tone: str
    icon: str


def with_overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add what this person may see; fifteen queries at most."""
    user, at = request.user, now()
    tiles: list[Tile] = []
    if user.has_perm("jobs.view_agentjob"):
        found = charts()
        tiles += _job_tiles(at, found.wrong_a_day)
        context["charts"] = found.drawn
        context["attention"] = _attention()
        context["running"] = _running(at)
    if user.has_perm("jobs.view_agent"):
        tiles += _agent_tiles()
    if user.has_perm("jobs.view_scheduleslot"):
        tiles.append(_schedule_tile())
    if user.has_perm("jobs.view_agenttask"):
        tiles += _task_tiles()
    if user.has_perm("jobs.view_backupjob"):
        tiles += _backup_tiles()
    if user.has_perm("jobs.view_notice"):
        tiles.append(_notice_tile())
    if user.is_staff:
        maintenance = Maintenance.seen(at)
        tiles.append(_loop_tile(user, maintenance))
        context["duties"] = maintenance.rows if user.has_perm("jobs.view_maintenanceduty") else None
    context["tiles"] = tiles
    context["worries"] = [tile for tile in tiles if tile.tone == "bad" or tile.tone == "warn"]
    return context


def _list(model: str, **query: str) -> str:
    url = reverse(f"admin:jobs_{model}_changelist")
    return f"{url}?{'&'.join(f'{key}={value}' for key, value in query.items())}" if query else url


def _job_tiles(at: Any, wrong_a_day: float) -> list[Tile]:
    waiting = AgentJob.objects.waiting().aggregate(number=Count("id"), oldest=Min("queued_at"))
    running = AgentJob.objects.leased().aggregate(
        number=Count("id"), stopping=Count("id", filter=Q(cancel_requested_at__isnull=False))
    )
    ended = (
        AgentJob.objects.latest_attempts()
        .filter(finished_at__gt=Now() - RECENT)
        # Looked up for what is wrong only: most of what ended is good.
        .annotate(is_known=Case(When(is_wrong(), then=is_known()), default=Value(False)))
        .aggregate(
            passed=Count("id", filter=Q(verdict="pass")),
            failed=Count("id", filter=Q(status="failed", is_known=False)),
            fail=Count("id", filter=Q(verdict="fail", is_known=False)),
            risk=Count("id", filter=Q(verdict="risk", is_known=False)),
            known=Count("id", filter=Q(is_known=True)),
            wrong=Count("id", filter=is_wrong()),
        )
    )
    oldest = waiting["oldest"]
    day = {"latest": "1", "ended": "24h"}
    new = {**day, "news": "new"}
    return [
        Tile(
            label=_("Queued"), value=waiting["number"], icon="schedule", tone="quiet",
            note=_("oldest %s") % in_words(oldest, at) if oldest else _("nothing waits"),
            url=_list("agentjob", status="queued"),
        ),
        Tile(
            label=_("Running"), value=running["number"], icon="progress_activity",
            tone="busy" if running["number"] else "quiet",
            note=_("%d asked to stop") % running["stopping"] if running["stopping"] else _("now"),
            url=_list("agentjob", status="running"),
        ),
        Tile(
            label=_("Failed"), value=ended["failed"], icon="error", tone="bad" if ended["failed"] else "quiet",
            note=_("new, no verdict, last 24 hours"), url=_list("agentjob", status="failed", **new),
        ),
        Tile(
            label=_("Verdict fail"), value=ended["fail"], icon="cancel", tone="bad" if ended["fail"] else "quiet",
            note=_("new, last 24 hours"), url=_list("agentjob", verdict="fail", **new),
        ),
        Tile(
            label=_("Verdict risk"), value=ended["risk"], icon="warning", tone="warn" if ended["risk"] else "quiet",
            note=_("new, last 24 hours"), url=_list("agentjob", verdict="risk", **new),
        ),
        Tile(
            label=_("Known failures"), value=ended["known"], icon="notifications_paused", tone="quiet",
            note=_("acknowledged or muted, last 24 hours"), url=_list("agentjob", news="known", **day),
        ),
        Tile(
            label=_("Failures and risks"), value=ended["wrong"], icon=_trend(ended["wrong"], wrong_a_day), tone="quiet",
            note=_("last 24 hours; %s a day in the week before yesterday") % localize(round(wrong_a_day, 1)),
            url=_list("agentjob", news="wrong", **day),
        ),
        Tile(
            label=_("Verdict pass"), value=ended["passed"], icon="check_circle",
            tone="good" if ended["passed"] else "quiet", note=_("last 24 hours"),
            url=_list("agentjob", verdict="pass", **day),
        ),
    ]  # fmt: skip


def _trend(today: int, before: float) -> str:
    """The icon of more, fewer, or about as many: within a fifth, and within one."""
    if abs(today - before) <= max(1, before / 5):
        return "trending_flat"
    return "trending_up" if today > before else "trending_down"


def _agent_tiles() -> list[Tile]:
    agents = Agent.objects.aggregate(
        known=Count("id"),
        silent=Count("id", filter=is_silent()),
        cloned=Count("id", filter=is_cloned()),
        unregistered=Count("id", filter=Q(registered_at=None)),
        held=Count("id", filter=Q(state__in=["paused", "draining"])),
    )
    return [
        Tile(
            label=_("Silent agents"), value=agents["silent"], icon="signal_disconnected",
            tone="bad" if agents["silent"] else "quiet", note=_("resident, not heard for 3 minutes"),
            url=_list("agent", attention="silent"),
        ),
        Tile(
            label=_("Cloned agents"), value=agents["cloned"], icon="content_copy",
            tone="bad" if agents["cloned"] else "quiet", note=_("two runners of one name at once"),
            url=_list("agent", attention="cloned"),
        ),
        Tile(
            label=_("Unregistered agents"), value=agents["unregistered"], icon="help",
            tone="warn" if agents["unregistered"] else "quiet", note=_("named by SQL only, without a token"),
            url=_list("agent", attention="unregistered"),
        ),
        Tile(
            label=_("Paused agents"), value=agents["held"], icon="pause_circle", tone="quiet",
            note=ngettext(
                "paused or draining, of %d agent", "paused or draining, of %d agents", agents["known"]
            ) % agents["known"],
            url=_list("agent", state="paused") + "&state=draining",
        ),
    ]  # fmt: skip


def _schedule_tile() -> Tile:
    without = ScheduleSlot.objects.filter(due_at__gt=Now() - RECENT, outcome__in=["missed", "refused"]).count()
    return Tile(
        label=_("Missed times"), value=without, icon="event_busy", tone="warn" if without else "quiet",
        note=_("of schedules, last 24 hours"),
        url=_list("scheduleslot", outcome="missed", due="24h") + "&outcome=refused",
    )  # fmt: skip


def _task_tiles() -> list[Tile]:
    failed = AgentTask.objects.latest_attempts().filter(completed_at__gt=Now() - RECENT, status="failed").count()
    return [
        Tile(
            label=_("Failed backups"), value=failed, icon="backup", tone="bad" if failed else "quiet",
            note=_("last 24 hours"), url=_list("agenttask", status="failed", latest="1", ended="24h"),
        )
    ]  # fmt: skip


def _backup_tiles() -> list[Tile]:
    overdue = (
        with_freshness(BackupJobSource.objects.filter(job__isnull=False))
        .filter(is_overdue=True)
        .values("job")
        .distinct()
        .count()
    )
    bad = bad_last_runs().count()
    damaged = BackupRepository.objects.filter(damaged_at__isnull=False, retired_at=None).count()
    drills = failed_drills().count()
    return [
        Tile(
            label=_("Overdue backups"), value=overdue, icon="alarm", tone="bad" if overdue else "quiet",
            note=_("jobs with a source that was not backed up in time"), url=_list("backupjob", freshness="overdue"),
        ),
        Tile(
            label=_("Bad backup runs"), value=bad, icon="cloud_off", tone="bad" if bad else "quiet",
            note=_("jobs whose latest run was not whole"), url=_list("backupjobrun", attention="bad"),
        ),
        Tile(
            label=_("Damaged repositories"), value=damaged, icon="heart_broken", tone="bad" if damaged else "quiet",
            note=_("nothing is removed from them"), url=_list("backuprepository", attention="damaged"),
        ),
        Tile(
            label=_("Failed restore drills"), value=drills, icon="settings_backup_restore",
            tone="bad" if drills else "quiet",
            note=_("sources whose latest drill failed"), url=_list("backupjobsource", drill="failed"),
        ),
    ]  # fmt: skip


def _notice_tile() -> Tile:
    dead = Notice.objects.filter(status=Notice.Status.DEAD, created_at__gt=Now() - DEAD_FOR).count()
    return Tile(
        label=_("Notices given up"), value=dead, icon="unsubscribe", tone="bad" if dead else "quiet",
        note=_("never arrived, last 7 days"), url=_list("notice", status="dead", created="7d"),
    )  # fmt: skip


def _loop_tile(user: Any, maintenance: Maintenance) -> Tile:
    is_bad = maintenance.trouble != ""
    return Tile(
        label=_("Maintenance"), icon="sync_problem" if is_bad else "autorenew", tone="bad" if is_bad else "good",
        value=maintenance.word, note=maintenance.trouble or maintenance.note,
        url=_list("maintenanceduty") if user.has_perm("jobs.view_maintenanceduty") else "",
    )  # fmt: skip


def _row(job: AgentJob, when: Any) -> dict[str, Any]:
    return {
        "url": reverse("admin:jobs_agentjob_change", args=[job.pk]),
        "name": str(job),
        "agent": job.agent_id,
        "badge": badge(job.verdict, job.get_verdict_display()) if job.verdict else badge(job.status),
        "why": job.error or "",
        "when": when,
    }


def _attention() -> list[dict[str, Any]]:
    rows = AgentJob.objects.latest_attempts().filter(is_wrong(), ~is_known(), finished_at__gt=Now() - RECENT)
    rows = rows.order_by("-finished_at")
    return [_row(job, moment(job.finished_at)) for job in rows.defer("spec", "results")[:SHOWN]]


def _running(at: Any) -> list[dict[str, Any]]:
    rows = AgentJob.objects.leased().order_by("started_at").defer("spec", "results")[:SHOWN]
    return [_row(job, span(at - job.started_at) if job.started_at else "") for job in rows]
