"""Sources of backup jobs: how fresh each is, how it is defined, and restores from it."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.models import BackupJob, BackupJobSource, BackupSnapshot
from jobs.models.backup_freshness import with_freshness, with_verification
from jobs.services.backups import launching, registry
from jobs.services.errors import Invalid, NotFound

from .backup_filters import BackupJobFilter, FailedDrillFilter, LateSourceFilter
from .backup_forms import RestoreForm, SourceForm, form_page, show_at_fields
from .backup_snapshots import verification
from .badges import NOTHING, badge, moment, size
from .dialogs import ReasonForm, ask_again, dialog, dialog_action, to, uuid_or_404
from .filters import AgentFilter
from .governed import GovernedAdmin

MAX_SNAPSHOTS = 300  # offered for a restore
SAFE = {"mode": "directory", "overwrite": "never", "verify": "content", "dry_run": True}
RETIRE = dialog(
    gettext_lazy("Retire this source?"),
    gettext_lazy("It is never backed up again and cannot come back. Its snapshots stay, and can be restored."),
    gettext_lazy("Retire"),
)


@admin.register(BackupJobSource)
class BackupJobSourceAdmin(GovernedAdmin):
    """Look at the sources of all jobs, define them, and restore from them."""

    list_display = ("name_in_job", "host", "agent", "freshness", "last_good", "verified")
    rows_have_pages = False
    list_filter = (LateSourceFilter, FailedDrillFilter, BackupJobFilter, AgentFilter)
    sortable_by = ()
    fields = ()
    actions_detail = ("retire",)

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page of the job has the button."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may define backup jobs, of which sources are a part."""
        return request.user.has_perm("jobs.change_backupjob")

    def has_edit_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may change and retire sources."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_backupjob")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BackupJobSource]:
        """The living sources of jobs."""
        living = BackupJobSource.objects.filter(job__isnull=False, retired_at=None).select_related("job", "agent")
        return with_verification(with_freshness(living)).order_by("job__name", "name", "pk")

    @admin.display(description=gettext_lazy("source"))
    def name_in_job(self, source: BackupJobSource) -> str:
        """The source with its job, which it leads to."""
        url = reverse("admin:jobs_backupjob_change", args=[source.job_id])
        return format_html('<a href="{}">{} / {}</a>', url, source.job, source)

    @admin.display(description=gettext_lazy("freshness"))
    def freshness(self, source: BackupJobSource) -> str:
        """Whether it is overdue."""
        return source_state(source)

    @admin.display(description=gettext_lazy("last good backup"))
    def last_good(self, source: Any) -> str:
        """When it was last backed up whole."""
        return moment(source.last_good_at) if source.last_good_at else _("never")

    @admin.display(description=gettext_lazy("verified"))
    def verified(self, source: Any) -> str:
        """When a restore of it was last compared, and how that went."""
        return verification(source)

    def get_urls(self) -> list[URLPattern]:
        """Add the forms of an existing source and of a restore."""
        guarded = self.admin_site.admin_view
        return [
            path("<path:object_id>/edit/", guarded(self.edit_view), name="jobs_backupjobsource_edit"),
            path("<path:object_id>/restore/", guarded(self.restore_view), name="jobs_backupjobsource_restore"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the page of the job, which has the source."""
        self.check_view(request)
        return HttpResponseRedirect(_job_page(self._source(object_id)))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add a source to the job that the address names; without one, lead to the jobs."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if "job" not in request.GET:
            messages.info(request, _("Choose the backup job that the source belongs to."))
            return HttpResponseRedirect(reverse("admin:jobs_backupjob_changelist"))
        job = BackupJob.objects.filter(pk=uuid_or_404(request.GET["job"])).first()
        if job is None:
            raise Http404
        form = SourceForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            said = dict(form.cleaned_data)
            agent, by = said.pop("agent"), request.user.get_username()
            try:
                registry.add_source(registry.SourceDefinition(**said), job_id=job.pk, agent=agent, by=by)
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Added. The next run takes it."))
                return HttpResponseRedirect(reverse("admin:jobs_backupjob_change", args=[job.pk]))
        return form_page(self, request, form, title=_("Add a source to %s") % job, submit=_("Add"))

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a source, but neither its job nor its agent nor its host."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        source = self._source(object_id)
        now = {name: getattr(source, name) for name in SourceForm.base_fields if name != "agent"}
        form = SourceForm(request.POST if request.method == "POST" else None, initial=now)
        del form.fields["agent"]
        form.fields["host"].disabled = True
        if form.is_valid():
            definition = registry.SourceDefinition(**form.cleaned_data)
            try:
                registry.change_source(definition, source_id=source.pk, by=request.user.get_username())
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Saved. It holds for runs from now on."))
                return HttpResponseRedirect(_job_page(source))
        return form_page(self, request, form, title=_("Change %s") % source, submit=_("Save"))

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Restore a snapshot of a source, to its own or to another agent; a dry run unless somebody says otherwise."""
        if not (self.has_view_permission(request) and request.user.has_perm("jobs.restore_backupjob")):
            raise PermissionDenied
        source = self._source(object_id)
        choices = _snapshots(source)
        agent = source.agent.principal_key if source.agent else ""
        good = source.snapshots.filter(complete=True, forgotten_at=None).order_by("-taken_at").first()
        asked = {"snapshot": request.GET.get("snapshot") or (str(good.pk) if good else "")}
        first = SAFE | asked | {"agent": agent, "include": request.GET.getlist("include")}
        form = RestoreForm(request.POST if request.method == "POST" else None, initial=first)
        form.fields["snapshot"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField
        if form.is_valid():
            said = dict(form.cleaned_data)
            snapshot_id, include, reason = said.pop("snapshot"), said.pop("include"), said.pop("reason")
            try:
                launched = launching.launch_restore(
                    snapshot_id=uuid_or_404(snapshot_id), target=launching.Target(**said), include=include,
                    by=request.user.get_username(), reason=reason,
                )  # fmt: skip
            except NotFound:
                raise Http404 from None
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Launched."))
                return HttpResponseRedirect(reverse("admin:jobs_backupjobrun_change", args=[launched.run_id]))
        none = "" if choices else _("No snapshot of this source is known.")
        title = _("Restore from %(job)s / %(source)s") % {"job": source.job, "source": source}
        return form_page(self, request, form, title=title, submit=_("Restore") if choices else "", text=none)

    @dialog_action(
        description=gettext_lazy("Retire"), icon="archive", url_path="retire", permission="edit", asked=RETIRE
    )
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Take the source out of its job's runs for good."""
        source = self._source(object_id)
        said = {"by": request.user.get_username(), "reason": form.cleaned_data["reason"]}
        try:
            registry.retire_source(source_id=source.pk, **said)
        except Invalid as refusal:
            return ask_again(request, RETIRE, form, refusal)
        messages.success(request, _("Retired."))
        return to(request, _job_page(source))

    def _source(self, object_id: str) -> BackupJobSource:
        """A source of a job, retired or not."""
        rows = BackupJobSource.objects.select_related("job", "agent")
        source = rows.filter(pk=uuid_or_404(object_id), job__isnull=False).first()
        if source is None:
            raise Http404
        return source


def source_state(source: Any) -> str:
    """How fresh a source is, as a badge; a dash while its job rests."""
    if source.retired_at:
        return badge("retired", _("retired"))
    if source.is_overdue:
        return badge("overdue", _("overdue"))
    return badge("on time", _("on time")) if source.job.state == BackupJob.State.ACTIVE else NOTHING


def _job_page(source: BackupJobSource) -> str:
    return reverse("admin:jobs_backupjob_change", args=[source.job_id])


def _snapshots(source: BackupJobSource) -> list[tuple[str, str]]:
    """What can be restored, the newest first."""
    there = source.snapshots.filter(forgotten_at=None).order_by("-taken_at")[:MAX_SNAPSHOTS]
    words = {True: _("complete"), False: _("partial")}
    return [(str(one.pk), f"{_clock(one)} · {one} · {words[one.complete]} · {size(one.bytes)}") for one in there]


def _clock(snapshot: BackupSnapshot) -> str:
    return date_format(localtime(snapshot.taken_at), "Y-m-d H:i T")
