"""How the admin looks: names, colours, navigation, and the scripts that every page loads."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from agentstore.config import config


def environment(request: HttpRequest) -> list[Any]:
    """What the badge beside the user's name says, so that nobody cancels production by mistake."""
    return [_("Production"), "danger"] if config.production else [_("Development"), "info"]


def may(*permissions: str) -> Callable[[HttpRequest], bool]:
    """Show an entry of the navigation to those who hold any of the permissions."""
    return lambda request: any(request.user.has_perm(permission) for permission in permissions)


def _is_here(link: Any) -> Callable[[HttpRequest], bool]:
    """Highlight the one entry that leads closest to the page; unfold would highlight Jobs beside Enqueue."""

    def is_here(request: HttpRequest) -> bool:
        links = [str(entry["link"]) for group in UNFOLD["SIDEBAR"]["navigation"] for entry in group["items"]]
        overview = str(reverse_lazy("admin:index"))
        above = [one for one in links if request.path.startswith(one) and one != overview] or [overview]
        closest = max(above, key=len)
        return str(link) == closest and (closest != overview or request.path == overview)

    return is_here


def _entry(title: Any, icon: str, route: str, *permissions: str) -> dict[str, Any]:
    link = reverse_lazy(f"admin:{route}")
    entry: dict[str, Any] = {"title": title, "icon": icon, "link": link, "active": _is_here(link)}
    return entry | {"permission": may(*permissions)} if permissions else entry


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "agentstore",
    "SITE_HEADER": "agentstore",
    "SITE_SYMBOL": "inventory_2",
    "SITE_URL": None,
    "SITE_FAVICONS": [{
        "rel": "icon", "type": "image/svg+xml", "href": lambda request: static("agentstore/favicon.svg"),
    }],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": False,
    "ENVIRONMENT": "agentstore.admin_look.environment",
    "DASHBOARD_CALLBACK": "jobs.admin.front_page.with_overview",
    "BORDER_RADIUS": "6px",
    "STYLES": [lambda request: static("agentstore/admin.css")],
    "SCRIPTS": [
        lambda request: static("agentstore/unfold-csp.js"),
        lambda request: static("agentstore/live.js"),
    ],
    "COLORS": {
        "primary": {
            "50": "oklch(97.7% .014 237)",
            "100": "oklch(95.1% .026 237)",
            "200": "oklch(90.1% .058 231)",
            "300": "oklch(82.8% .111 230)",
            "400": "oklch(72.5% .13 233)",
            "500": "oklch(62.5% .14 238)",
            "600": "oklch(52.8% .135 243)",
            "700": "oklch(46.5% .12 243)",
            "800": "oklch(40.5% .1 241)",
            "900": "oklch(35.5% .085 241)",
            "950": "oklch(27.5% .063 243)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "command_search": False,
        "show_all_applications": False,
        "navigation": [
            {"items": [_entry(_("Overview"), "monitoring", "index")]},
            {
                "title": _("Work"),
                "items": [
                    _entry(_("Jobs"), "list_alt", "jobs_agentjob_changelist", "jobs.view_agentjob"),
                    _entry(_("Trends"), "insights", "jobs_agentjob_trends", "jobs.view_agentjob"),
                    _entry(_("Enqueue"), "add_task", "jobs_agentjob_add", "jobs.add_agentjob"),
                    _entry(_("Schedules"), "event_repeat", "jobs_schedule_changelist", "jobs.view_schedule"),
                ],
            },
            {
                "title": _("Backups"),
                "items": [
                    _entry(_("Backup jobs"), "backup", "jobs_backupjob_changelist", "jobs.view_backupjob"),
                    _entry(_("Sources"), "folder", "jobs_backupjobsource_changelist", "jobs.view_backupjobsource"),
                    _entry(_("Backup runs"), "play_circle", "jobs_backupjobrun_changelist", "jobs.view_backupjobrun"),
                    _entry(_("Backup tasks"), "checklist", "jobs_agenttask_changelist", "jobs.view_agenttask"),
                    _entry(
                        _("Snapshots"), "photo_library", "jobs_backupsnapshot_changelist", "jobs.view_backupsnapshot"
                    ),
                    _entry(
                        _("Repositories"), "database", "jobs_backuprepository_changelist", "jobs.view_backuprepository"
                    ),
                ],
            },
            {
                "title": _("Governance"),
                "items": [
                    _entry(_("Agents"), "smart_toy", "jobs_agent_changelist", "jobs.view_agent"),
                    _entry(
                        _("Enrolment codes"), "add_link", "jobs_enrolmentcode_changelist", "jobs.view_enrolmentcode"
                    ),
                    _entry(_("GitHub"), "hub", "jobs_githubtrust_changelist", "jobs.view_githubtrust"),
                    _entry(_("Job kinds"), "category", "jobs_jobkind_changelist", "jobs.view_jobkind"),
                    _entry(_("Targets"), "my_location", "jobs_target_changelist", "jobs.view_target"),
                    _entry(
                        _("Maintenance"), "autorenew", "jobs_maintenanceduty_changelist", "jobs.view_maintenanceduty"
                    ),
                    _entry(_("Audit trail"), "history", "jobs_auditevent_changelist", "jobs.view_auditevent"),
                ],
            },
            {
                "title": _("Notices"),
                "items": [
                    _entry(_("Outbox"), "outbox", "jobs_notice_changelist", "jobs.view_notice"),
                    _entry(_("Rules"), "notifications", "jobs_noticerule_changelist", "jobs.view_noticerule"),
                    _entry(_("Channels"), "campaign", "jobs_noticechannel_changelist", "jobs.view_noticechannel"),
                ],
            },
            {
                "title": _("People"),
                "items": [
                    _entry(_("Users"), "person", "auth_user_changelist", "auth.view_user"),
                    _entry(_("Groups"), "group", "auth_group_changelist", "auth.view_group"),
                ],
            },
        ],
    },
}  # fmt: skip
