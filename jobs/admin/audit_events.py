"""The audit trail: acts that changed no row, and acts of people with their reasons. Nobody edits it."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from jobs.models import AuditEvent

from .badges import moment
from .filters import TagFilter
from .governed import GovernedAdmin
from .searching import rows_about

PAGES = {"agent_jobs": "jobs_agentjob", "agent_tasks": "jobs_agenttask", "agents": "jobs_agent"}
SHOWN = 160  # characters of the details in the list


@admin.register(AuditEvent)
class AuditEventAdmin(GovernedAdmin):
    """A list to read."""

    list_display = ("when", "what", "actor", "subject", "reason", "more")
    rows_have_pages = False
    list_filter = (TagFilter,)
    search_fields = ("actor",)  # shows the field; rows_about does the work
    search_help_text = _("Who (whole name), or the id of a job, task or agent")
    ordering = ("-id",)
    sortable_by = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEvent], search_term: str
    ) -> tuple[QuerySet[AuditEvent], bool]:
        """Lines of a person or about an object."""
        return rows_about(queryset, search_term), False

    @admin.display(description=_("when"))
    def when(self, event: AuditEvent) -> str:
        """The time, in words."""
        return moment(event.at)

    @admin.display(description=_("what"))
    def what(self, event: AuditEvent) -> str:
        """The tag in words."""
        return event.get_tag_display()

    @admin.display(description=_("object"))
    def subject(self, event: AuditEvent) -> str:
        """What it is about, linked to its page."""
        label = f"{event.subject_table} {str(event.subject_id)[:8]}"
        page = PAGES.get(event.subject_table)
        if page is None:
            return label
        return format_html('<a href="{}">{}</a>', reverse(f"admin:{page}_change", args=[event.subject_id]), label)

    @admin.display(description=_("details"))
    def more(self, event: AuditEvent) -> str:
        """The beginning of the details."""
        said: dict[str, Any] = event.details if isinstance(event.details, dict) else {}
        shown = json.dumps(said, ensure_ascii=False) if said else ""
        return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"
