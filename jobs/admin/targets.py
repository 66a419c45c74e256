"""Targets: which addresses specs may open, with what secrets, and on whose runners. Disabled, never deleted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentstore_runner.contract.grants import REQUESTS
from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.models import Target
from jobs.services import target_registry
from jobs.services.errors import Invalid
from jobs.services.target_registry import MAX_ENVIRONMENT, MAX_NAME

from .badges import badge
from .form_history import Change, changes, lines
from .governed import GovernedAdmin
from .timeline import Line

WORDS = {
    "script": _("Scripts"), "stylesheet": _("Style sheets"), "image": _("Images"), "font": _("Fonts"),
    "media": _("Sound and video"), "fetch": _("Requests of scripts"), "websocket": _("Web sockets"),
    "other": _("Everything else"),
}  # fmt: skip
MAX_TEXT = 40_000


class Lines(forms.CharField):
    """A list of words, one a line."""

    def __init__(self, *, rows: int, **more: Any) -> None:
        attrs = {"rows": rows, "spellcheck": "false", "autocapitalize": "off"}
        super().__init__(max_length=MAX_TEXT, widget=UnfoldAdminTextareaWidget(attrs=attrs), **more)

    def to_python(self, value: Any) -> Any:
        """The lines that say something, each once."""
        return list(dict.fromkeys((super().to_python(value) or "").split()))

    def run_validators(self, value: Any) -> None:
        """Judge the length of the text; the service judges each line."""
        super().run_validators("\n".join(value))

    def prepare_value(self, value: Any) -> Any:
        """The lines of a list; typed text stays what it is."""
        return "\n".join(value) if isinstance(value, list) else value


class TargetForm(forms.Form):
    """A target. Names are those of the service, so that its problems find their fields."""

    name = forms.CharField(
        label=_("Name"),
        max_length=MAX_NAME,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": True}),
    )
    base_urls = Lines(
        label=_("Base URLs"), rows=3,
        help_text=_("One a line, such as https://staging.example.org. Scheme, host and port lead a spec here."),
    )  # fmt: skip
    environment = forms.CharField(
        label=_("Environment"), required=False, max_length=MAX_ENVIRONMENT, widget=UnfoldAdminTextInputWidget,
        help_text=_("Such as staging. A spec that names another one is refused."),
    )  # fmt: skip
    enabled = forms.BooleanField(
        label=_("Enabled"), required=False, initial=True, widget=UnfoldBooleanSwitchWidget,
        help_text=_("Nothing is enqueued for a disabled target, runners refuse what waits, what runs is stopped."),
    )  # fmt: skip
    allowed_hosts = Lines(
        label=_("Further hosts"), required=False, rows=3,
        help_text=_("What its pages may reach beside the base URLs: host, host:port or *.domain, one a line."),
    )  # fmt: skip
    restricted_requests = forms.MultipleChoiceField(
        label=_("Restricted to these hosts"), required=False, choices=tuple(WORDS.items()), initial=REQUESTS,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("Pages and API steps always are. What is not ticked may be loaded from any public host."),
    )  # fmt: skip
    allowed_secrets = Lines(
        label=_("Secrets"), required=False, rows=3,
        help_text=_("Variables of the runner that specs may use, such as UAT_SHOP_PASSWORD, one a line."),
    )  # fmt: skip
    allowed_agents = Lines(
        label=_("Agents"), required=False, rows=2,
        help_text=_("Keys of the agents that may test it, one a line. Empty: every agent."),
    )  # fmt: skip
    allow_local = forms.BooleanField(
        label=_("Loopback and link-local addresses"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=_("Lets specs reach the runner's own machine and its link, cloud metadata included."),
    )  # fmt: skip
    allow_traces = forms.BooleanField(
        label=_("Traces"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=_("Lets specs keep traces of failed checks. They hold all that was typed and sent, passwords too."),
    )  # fmt: skip


@admin.register(Target)
class TargetAdmin(GovernedAdmin):
    """Look at targets, register and change them."""

    show_add_link = True
    list_display = ("name", "addresses", "environment", "switch")
    list_display_links = ("name",)
    sortable_by = ()
    fields = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Target]:
        """Read the base URLs of all rows of a page at once."""
        found: QuerySet[Target] = super().get_queryset(request).prefetch_related("origins")
        return found

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may register targets."""
        return request.user.has_perm("jobs.add_target")

    @admin.display(description=_("base URLs"))
    def addresses(self, target: Target) -> str:
        """The base URLs."""
        return ", ".join(found.origin for found in target.origins.all())

    @admin.display(description=_("state"))
    def switch(self, target: Target) -> str:
        """Whether specs may use it."""
        return badge("enabled", _("enabled")) if target.enabled else badge("disabled", _("disabled"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Register a target."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TargetForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            with _at_fields(form):
                target_registry.register_target(**form.cleaned_data)
                messages.success(request, _("Registered."))
                return HttpResponseRedirect(reverse("admin:jobs_target_changelist"))
        return self._page(request, form, _("Register a target"), _("Register"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a target; those who may change it save here."""
        self.check_view(request)
        target = self.get_object(request, object_id)
        if target is None:
            raise Http404
        may_change = request.user.has_perm("jobs.change_target")
        if request.method == "POST" and not may_change:
            raise PermissionDenied
        now = {name: getattr(target, name) for name in TargetForm.base_fields if name != "base_urls"}
        now["base_urls"] = [found.origin for found in target.origins.all()]
        form = TargetForm(request.POST if request.method == "POST" else None, initial=now)
        for field in form.fields.values():
            field.disabled = not may_change
        if form.is_valid():
            with _at_fields(form):
                stopped = target_registry.change_target(
                    target_id=target.pk, by=request.user.get_username(), **form.cleaned_data
                )
                messages.success(request, _("Saved. It holds for every job that is claimed from now on."))
                if stopped:
                    messages.warning(request, ngettext(
                        "%d running job that it no longer allows was asked to stop.",
                        "%d running jobs that it no longer allows were asked to stop.", stopped) % stopped)  # fmt: skip
                return HttpResponseRedirect(reverse("admin:jobs_target_change", args=[target.pk]))
        return self._page(request, form, str(target), _("Save") if may_change else "", timeline=_timeline(target))

    def _page(self, request: HttpRequest, form: TargetForm, title: Any, submit: Any, **more: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": title, "opts": self.opts, "form": form, "submit": submit,
            **more,
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/plain_form.html", context)


@contextmanager
def _at_fields(form: TargetForm) -> Iterator[None]:
    """Show what the service refuses at the fields."""
    try:
        yield
    except Invalid as refusal:
        for problem in refusal.problems:
            form.add_error(problem.pointer.removeprefix("/"), problem.message)


def _timeline(target: Target) -> list[Line]:
    """What people changed, newest first; the base URLs that came and went stand with their target."""
    rules: Any = apps.get_model("jobs", "TargetEvent")  # made by pghistory
    addresses: Any = apps.get_model("jobs", "TargetOriginEvent")
    fields = {name: field for name, field in TargetForm.base_fields.items() if name != "base_urls"}
    told = changes(rules.objects.filter(pgh_obj_id=target.pk), fields, words=WORDS)
    words = {"insert": _("base URL added"), "delete": _("base URL removed")}
    moves = addresses.objects.filter(target_id=target.pk).select_related("pgh_context")
    told += [Change(event, words.get(event.pgh_label, _("changed")), event.origin) for event in moves]
    return lines(told)
