"""Repositories: where snapshots are kept, and what the latest check found."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldBooleanSwitchWidget

from jobs.models import BackupRepository
from jobs.services.backups import registry, upkeep
from jobs.services.errors import Invalid, NotFound

from .backup_filters import DamagedFilter
from .backup_forms import RepositoryForm, form_page, show_at_fields
from .backup_maintenance import maintain_view, recent_jobs, upkeep_in_words, upkeep_problem
from .backup_snapshots import completeness, short_id
from .badges import NOTHING, badge, moment, size
from .dialogs import ReasonForm, ask_again, buttons_of, dialog, dialog_action, to, uuid_or_404
from .governed import GovernedAdmin
from .timeline import acts_on

RECENT = 25


class TrustForm(ReasonForm):
    """Why a repository that was found damaged is good again."""

    is_new = forms.BooleanField(
        label=gettext_lazy("Another repository took its place"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=gettext_lazy("Its id is learnt anew from the next success."),
    )  # fmt: skip


TRUST = dialog(
    gettext_lazy("Trust this repository again?"),
    gettext_lazy("Retention may remove snapshots from it again. Check all data first."),
    gettext_lazy("Trust it"),
    form=TrustForm,
)

RETIRE = dialog(
    gettext_lazy("Retire this repository?"),
    gettext_lazy(
        "No job can back up into it again, and it is not maintained. Its snapshots stay, and can be restored."
    ),
    gettext_lazy("Retire"),
)


@admin.register(BackupRepository)
class BackupRepositoryAdmin(GovernedAdmin):
    """Look at repositories, register and change them."""

    show_add_link = True
    list_display = ("name", "location", "health", "depth", "checked", "limit")
    list_display_links = ("name",)
    list_filter = (DamagedFilter,)
    list_filter_submit = False
    search_fields = ("name__icontains",)
    search_help_text = gettext_lazy("Words of the name")
    ordering = (F("retired_at").asc(nulls_first=True), "name")
    sortable_by = ()
    fields = ()
    actions_detail = ("trust", "retire")
    change_form_template = "agentstore/backup_repository_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may register repositories."""
        return request.user.has_perm("jobs.add_backuprepository")

    def has_edit_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may change repositories, and trust them again."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_backuprepository")

    def has_maintain_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may have repositories checked, and snapshots forgotten as retention says."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.maintain_backuprepository")

    @admin.display(description=gettext_lazy("state"))
    def health(self, repository: BackupRepository) -> str:
        """Whether it can be trusted."""
        return health(repository)

    @admin.display(description=gettext_lazy("depth of the check"))
    def depth(self, repository: BackupRepository) -> str:
        """How much the latest check read; metadata alone does not see flipped bytes."""
        return str(repository.get_check_depth_display()) if repository.check_depth else NOTHING

    @admin.display(description=gettext_lazy("checked"))
    def checked(self, repository: BackupRepository) -> str:
        """When it was checked last."""
        return moment(repository.checked_at)

    @admin.display(description=gettext_lazy("backups at once"))
    def limit(self, repository: BackupRepository) -> str:
        """How many backups may run into it at once."""
        return str(repository.concurrent_backups or _("no limit"))

    def get_urls(self) -> list[URLPattern]:
        """Add the forms of an existing repository and of its maintenance."""
        guarded = self.admin_site.admin_view
        return [
            path("<path:object_id>/edit/", guarded(self.edit_view), name="jobs_backuprepository_edit"),
            path("<path:object_id>/maintain/", guarded(self.maintain_view), name="jobs_backuprepository_maintain"),
            *super().get_urls(),
        ]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Register a repository."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        first = RepositoryForm.values(None)
        form = RepositoryForm(request.POST if request.method == "POST" else None, initial=first)
        if form.is_valid():
            definition = registry.RepositoryDefinition(**form.cleaned_data)
            try:
                made = registry.register_repository(definition, by=request.user.get_username())
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Registered."))
                return HttpResponseRedirect(reverse("admin:jobs_backuprepository_change", args=[made]))
        return form_page(self, request, form, title=_("Register a repository"), submit=_("Register"))

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a repository."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        repository = self._repository(object_id)
        now = RepositoryForm.values(repository)
        form = RepositoryForm(request.POST if request.method == "POST" else None, initial=now)
        if form.is_valid():
            definition = registry.RepositoryDefinition(**form.cleaned_data)
            try:
                registry.change_repository(definition, repository_id=repository.pk, by=request.user.get_username())
            except Invalid as refusal:
                show_at_fields(form, refusal.problems)
            else:
                messages.success(request, _("Saved. It holds for runs from now on."))
                return HttpResponseRedirect(reverse("admin:jobs_backuprepository_change", args=[repository.pk]))
        return form_page(self, request, form, title=_("Change %s") % repository, submit=_("Save"))

    def maintain_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have a repository checked, and what retention lets go removed."""
        if not self.has_maintain_permission(request):
            raise PermissionDenied
        return maintain_view(self, request, self._repository(object_id))

    @dialog_action(
        description=gettext_lazy("Trust again"), icon="verified", url_path="trust", permission="edit", asked=TRUST
    )
    def trust(self, request: HttpRequest, form: TrustForm, object_id: str) -> HttpResponse:
        """Say that a damaged repository is good again."""
        repository_id = uuid_or_404(object_id)
        try:
            said = {name: form.cleaned_data[name] for name in ("reason", "is_new")}
            registry.trust_repository(repository_id=repository_id, by=request.user.get_username(), **said)
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, TRUST, form, refusal)
        messages.success(request, _("Trusted again."))
        return to(request, reverse("admin:jobs_backuprepository_change", args=[repository_id]))

    @dialog_action(
        description=gettext_lazy("Retire"), icon="archive", url_path="retire", permission="edit", asked=RETIRE
    )
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Take it out of use for good."""
        repository_id, by = uuid_or_404(object_id), request.user.get_username()
        try:
            registry.retire_repository(repository_id=repository_id, by=by, reason=form.cleaned_data["reason"])
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, RETIRE, form, refusal)
        messages.success(request, _("Retired."))
        return to(request, reverse("admin:jobs_backuprepository_change", args=[repository_id]))

    def _repository(self, object_id: str) -> BackupRepository:
        rows = BackupRepository.objects.select_related("maintenance_agent")
        repository = rows.filter(pk=uuid_or_404(object_id)).first()
        if repository is None:
            raise Http404
        return repository

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a repository with its jobs and its newest snapshots; a POST has nothing to save."""
        self.check_view(request)
        repository = self._repository(object_id)
        may_edit = self.has_edit_permission(request) and repository.retired_at is None
        offered = {"trust": repository.damaged_at is not None, "retire": True} if may_edit else {}
        snapshots = repository.snapshots.select_related("source__job").order_by("-taken_at")[:RECENT]
        context = {
            **self.admin_site.each_context(request),
            "title": str(repository), "original": repository, "opts": self.opts, "media": self.media,
            "repository": repository,
            "badge": health(repository),
            "damaged": moment(repository.damaged_at) if repository.damaged_at else "",
            "facts": _facts(repository),
            "edit_url": reverse("admin:jobs_backuprepository_edit", args=[repository.pk]) if may_edit else "",
            "maintain_url": reverse("admin:jobs_backuprepository_maintain", args=[repository.pk])
            if self.has_maintain_permission(request) and repository.retired_at is None else "",
            "upkeep_problem": upkeep_problem(repository),
            "maintenance": recent_jobs(repository, sees_jobs=request.user.has_perm("jobs.view_agentjob")),
            "actions": buttons_of(self, repository, [name for name, is_it in offered.items() if is_it]),
            "timeline": acts_on([repository.pk]),
            "jobs": [
                {
                    "url": reverse("admin:jobs_backupjob_change", args=[job.pk]), "name": job.name,
                    "state": badge(job.state, job.get_state_display()),
                }
                for job in repository.jobs.order_by("name")
            ],
            "snapshots": [
                {
                    "id": short_id(snapshot), "source": f"{snapshot.source.job or NOTHING} / {snapshot.source}",
                    "badge": completeness(snapshot), "files": snapshot.files, "size": size(snapshot.bytes),
                    "taken": moment(snapshot.taken_at),
                    "gone": moment(snapshot.forgotten_at) if snapshot.forgotten_at else "",
                }
                for snapshot in snapshots
            ],
            "snapshots_url": f"{reverse('admin:jobs_backupsnapshot_changelist')}?repository={repository.pk}",
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)


def health(repository: BackupRepository) -> str:
    """One word on a repository, as a badge: damage before everything else."""
    if repository.damaged_at:
        return badge("damaged", _("damaged"))
    if repository.retired_at:
        return badge("retired", _("retired"))
    if repository.check_result:
        return badge(repository.check_result, repository.get_check_result_display())
    return badge("queued", _("never checked"))


def _facts(repository: BackupRepository) -> list[tuple[str, Any]]:
    facts = [
        (_("Location"), repository.location),
        (_("Credential"), repository.credential_ref),
        (_("Repository id"), repository.engine_repository_id or _("kept at the first success")),
        (_("If it is missing"), _("it is created") if repository.init_if_missing else _("backups fail")),
        (_("Backups at once"), repository.concurrent_backups or _("no limit")),
        (_("Maintenance"), upkeep_in_words(repository)),
        (_("Next maintenance"), moment(upkeep.due_at(repository)) if upkeep.due_at(repository) else ""),
        (_("Checked"), moment(repository.checked_at)),
        (_("Result of the check"), repository.get_check_result_display() if repository.check_result else ""),
        (_("Depth of the check"), repository.get_check_depth_display() if repository.check_depth else ""),
        (_("Retired"), moment(repository.retired_at) if repository.retired_at else ""),
        (_("Created"), moment(repository.created_at)),
        (_("Created by"), repository.created_by),
    ]
    return [(label, value) for label, value in facts if value != ""]
