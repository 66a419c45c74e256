"""Backup tasks: the list and a page to read, with the same dialogs as jobs."""

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.engine.failure_classes import DEFAULT_POLICY
from jobs.models import AgentTask
from jobs.services import capabilities

from .badges import NOTHING, badge, moment, size, span
from .dialogs import LeasedActions, uuid_or_404
from .filters import AgentFilter, LatestFilter, TaskEndedFilter, TaskQueuedFilter, TaskStatusFilter, TaskTypeFilter
from .job_page import offered, pretty
from .searching import rows_like
from .timeline import timeline
from .what_next import limits, meaning, policy_lines, what_next, why_nobody


@admin.register(AgentTask)
class AgentTaskAdmin(LeasedActions):
    """Look at backup tasks and act on them through dialogs."""

    rows = AgentTask.objects
    list_display = ("name", "agent", "state", "try_number", "queued", "took", "amount")
    list_display_links = ("name",)
    list_filter = (TaskStatusFilter, TaskTypeFilter, LatestFilter, AgentFilter, TaskQueuedFilter, TaskEndedFilter)
    list_select_related = ("agent",)
    search_fields = ("id",)  # shows the field; rows_like does the work
    search_help_text = gettext_lazy("Id, or its beginning")
    ordering = (F("created_at").desc(), F("id").desc())
    sortable_by = ()
    fields = ()
    change_form_template = "agentstore/task_page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[AgentTask]:
        """Leave out what no list shows."""
        return AgentTask.objects.defer("task_payload", "details").order_by(*self.ordering)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AgentTask], search_term: str
    ) -> tuple[QuerySet[AgentTask], bool]:
        """Rows by id."""
        return rows_like(queryset, search_term), False

    @admin.display(description=gettext_lazy("task"))
    def name(self, task: AgentTask) -> str:
        """The type, and enough of the id to tell rows apart."""
        return str(task)

    @admin.display(description=gettext_lazy("status"))
    def state(self, task: AgentTask) -> str:
        """The status."""
        return badge(task.status, task.get_status_display())

    @admin.display(description=gettext_lazy("attempt"))
    def try_number(self, task: AgentTask) -> str:
        """Which attempt of how many."""
        return f"{task.attempt}/{max(task.attempt, task.max_attempts)}"

    @admin.display(description=gettext_lazy("created"))
    def queued(self, task: AgentTask) -> str:
        """When it was made, in words."""
        return moment(task.created_at)

    @admin.display(description=gettext_lazy("took"))
    def took(self, task: AgentTask) -> str:
        """How long the work took."""
        return span(task.completed_at - task.started_at) if task.completed_at and task.started_at else NOTHING

    @admin.display(description=gettext_lazy("processed"))
    def amount(self, task: AgentTask) -> str:
        """How much was read."""
        return size(task.bytes_processed)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a task; a POST has nothing to save."""
        self.check_view(request)
        task = AgentTask.objects.select_related("agent").filter(pk=uuid_or_404(object_id)).first()
        if task is None:
            raise Http404
        chain = list(AgentTask.objects.chain(task.chain_id)) or [task]
        names = offered(task, AgentTask.objects.all(), is_latest=chain[-1].pk == task.pk)
        context = {
            **self.admin_site.each_context(request),
            "title": str(task),
            "opts": self.opts,
            "task": task,
            "status": badge(task.status, task.get_status_display()),
            "meaning": meaning(task.failure_class),
            "nobody": why_nobody(capabilities.lacks([task]).get(task.pk)),
            "next": what_next(task, chain, DEFAULT_POLICY, now()),
            "policy": policy_lines(DEFAULT_POLICY, task.failure_class),
            "limits": limits(None, task, DEFAULT_POLICY),
            "facts": _facts(task),
            "chain": [
                {
                    "number": row.attempt, "url": self.page_of(row.pk), "is_shown": row.pk == task.pk,
                    "status": badge(row.status, row.get_status_display()), "when": moment(row.created_at),
                    "failure_class": row.failure_class or "",
                }
                for row in reversed(chain)
            ],
            "timeline": timeline(chain),
            "payload": pretty(task.task_payload),
            "details": pretty(task.details) if task.details else "",
            "actions": self.buttons(request, task, names),
            "agent_url": reverse("admin:jobs_agent_change", args=[task.agent_id])
            if request.user.has_perm("jobs.view_agent") else "",
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)


def _facts(task: AgentTask) -> list[tuple[str, Any]]:
    at = now()
    facts = [
        (_("Attempt"), _("%(n)d of %(max)d") % {"n": task.attempt, "max": max(task.attempt, task.max_attempts)}),
        (_("Created"), moment(task.created_at, at=at)),
        (_("Claimed"), moment(task.claimed_at, at=at) if task.claimed_at else ""),
        (_("Started"), moment(task.started_at, at=at) if task.started_at else ""),
        (_("Completed"), moment(task.completed_at, at=at) if task.completed_at else ""),
        (_("Last sign of life"), moment(task.heartbeat_at, at=at) if task.heartbeat_at else ""),
        (_("Not before"), moment(task.not_before, at=at) if task.not_before else ""),
        (_("Processed"), size(task.bytes_processed)),
        (_("Written"), size(task.bytes_written)),
        (_("Files"), task.files_processed),
        (_("Files skipped"), task.files_skipped),
        (_("Snapshot"), task.backup_id_in_repository or ""),
        (_("Error code"), task.error_code or ""),
        (_("Runner"), task.claimed_by or ""),
    ]
    return [(label, value) for label, value in facts if value != ""]
