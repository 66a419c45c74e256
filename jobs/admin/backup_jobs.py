"""Backup jobs: which sources go where, and how fresh the last good backup of each is."""

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, OuterRef, Prefetch, QuerySet, Subquery, Value, When
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from unfold.forms import BaseDialogForm

from jobs.models import BackupJob, BackupJobRun, BackupJobSource
from jobs.models.backup_freshness import failed_drills, with_freshness, with_verification
from jobs.services.backups import launching, registry
from jobs.services.errors import Invalid, NotFound, Refusal, RunActive

from .backup_filters import BackupJobStateFilter, OverdueFilter, RepositoryFilter
from .backup_forms import BackupJobForm, form_page, show_at_fields
from .backup_schedules import next_times, schedules_of, shown_schedules
from .backup_snapshots import verification
from .backup_sources import source_state
from .badges import NOTHING, badge, moment, size, span
from .dialogs import ReasonForm, ask_again, buttons_of, dialog, dialog_action, to, uuid_or_404
from .governed import GovernedAdmin
from .job_page import text
from .timeline import acts_on

RECENT_RUNS = 15
KEPT = {
    "keep_last": gettext_lazy("the last %d"),
    "keep_hourly": gettext_lazy("%d hourly"),
    "keep_daily": gettext_lazy("%d daily"),
    "keep_weekly": gettext_lazy("%d weekly"),
    "keep_monthly": gettext_lazy("%d monthly"),
    "keep_yearly": gettext_lazy("%d yearly"),
}

RUN = dialog(
    gettext_lazy("Run this backup job now?"),
    gettext_lazy("Each of its sources is backed up as soon as its agent is free."),
    gettext_lazy("Run now"),
    form=BaseDialogForm,
)
PAUSE = dialog(
    gettext_lazy("Pause this backup job?"),
    gettext_lazy("Nothing of it is overdue while it rests. It can still be run by hand."),
    gettext_lazy("Pause"),
)
RESUME = dialog(
    gettext_lazy("Resume this backup job?"), gettext_lazy("Its sources can be overdue again."), gettext_lazy("Resume")
)
RETIRE = dialog(
    gettext_lazy("Retire this backup job?"),
    gettext_lazy("It never runs again and cannot come back. Its snapshots stay, and can be restored."),
    gettext_lazy("Retire"),
)


@admin.register(BackupJob)
class BackupJobAdmin(GovernedAdmin):
    """Look at backup jobs, define them, run and pause them."""

    show_add_link = True
    list_display = ("name", "into", "shown_state", "number", "last_good", "freshness", "last_run")
    list_display_links = ("name",)
    list_filter = (BackupJobStateFilter, OverdueFilter, RepositoryFilter)
    search_fields = ("name__icontains",)
    search_help_text = gettext_lazy("Words of the name")
    sortable_by = ()
    fields = ()
    actions_detail = ("run", "pause", "resume", "retire")
    change_form_template = "agentstore/backup_job_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may define backup jobs."""
        return request.user.has_perm("jobs.add_backupjob")

    def has_edit_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may change, pause and retire backup jobs."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_backupjob")

    def has_run_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may run a backup job by hand."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.run_backupjob")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BackupJob]:
        """Jobs with their living sources and what came of the latest backup; the retired ones last."""
        latest = BackupJobRun.objects.filter(job=OuterRef("pk"), kind=BackupJobRun.Kind.BACKUP).order_by("-created_at")
        living = with_freshness(BackupJobSource.objects.filter(retired_at=None).order_by("name"))
        is_retired = Case(When(state=BackupJob.State.RETIRED, then=Value(1)), default=Value(0))
        return (
            BackupJob.objects.select_related("repository")
            .prefetch_related(Prefetch("sources", queryset=living, to_attr="living"))
            .annotate(came=Subquery(latest.values("status")[:1]), came_of=Subquery(latest.values("pk")[:1]))
            .order_by(is_retired, "name", "pk")
        )

    @admin.display(description=gettext_lazy("repository"))
    def into(self, job: BackupJob) -> str:
        """The repository, which leads to its page."""
        url = reverse("admin:jobs_backuprepository_change", args=[job.repository_id])
        return format_html('<a href="{}">{}</a>', url, job.repository)

    @admin.display(description=gettext_lazy("state"))
    def shown_state(self, job: BackupJob) -> str:
        """Active, paused or retired."""
        return badge(job.state, job.get_state_display())

    @admin.display(description=gettext_lazy("sources"))
    def number(self, job: BackupJob) -> str:
        """How many sources it has."""
        return str(len(_living(job)))

    @admin.display(description=gettext_lazy("last good backup"))
    def last_good(self, job: BackupJob) -> str:
        """The last good backup of the source that is worst off."""
        found = [source.last_good_at for source in _living(job)]
        if not found:
            return NOTHING
        return _("never") if None in found else moment(min(found))

    @admin.display(description=gettext_lazy("freshness"))
    def freshness(self, job: BackupJob) -> str:
        """Whether any source is overdue."""
        late = sum(1 for source in _living(job) if source.is_overdue)
        if late:
            return badge("overdue", ngettext("%d source overdue", "%d sources overdue", late) % late)
        return badge("on time", _("on time")) if job.state == job.State.ACTIVE and _living(job) else NOTHING

    @admin.display(description=gettext_lazy("latest run"))
    def last_run(self, job: BackupJob) -> str:
        """What the latest backup came to, which leads to its page."""
        run: Any = job  # the annotations
        if run.came_of is None:
            return NOTHING
        url = reverse("admin:jobs_backupjobrun_change", args=[run.came_of])
        return format_html('<a href="{}">{}</a>', url, badge(run.came, BackupJobRun.Status(run.came).label))

    def get_urls(self) -> list[URLPattern]:
        """Add the form of an existing job."""
        edit = path("<path:object_id>/edit/", self.admin_site.admin_view(self.edit_view), name="jobs_backupjob_edit")
        return [edit, *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Define a backup job."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = BackupJobForm(request.POST if request.method == "POST" else None, initial=BackupJobForm.values(None))
        if form.is_valid():
            try:
                made = registry.register_job(form.definition(), by=request.user.get_username())
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Created. Now add its sources."))
                return HttpResponseRedirect(reverse("admin:jobs_backupjob_change", args=[made]))
        return form_page(self, request, form, title=_("New backup job"), submit=_("Create"))

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a backup job."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        job = self._job(object_id)
        form = BackupJobForm(request.POST if request.method == "POST" else None, initial=BackupJobForm.values(job))
        if form.is_valid():
            try:
                registry.change_job(form.definition(), job_id=job.pk, by=request.user.get_username())
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Saved. It holds for runs from now on."))
                return HttpResponseRedirect(reverse("admin:jobs_backupjob_change", args=[job.pk]))
        return form_page(self, request, form, title=_("Change %s") % job, submit=_("Save"))

    @dialog_action(description=gettext_lazy("Run now"), icon="play_arrow", url_path="run", permission="run", asked=RUN)
    def run(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """Launch a run at once."""
        job_id = uuid_or_404(object_id)
        shown = reverse("admin:jobs_backupjob_change", args=[job_id])
        try:
            launched = launching.launch_backup(job_id=job_id, by=request.user.get_username())
        except NotFound:
            raise Http404 from None
        except RunActive as refusal:
            messages.error(request, str(refusal))
            if refusal.run_id:
                shown = reverse("admin:jobs_backupjobrun_change", args=[refusal.run_id])
        except Invalid as refusal:
            messages.error(request, " ".join(problem.message for problem in refusal.problems))
        except Refusal as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, _("Launched."))
            shown = reverse("admin:jobs_backupjobrun_change", args=[launched.run_id])
        return to(request, shown)

    @dialog_action(
        description=gettext_lazy("Pause"), icon="pause_circle", url_path="pause", permission="edit", asked=PAUSE
    )
    def pause(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Let it rest."""
        return self._become(request, PAUSE, form, object_id, BackupJob.State.PAUSED)

    @dialog_action(
        description=gettext_lazy("Resume"), icon="resume", url_path="resume", permission="edit", asked=RESUME
    )
    def resume(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """End the rest."""
        return self._become(request, RESUME, form, object_id, BackupJob.State.ACTIVE)

    @dialog_action(
        description=gettext_lazy("Retire"), icon="archive", url_path="retire", permission="edit", asked=RETIRE
    )
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """End it for good."""
        return self._become(request, RETIRE, form, object_id, BackupJob.State.RETIRED)

    def _become(
        self, request: HttpRequest, asked: dict[str, Any], form: ReasonForm, object_id: str, state: BackupJob.State
    ) -> HttpResponse:
        job_id = uuid_or_404(object_id)
        try:
            registry.set_job_state(
                job_id=job_id, state=state, by=request.user.get_username(), note=form.cleaned_data["reason"]
            )
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, asked, form, refusal)
        messages.success(request, _("It is %s now.") % state.label)
        return to(request, reverse("admin:jobs_backupjob_change", args=[job_id]))

    def _job(self, object_id: str) -> BackupJob:
        job = BackupJob.objects.select_related("repository").filter(pk=uuid_or_404(object_id)).first()
        if job is None:
            raise Http404
        return job

    def _offered(self, request: HttpRequest, job: BackupJob) -> list[str]:
        """The dialogs that the state and the permissions allow."""
        if job.state == BackupJob.State.RETIRED:
            return []
        rest = "pause" if job.state == BackupJob.State.ACTIVE else "resume"
        offered = ["run"] if self.has_run_permission(request) else []
        return [*offered, rest, "retire"] if self.has_edit_permission(request) else offered

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a job with its sources and its latest runs; a POST has nothing to save."""
        self.check_view(request)
        job = self._job(object_id)
        found = with_verification(with_freshness(job.sources.select_related("agent")))
        failed = dict(failed_drills().filter(job_source__job=job).values_list("job_source", "job_run"))
        sources = list(found.order_by(F("retired_at").asc(nulls_first=True), "name"))
        schedules, is_active = schedules_of(job), job.state == BackupJob.State.ACTIVE
        may_edit = self.has_edit_permission(request) and job.state != BackupJob.State.RETIRED
        may_restore = request.user.has_perm("jobs.restore_backupjob")
        sees_agents = request.user.has_perm("jobs.view_agent")
        context = {
            **self.admin_site.each_context(request),
            "title": str(job), "original": job, "opts": self.opts, "media": self.media,
            "job": job,
            "badge": badge(job.state, job.get_state_display()),
            "repository_url": reverse("admin:jobs_backuprepository_change", args=[job.repository_id]),
            "is_damaged": bool(job.repository.damaged_at),
            "facts": _facts(job),
            "sources": [
                _source(row, failed.get(row.pk), sees_agents=sees_agents, may_edit=may_edit, may_restore=may_restore)
                for row in sources
            ],
            "actions": buttons_of(self, job, self._offered(request, job)),
            "edit_url": reverse("admin:jobs_backupjob_edit", args=[job.pk]) if may_edit else "",
            "add_url": f"{reverse('admin:jobs_backupjobsource_add')}?job={job.pk}" if may_edit else "",
            "schedules": shown_schedules(schedules), "next_times": next_times(schedules if is_active else ()),
            "sees_schedules": request.user.has_perm("jobs.view_schedule"),
            "schedule_url": f"{reverse('admin:jobs_schedule_add')}?backup_job={job.pk}"
            if job.state != job.State.RETIRED and request.user.has_perm("jobs.add_schedule") else "",
            "timeline": acts_on([job.pk, *(row.pk for row in (*sources, *schedules))]),
            "runs": [_run(run) for run in job.runs.order_by("-created_at")[:RECENT_RUNS]],
            "runs_url": f"{reverse('admin:jobs_backupjobrun_changelist')}?job={job.pk}",
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)


def _living(job: BackupJob) -> list[Any]:
    found: list[Any] = job.living  # type: ignore[attr-defined]  # prefetched
    return found


def _facts(job: BackupJob) -> list[tuple[str, Any]]:
    facts = [
        (_("Overdue after"), span(timedelta(seconds=job.overdue_after_seconds))),
        (_("Must begin within"), span(timedelta(seconds=job.start_deadline_seconds))),
        (_("Maximum run time"), span(timedelta(seconds=job.max_run_seconds))),
        (_("Attempts at most"), job.max_attempts),
        (_("Retention"), _kept(job.retention)),
        (_("Restore drills"), _drills(job)),
        (_("Settings"), ", ".join(f"{name}={text(value)}" for name, value in job.settings.items())
         if isinstance(job.settings, dict) else ""),
        (_("Created"), moment(job.created_at)),
        (_("Created by"), job.created_by),
    ]  # fmt: skip
    return [(label, value) for label, value in facts if value != ""]


def _drills(job: BackupJob) -> str:
    """How often restores are rehearsed."""
    if job.drill_every_days is None:
        return _("never")
    said = {"days": job.drill_every_days, "files": job.drill_files}
    return _("every %(days)d days, up to %(files)d files") % said


def _kept(retention: dict[str, Any] | None) -> str:
    """A retention in words."""
    if retention is None:
        return _("everything is kept")
    return ", ".join(str(words) % retention[rule] for rule, words in KEPT.items() if rule in retention)


def _source(source: Any, failed_drill: Any, *, sees_agents: bool, may_edit: bool, may_restore: bool) -> dict[str, Any]:
    """A source as its job's page shows it."""
    may_edit = may_edit and source.retired_at is None
    return {
        "name": source.name, "host": source.host, "paths": source.paths or [], "excludes": source.excludes,
        "agent": source.agent, "state": source_state(source), "is_overdue": source.is_overdue,
        "agent_url": reverse("admin:jobs_agent_change", args=[source.agent_id])
        if sees_agents and source.agent_id else "",
        "verified": verification(source),
        "drill_url": reverse("admin:jobs_backupjobrun_change", args=[failed_drill]) if failed_drill else "",
        "last_good": moment(source.last_good_at) if source.last_good_at else _("never"),
        "edit_url": reverse("admin:jobs_backupjobsource_edit", args=[source.pk]) if may_edit else "",
        "retire_url": reverse("admin:jobs_backupjobsource_retire", args=[source.pk]) if may_edit else "",
        "restore_url": reverse("admin:jobs_backupjobsource_restore", args=[source.pk]) if may_restore else "",
        "hooks": [*source.hooks_before, *source.hooks_after],
        "snapshots_url": f"{reverse('admin:jobs_backupsnapshot_changelist')}?source={source.pk}",
    }  # fmt: skip


def _run(run: BackupJobRun) -> dict[str, Any]:
    """A run as its job's page shows it."""
    return {
        "url": reverse("admin:jobs_backupjobrun_change", args=[run.pk]), "name": str(run),
        "badge": badge(run.status, run.get_status_display()), "when": moment(run.created_at),
        "trigger": run.get_trigger_display(), "files": run.files_processed, "skipped": run.files_skipped,
        "size": size(run.bytes_processed),
        "took": span(run.completed_at - run.started_at) if run.completed_at and run.started_at else NOTHING,
    }  # fmt: skip
