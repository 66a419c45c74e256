"""Rules of notices: which events go over which channel."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.models import Agent, AgentTask, Event, JobKind, NoticeChannel, NoticeRule
from jobs.services.errors import Invalid
from jobs.services.notices import registry

from .badges import badge
from .dialogs import uuid_or_404
from .governed import GovernedAdmin

MAX_CHOICES = 1000
ANY = ("", _("Any"))


def _channels() -> list[tuple[str, str]]:
    return [(str(key), name) for key, name in NoticeChannel.objects.values_list("pk", "name")[:MAX_CHOICES]]


def _kinds() -> list[tuple[str, Any]]:
    names = JobKind.objects.values_list("name", flat=True)[:MAX_CHOICES]
    return [ANY, *((name, name) for name in names), *AgentTask.Type.choices]


def _agents() -> list[tuple[str, Any]]:
    return [ANY, *((key, key) for key in Agent.objects.values_list("principal_key", flat=True)[:MAX_CHOICES])]


def _text(label: Any, help_text: Any) -> forms.CharField:
    return forms.CharField(
        label=label, required=False, max_length=registry.MAX_TEXT, help_text=help_text,
        widget=UnfoldAdminTextInputWidget,
    )  # fmt: skip


class RuleForm(forms.Form):
    """A rule. Names are those of the service, so that its problems find their fields."""

    name = forms.CharField(label=_("Name"), max_length=registry.MAX_NAME, widget=UnfoldAdminTextInputWidget)
    channel = forms.ChoiceField(label=_("Channel"), choices=_channels, widget=UnfoldAdminSelectWidget)
    listens_to = forms.MultipleChoiceField(
        label=_("Listens to"), choices=[(event.value, event.label) for event in registry.LISTENABLE],
        initial=[Event.FAILED, Event.RISK, Event.RECOVERED], widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("The first failure and the recovery of each agent, kind and schedule are told, not repetitions."),
    )  # fmt: skip
    kind = forms.ChoiceField(label=_("Kind"), required=False, choices=_kinds, widget=UnfoldAdminSelectWidget)
    agent = forms.ChoiceField(label=_("Agent"), required=False, choices=_agents, widget=UnfoldAdminSelectWidget)
    schedule = _text(_("Schedule"), _("The name of a schedule. Empty: any, and jobs without one."))
    label = _text(
        _("Label"),
        _("A key, such as branch: each value fails and recovers by itself. Or key=value: only that one. Empty: any."),
    )


class ChangeRuleForm(RuleForm):
    """A rule that exists."""

    enabled = forms.BooleanField(label=_("Enabled"), required=False, widget=UnfoldBooleanSwitchWidget)
    field_order = ("name", "channel", "enabled")


@admin.register(NoticeRule)
class NoticeRuleAdmin(GovernedAdmin):
    """Look at rules, add and change them."""

    show_add_link = True
    list_display = ("name", "channel", "events", "matches", "switch")
    list_display_links = ("name",)
    list_select_related = ("channel",)
    sortable_by = ()
    fields = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may add rules."""
        return request.user.has_perm("jobs.add_noticerule")

    @admin.display(description=_("listens to"))
    def events(self, rule: NoticeRule) -> str:
        """The events in words."""
        return ", ".join(str(Event(event).label) for event in rule.listens_to)

    @admin.display(description=_("only"))
    def matches(self, rule: NoticeRule) -> str:
        """What it is narrowed to."""
        said = (rule.kind, rule.agent, rule.schedule, rule.label)
        return ", ".join(text for text in said if text) or str(_("everything"))

    @admin.display(description=_("state"))
    def switch(self, rule: NoticeRule) -> str:
        """Whether it listens."""
        return badge("enabled", _("enabled")) if rule.enabled else badge("disabled", _("disabled"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add a rule."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = RuleForm(request.POST if request.method == "POST" else None)
        if form.is_valid() and _saved(form, registry.create_rule):
            messages.success(request, _("Added. It listens from now on."))
            return HttpResponseRedirect(reverse("admin:jobs_noticerule_changelist"))
        text = "" if NoticeChannel.objects.exists() else _("Add a channel first: a rule needs one.")
        return self._page(request, form, _("Add a rule"), _("Add"), text)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a rule; those who may change it save here."""
        self.check_view(request)
        rule = NoticeRule.objects.filter(pk=uuid_or_404(object_id)).first()
        if rule is None:
            raise Http404
        may_change = request.user.has_perm("jobs.change_noticerule")
        if request.method == "POST" and not may_change:
            raise PermissionDenied
        now = {name: getattr(rule, name) for name in ChangeRuleForm.base_fields} | {"channel": str(rule.channel_id)}
        form = ChangeRuleForm(request.POST if request.method == "POST" else None, initial=now)
        for name in ("kind", "agent"):  # one that is not registered any more stays what it is
            choices: Any = form.fields[name].choices  # type: ignore[attr-defined]  # a ChoiceField
            kept = (now[name], now[name])
            form.fields[name].choices = [*choices, *([] if kept in list(choices) else [kept])]  # type: ignore[attr-defined]
        for field in form.fields.values():
            field.disabled = not may_change
        if form.is_valid() and _saved(form, registry.change_rule, rule_id=rule.pk):
            messages.success(request, _("Saved. It holds for what happens from now on."))
            return HttpResponseRedirect(reverse("admin:jobs_noticerule_change", args=[rule.pk]))
        return self._page(request, form, rule.name, _("Save") if may_change else "")

    def _page(self, request: HttpRequest, form: RuleForm, title: Any, submit: Any, text: Any = "") -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": title, "opts": self.opts, "form": form,
            "submit": submit, "text": text,
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/plain_form.html", context)


def _saved(form: RuleForm, save: Any, **which: Any) -> bool:
    said = form.cleaned_data | {"channel": UUID(form.cleaned_data["channel"])}
    try:
        save(**which, **said)
    except Invalid as refusal:
        for problem in refusal.problems:
            form.add_error(problem.pointer.strip("/"), problem.message)
        return False
    return True
