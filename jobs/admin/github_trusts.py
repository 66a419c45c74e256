"""Which workflow runs of GitHub may act as which agent, and a page that says why a token is taken or refused."""

from typing import Any

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.models import GithubTrust
from jobs.services.errors import Invalid, KeysUnavailable
from jobs.services.github import registry
from jobs.services.github.exchange import Explained, explain, issuers
from jobs.services.github.tokens import MAX_TOKEN
from jobs.services.github.trust import ENVIRONMENTS, EVENTS

from .badges import badge, moment
from .enqueue import agent_choices
from .form_history import changes, lines
from .governed import GovernedAdmin

ANY = _("any")


def _text(label: Any, help_text: Any) -> Any:
    return forms.CharField(
        label=label, required=False, max_length=registry.MAX_TEXT, help_text=help_text,
        widget=UnfoldAdminTextInputWidget,
    )  # fmt: skip


def _id(label: Any, help_text: Any) -> Any:
    return forms.IntegerField(
        label=label, min_value=1, max_value=registry.MAX_ID, help_text=help_text, widget=UnfoldAdminIntegerFieldWidget
    )


def _choice(label: Any, words: tuple[str, ...], help_text: Any) -> Any:
    choices = [("", ANY), *((word, word) for word in words)]
    return forms.ChoiceField(
        label=label, required=False, choices=choices, help_text=help_text, widget=UnfoldAdminSelectWidget
    )


class TrustForm(forms.Form):
    """A rule. Names are those of the service, so that its problems find their fields."""

    agent = forms.ChoiceField(
        label=_("Agent"), choices=agent_choices, widget=UnfoldAdminSelectWidget,
        help_text=_("Whom the run acts as. Another agent needs another rule."),
    )  # fmt: skip
    issuer = forms.ChoiceField(
        label=_("Issuer"), widget=UnfoldAdminSelectWidget, help_text=_("Whose tokens these are."),
        choices=lambda: [(one.url, one.server) for one in issuers()],
    )  # fmt: skip
    repository_id = _id(
        _("Repository id"),
        _("A number that a re-created repository does not inherit: gh api repos/OWNER/NAME --jq .id"),
    )
    repository_owner_id = _id(_("Owner id"), _("gh api repos/OWNER/NAME --jq .owner.id"))
    repository = _text(_("Repository"), _("OWNER/NAME, only shown; the latest token refreshes it."))
    workflow = _text(_("Workflow file"), _("Such as agentstore.yml. Empty: every workflow of the repository."))
    reusable_workflow = _text(
        _("Reusable workflow"), _("OWNER/NAME/FILE.yml that the job may come from. Empty: only the workflow itself.")
    )
    ref = _text(_("Ref"), _("Such as refs/heads/main. Empty: every branch and tag."))
    environment = _text(_("Environment"), _("The environment that the job must name. Empty: any or none."))
    event_name = _choice(_("Event"), EVENTS, _("Pull requests are never taken: anybody can open one."))
    runner_environment = _choice(_("Runner"), ENVIRONMENTS, _("Where the job must run."))
    enabled = forms.BooleanField(
        label=_("Enabled"), required=False, initial=True, widget=UnfoldBooleanSwitchWidget,
        help_text=_("A disabled rule gives nobody a token; those that it gave end within 15 minutes."),
    )  # fmt: skip


class TokenForm(forms.Form):
    """A token to look at."""

    token = forms.CharField(
        label=_("Token"), max_length=MAX_TOKEN, help_text=_("It is looked at, neither used up nor stored."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 5, "spellcheck": "false", "autocomplete": "off"}),
    )  # fmt: skip


@admin.register(GithubTrust)
class GithubTrustAdmin(GovernedAdmin):
    """Look at rules, register and change them, and try a token."""

    show_add_link = True
    list_display = ("named", "agent", "conditions", "switch", "used")
    list_display_links = ("named",)
    list_before_template = "agentstore/github_list.html"
    sortable_by = ()
    fields = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[GithubTrust]:
        """Read the agents of all rows of a page at once."""
        found: QuerySet[GithubTrust] = super().get_queryset(request).select_related("agent")
        return found

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may register rules."""
        return request.user.has_perm("jobs.add_githubtrust")

    def get_urls(self) -> list[URLPattern]:
        """Add the page that tries a token."""
        guarded = self.admin_site.admin_view
        return [path("token/", guarded(self.token_view), name="jobs_githubtrust_token"), *super().get_urls()]

    @admin.display(description=_("repository"))
    def named(self, trust: GithubTrust) -> str:
        """Its name, else its number."""
        return str(trust)

    @admin.display(description=_("conditions"))
    def conditions(self, trust: GithubTrust) -> str:
        """What narrows it beside the repository."""
        said = (trust.workflow, trust.ref, trust.environment, trust.event_name, trust.runner_environment)
        return ", ".join(word for word in said if word) or str(_("every workflow, every branch"))

    @admin.display(description=_("state"))
    def switch(self, trust: GithubTrust) -> str:
        """Whether it gives tokens."""
        return badge("enabled", _("enabled")) if trust.enabled else badge("disabled", _("disabled"))

    @admin.display(description=_("last used"))
    def used(self, trust: GithubTrust) -> str:
        """When it last gave a token."""
        return moment(trust.last_used_at)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Register a rule."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TrustForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                made = registry.register_trust(registry.TrustDefinition(**form.cleaned_data))
            except Invalid as refusal:
                _show(form, refusal)
            else:
                messages.success(request, _("Registered."))
                return HttpResponseRedirect(reverse("admin:jobs_githubtrust_change", args=[made]))
        return self._page(request, form, _("Trust runs of a repository"), _("Register"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a rule; those who may change it save here."""
        self.check_view(request)
        trust = self.get_object(request, object_id)
        if trust is None:
            raise Http404
        may_change = request.user.has_perm("jobs.change_githubtrust")
        if request.method == "POST" and not may_change:
            raise PermissionDenied
        now = {name: getattr(trust, name) for name in TrustForm.base_fields} | {"agent": trust.agent.principal_key}
        form = TrustForm(request.POST if request.method == "POST" else None, initial=now)
        for name, field in form.fields.items():
            field.disabled = not may_change or name == "agent"
        form.fields["agent"].choices = [(trust.agent.principal_key, str(trust.agent))]  # type: ignore[attr-defined]  # it is a choice
        if form.is_valid():
            try:
                registry.change_trust(registry.TrustDefinition(**form.cleaned_data), trust_id=trust.pk)
            except Invalid as refusal:
                _show(form, refusal)
            else:
                messages.success(request, _("Saved. It holds for every exchange from now on."))
                return HttpResponseRedirect(reverse("admin:jobs_githubtrust_change", args=[trust.pk]))
        history: Any = apps.get_model("jobs", "GithubTrustEvent")  # made by pghistory
        fields = {name: field for name, field in TrustForm.base_fields.items() if name not in ("agent", "repository")}
        told = lines(changes(history.objects.filter(pgh_obj_id=trust.pk), fields))
        return self._page(request, form, str(trust), _("Save") if may_change else "", timeline=told)

    def token_view(self, request: HttpRequest) -> HttpResponse:
        """Say what an exchange of a token would come to, and which claim decides."""
        self.check_view(request)
        form = TokenForm(request.POST if request.method == "POST" else None)
        found: Explained | None = None
        if form.is_valid():
            try:
                found = explain(form.cleaned_data["token"].strip())
            except KeysUnavailable as silent:
                form.add_error("token", str(silent))
        context = {
            **self.admin_site.each_context(request), "title": _("Test a token"), "opts": self.opts, "form": form,
            "found": found, "audience": settings.GITHUB_AUDIENCE,
            "trust_url": reverse("admin:jobs_githubtrust_changelist"),
        }  # fmt: skip
        answer = TemplateResponse(request, "agentstore/github_token.html", context)
        add_never_cache_headers(answer)
        return answer

    def _page(self, request: HttpRequest, form: TrustForm, title: Any, submit: Any, **more: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": title, "opts": self.opts, "form": form, "submit": submit,
            **more,
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/plain_form.html", context)


def _show(form: TrustForm, refusal: Invalid) -> None:
    for problem in refusal.problems:
        field = problem.pointer.removeprefix("/")
        form.add_error(field if field in form.fields else None, problem.message)
