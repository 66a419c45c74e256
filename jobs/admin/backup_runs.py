"""Backup runs: each launch of a backup job and each restore, with what came of every source."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.engine.errors import EngineRefusal
from jobs.models import AgentTask, BackupJobRun
from jobs.services import capabilities
from jobs.services.backups import launching
from jobs.services.errors import Invalid, NotFound, Refusal

from .backup_filters import BackupJobFilter, BadRunFilter, RunKindFilter, RunLaunchedFilter, RunStatusFilter
from .badges import NOTHING, badge, moment, size, span
from .dialogs import ReasonForm, ask_again, buttons_of, dialog, dialog_action, to, uuid_or_404
from .governed import GovernedAdmin
from .job_page import pretty, text
from .restore_facts import restore_facts
from .timeline import acts_on
from .what_next import meaning, why_nobody

MAX_ITEMS = 50  # of one source; a runner reports no more unless it is told to
OPEN = (BackupJobRun.Status.PENDING, BackupJobRun.Status.RUNNING)
RETRYABLE = (BackupJobRun.Status.FAILED, BackupJobRun.Status.PARTIAL_FAILURE)
CANCEL = dialog(
    gettext_lazy("Cancel this run?"),
    gettext_lazy("What waits is cancelled at once. Running agents are asked to stop with their next heartbeat."),
    gettext_lazy("Cancel run"),
)
RETRY = dialog(
    gettext_lazy("Retry the failed sources?"),
    gettext_lazy("The run opens again, with a new attempt of each source that failed or lacks files."),
    gettext_lazy("Retry"),
)


@admin.register(BackupJobRun)
class BackupJobRunAdmin(GovernedAdmin):
    """Look at runs, cancel them, and try failed sources again."""

    list_display = ("name", "of_job", "state", "launched", "cause", "came", "files_processed", "skipped", "amount")
    list_display_links = ("name",)
    list_filter = (RunStatusFilter, BadRunFilter, RunKindFilter, BackupJobFilter, RunLaunchedFilter)
    list_select_related = ("job",)
    ordering = (F("created_at").desc(), F("id").desc())
    sortable_by = ()
    fields = ()
    actions_detail = ("cancel", "retry")
    change_form_template = "agentstore/backup_run_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons, and refreshes them."""
        return []

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may cancel runs."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.cancel_backupjobrun")

    def has_retry_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may try failed sources again."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.retry_backupjobrun")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BackupJobRun]:
        """Leave out what no list shows."""
        return BackupJobRun.objects.defer("definition").order_by(*self.ordering)

    @admin.display(description=gettext_lazy("run"))
    def name(self, run: BackupJobRun) -> str:
        """The kind, and enough of the id to tell rows apart."""
        return str(run)

    @admin.display(description=gettext_lazy("backup job"))
    def of_job(self, run: BackupJobRun) -> str:
        """The job, which leads to its page."""
        if run.job is None:
            return NOTHING
        return format_html('<a href="{}">{}</a>', reverse("admin:jobs_backupjob_change", args=[run.job.pk]), run.job)

    @admin.display(description=gettext_lazy("status"))
    def state(self, run: BackupJobRun) -> str:
        """The status."""
        return badge(run.status, run.get_status_display())

    @admin.display(description=gettext_lazy("launched"))
    def launched(self, run: BackupJobRun) -> str:
        """When it was launched."""
        return moment(run.created_at)

    @admin.display(description=gettext_lazy("launched by"))
    def cause(self, run: BackupJobRun) -> str:
        """What launched it."""
        return str(run.get_trigger_display())

    @admin.display(description=gettext_lazy("sources"))
    def came(self, run: BackupJobRun) -> str:
        """How many sources ended well, of how many."""
        return f"{run.sources_succeeded}/{run.sources_total}"

    @admin.display(description=gettext_lazy("skipped"))
    def skipped(self, run: BackupJobRun) -> str:
        """How many files could not be read: at least, since a locked folder counts as one."""
        return _skipped(run.files_skipped)

    @admin.display(description=gettext_lazy("processed"))
    def amount(self, run: BackupJobRun) -> str:
        """How much was read."""
        return size(run.bytes_processed)

    def get_urls(self) -> list[URLPattern]:
        """Add what the page polls."""
        guarded = self.admin_site.admin_view
        part = path("<path:object_id>/part/", guarded(self.part_view), name="jobs_backupjobrun_part")
        return [part, *super().get_urls()]

    def part_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of the page that refreshes itself."""
        self.check_view(request)
        return render(request, "agentstore/backup_run_part.html", self._context(request, self._run(object_id)))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a run; a POST has nothing to save."""
        self.check_view(request)
        run = self._run(object_id)
        context = {
            **self.admin_site.each_context(request),
            **self._context(request, run),
            "title": f"{run.job}: {run}" if run.job else str(run),
            "original": run,
            "opts": self.opts,
            "media": self.media,
            "part_url": reverse("admin:jobs_backupjobrun_part", args=[run.pk]),
        }
        return TemplateResponse(request, self.change_form_template, context)

    @dialog_action(
        description=gettext_lazy("Cancel"), icon="cancel", url_path="cancel", permission="cancel", asked=CANCEL
    )
    def cancel(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Cancel every task of the run, or ask its agent to stop."""
        return self._act(
            request,
            CANCEL,
            form,
            object_id,
            launching.cancel_run,
            _("Cancelled. An agent at work stops at its next heartbeat."),
        )

    @dialog_action(
        description=gettext_lazy("Retry failed sources"), icon="replay", url_path="retry", permission="retry",
        asked=RETRY,
    )  # fmt: skip
    def retry(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Try the sources again that failed or lack files."""
        return self._act(request, RETRY, form, object_id, launching.retry_failed_sources, _("New attempts wait now."))

    def _act(
        self,
        request: HttpRequest,
        asked: dict[str, Any],
        form: ReasonForm,
        object_id: str,
        service: Callable[..., Any],
        done: str,
    ) -> HttpResponse:
        run_id = uuid_or_404(object_id)
        try:
            service(run_id=run_id, by=request.user.get_username(), reason=form.cleaned_data["reason"])
            messages.success(request, done)
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            if any(problem.pointer == "/reason" for problem in refusal.problems):
                return ask_again(request, asked, form, refusal)
            messages.error(request, " ".join(problem.message for problem in refusal.problems))
        except (Refusal, EngineRefusal) as refusal:
            messages.error(request, str(refusal))
        return to(request, reverse("admin:jobs_backupjobrun_change", args=[run_id]))

    def _context(self, request: HttpRequest, run: BackupJobRun) -> dict[str, Any]:
        offered = []
        if run.status in OPEN and run.cancel_requested_at is None and self.has_cancel_permission(request):
            offered.append("cancel")
        if run.status in RETRYABLE and self.has_retry_permission(request):
            offered.append("retry")
        return _context(run, request) | {"actions": buttons_of(self, run, offered), "timeline": acts_on([run.pk])}

    def _run(self, object_id: str) -> BackupJobRun:
        run = BackupJobRun.objects.select_related("job").filter(pk=uuid_or_404(object_id)).first()
        if run is None:
            raise Http404
        return run


def _context(run: BackupJobRun, request: HttpRequest) -> dict[str, Any]:
    """What the refreshing part shows."""
    at = now()
    rows = AgentTask.objects.filter(job_run=run).latest_attempts().select_related("agent", "job_source")
    tasks = list(rows.order_by("job_source__name", "created_at"))
    lacking = capabilities.lacks(tasks)
    sees_tasks = request.user.has_perm("jobs.view_agenttask")
    return {
        "run": run,
        "status": badge(run.status, run.get_status_display()),
        "is_live": run.status in OPEN,
        "job_url": reverse("admin:jobs_backupjob_change", args=[run.job.pk]) if run.job else "",
        "facts": _facts(run, at) + restore_facts(run.definition, tasks[-1].details if tasks else None),
        "tasks": [_task(task, at, lacking.get(task.pk), sees_tasks=sees_tasks) for task in tasks],
        "definition": pretty(run.definition),
    }


def _facts(run: BackupJobRun, at: datetime) -> list[tuple[str, Any]]:
    took = (run.completed_at or at) - run.started_at if run.started_at else None
    facts = [
        (_("Launched"), moment(run.created_at, at=at)),
        (_("Launched by"), run.created_by or ""),
        (_("How"), run.get_trigger_display()),
        (_("Due"), moment(run.scheduled_for, at=at) if run.scheduled_for else ""),
        (_("Started"), moment(run.started_at, at=at) if run.started_at else ""),
        (_("Completed"), moment(run.completed_at, at=at) if run.completed_at else ""),
        (_("Took") if run.completed_at else _("Runs for"), span(took) if took else ""),
        (_("Sources"), _sources(run)),
        (_("Files"), run.files_processed),
        (_("Files skipped"), _skipped(run.files_skipped)),
        (_("Processed"), size(run.bytes_processed)),
        (_("Written"), size(run.bytes_written)),
        (_("Times that fell into it"), run.slots_collapsed or ""),
        (_("Reason"), run.reason),
    ]
    return [(label, value) for label, value in facts if value != ""]


def _sources(run: BackupJobRun) -> str:
    counts = [
        (run.sources_succeeded, _("%d succeeded")),
        (run.sources_partial, _("%d partial")),
        (run.sources_failed, _("%d failed")),
        (run.sources_cancelled, _("%d cancelled")),
    ]
    told = ", ".join(words % number for number, words in counts if number)
    return f"{run.sources_total}: {told}" if told else str(run.sources_total)


def _skipped(number: int) -> str:
    return _("at least %d") % number if number else "0"


def _task(task: AgentTask, at: datetime, lack: capabilities.Lack | None, *, sees_tasks: bool) -> dict[str, Any]:
    """What one source came to, by the latest attempt; reports are shown as whatever they hold."""
    details = task.details if isinstance(task.details, dict) else {}
    items = details.get("items")
    warnings = details.get("warnings")
    return {
        "url": reverse("admin:jobs_agenttask_change", args=[task.pk]) if sees_tasks else "",
        "id": task.pk, "source": task.job_source, "agent": task.agent,
        "status": badge(task.status, task.get_status_display()),
        "attempt": f"{task.attempt}/{max(task.attempt, task.max_attempts)}",
        "files": task.files_processed, "size": size(task.bytes_processed), "written": size(task.bytes_written),
        "skipped": _skipped(task.files_skipped), "is_short": task.files_skipped > 0,
        "snapshot": task.backup_id_in_repository or "",
        "meaning": meaning(task.failure_class), "error": task.error_message or "",
        "code": task.error_code or "",
        "waits": moment(task.not_before, at=at)
        if task.status == task.Status.PENDING and task.not_before and task.not_before > at else "",
        "nobody": why_nobody(lack),
        "progress": _progress(task, at),
        "items": [_item(item) for item in items[:MAX_ITEMS]] if isinstance(items, list) else [],
        "warnings": [text(warning) for warning in warnings[:MAX_ITEMS]] if isinstance(warnings, list) else [],
    }  # fmt: skip


def _item(item: Any) -> str:
    """A skipped item: its path, and why."""
    if not isinstance(item, dict):
        return text(item)
    return ": ".join(text(item[name]) for name in ("path", "error") if item.get(name)) or text(item)


def _progress(task: AgentTask, at: datetime) -> dict[str, Any] | None:
    """How far a running task is, as it last said; none for others."""
    said = task.progress
    if task.status != AgentTask.Status.RUNNING or not isinstance(said, dict):
        return None
    done, total = _whole(said.get("done")), _whole(said.get("total"))
    seconds = (at - task.started_at).total_seconds() if task.started_at else 0
    return {
        "percent": min(100, done * 100 // total) if total else 0, "done": size(done), "total": size(total),
        "rate": size(int(done / seconds)) if seconds >= 1 else "",
        "current": text(said.get("current") or ""),
    }  # fmt: skip


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0
