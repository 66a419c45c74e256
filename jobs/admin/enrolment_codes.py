"""Enrolment codes: made here and shown once; a host trades one for a token of its own. Revoked, never deleted."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from jobs.models import Agent, EnrolmentCode
from jobs.services import enrolling, identities
from jobs.services.errors import Invalid, NotFound

from . import connecting
from .badges import badge, moment
from .dialogs import ReasonForm, ask_again, buttons_of, dialog, dialog_action, to, uuid_or_404
from .governed import GovernedAdmin
from .job_page import text
from .timeline import acts_on

STATES = {"live": _("live"), "revoked": _("revoked"), "expired": _("expired"), "used up": _("used up")}
MAX_LABEL_TEXT = 20_000
RECENT = 100
REVOKE = dialog(
    _("Revoke this code?"), _("It lets no further host in. Tokens that hosts got with it stay valid."), _("Revoke")
)
SHOWN_ONCE = _("The code is shown once, on the next page. Whoever has it gets a token for each of its uses.")


class Labels(forms.CharField):
    """Labels, one `name=value` a line."""

    def to_python(self, value: Any) -> Any:
        """The labels by their names; raises ValidationError for a line without a sign of equality."""
        found: dict[str, str] = {}
        for line in (super().to_python(value) or "").splitlines():
            name, is_label, said = line.partition("=")
            if line.strip() and not (is_label and name.strip()):
                raise forms.ValidationError(_("Each line is a name, = and a value."))
            if line.strip():
                found[name.strip()] = said.strip()
        return found

    def run_validators(self, value: Any) -> None:
        """Judge the length of the text; the service judges the labels."""
        super().run_validators("\n".join(f"{name}={said}" for name, said in value.items()))


def _line(
    label: Any, most: int, help_text: Any = "", *, required: bool = False, first: bool = False
) -> forms.CharField:
    attrs = {"autofocus": True} if first else {"spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
    return forms.CharField(
        label=label, required=required, max_length=most, help_text=help_text, strip=first,
        widget=UnfoldAdminTextInputWidget(attrs=attrs),
    )  # fmt: skip


def _number(label: Any, most: int, initial: int, help_text: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=1, max_value=most, initial=initial, help_text=help_text,
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip


class CodeForm(forms.Form):
    """A new code. Names are those of the service, so that its problems find their fields."""

    title = _line(
        _("What for"), identities.MAX_TEXT, _("Kept in the audit trail."), required=True, first=True,
    )  # fmt: skip
    agent = _line(
        _("Agent"), identities.MAX_KEY,
        _("Key of the agent that the host acts as. Empty: each host becomes a new agent, called as the host is."),
    )  # fmt: skip
    uses = _number(_("Uses"), enrolling.MAX_USES, 1, _("How many hosts it lets in."))
    hours = _number(_("Valid for (hours)"), enrolling.MAX_HOURS, 24, _("After that it lets nobody in."))
    name_prefix = _line(
        _("Keys of new agents begin with"), identities.MAX_KEY, _("Such as fw-. Hosts of other names are refused.")
    )
    agent_title = _line(_("Title of new agents"), identities.MAX_TEXT)
    agent_labels = Labels(
        label=_("Labels of new agents"), required=False, max_length=MAX_LABEL_TEXT,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"}),
        help_text=_("One name=value a line, such as site=berlin."),
    )  # fmt: skip
    presence = forms.ChoiceField(
        label=_("Presence of new agents"), choices=Agent.Presence.choices, initial=Agent.Presence.RESIDENT,
        widget=UnfoldAdminSelectWidget,
        help_text=_("Resident agents raise an alarm when they fall silent; on-demand ones are started per job."),
    )  # fmt: skip


@admin.register(EnrolmentCode)
class EnrolmentCodeAdmin(GovernedAdmin):
    """Look at codes and what became of them, make and revoke them."""

    show_add_link = True
    list_display = ("title", "shown_code", "shown_state", "whom", "left", "expiry", "created_by")
    list_display_links = ("title",)
    list_select_related = ("agent",)
    sortable_by = ()
    fields = ()
    actions_detail = ("revoke",)

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the button."""
        return []

    def get_queryset(self, request: HttpRequest) -> QuerySet[EnrolmentCode]:
        """The newest first."""
        return EnrolmentCode.objects.order_by("-created_at", "-id")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may make codes."""
        return request.user.has_perm("jobs.add_enrolmentcode")

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may end codes."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_enrolmentcode")

    @admin.display(description=_("code"))
    def shown_code(self, code: EnrolmentCode) -> str:
        """Its beginning, to recognise it by."""
        return f"{code.prefix}…"

    @admin.display(description=_("state"))
    def shown_state(self, code: EnrolmentCode) -> str:
        """Whether it would let a host in."""
        state = enrolling.unusable(code, now()) or "live"
        return badge(state, STATES[state])

    @admin.display(description=_("for"))
    def whom(self, code: EnrolmentCode) -> str:
        """The agent that it is bound to, or which new ones it makes."""
        if code.agent:
            return str(code.agent)
        return _("new agents %s…") % code.name_prefix if code.name_prefix else str(_("new agents"))

    @admin.display(description=_("uses left"))
    def left(self, code: EnrolmentCode) -> str:
        """How many hosts it still lets in, of how many."""
        return f"{code.uses_left} / {code.uses}"

    @admin.display(description=_("expires"))
    def expiry(self, code: EnrolmentCode) -> str:
        """Until when it holds."""
        return moment(code.expires_at)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask what the code is for; POST makes it and is the only page that ever shows it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        asked = request.GET.get("agent", "")[: identities.MAX_KEY]
        form = CodeForm(request.POST if request.method == "POST" else None, initial={"agent": asked})
        if form.is_valid():
            try:
                issued = enrolling.make_code(**form.cleaned_data, by=request.user.get_username())
            except Invalid as refusal:
                for problem in refusal.problems:
                    name = problem.pointer.strip("/").split("/")[0]
                    form.add_error(name if name in form.fields else None, problem.message)
            else:
                context = {
                    "issued": issued,
                    "title": _("Enrolment code"),
                    "connect": connecting.commands(settings.PUBLIC_URL),
                }
                return render(request, "agentstore/enrolment_code_made.html", self._with_site(request, context))
        context = {"title": _("Make an enrolment code"), "form": form, "submit": _("Make code"), "text": SHOWN_ONCE}
        return TemplateResponse(request, "agentstore/plain_form.html", self._with_site(request, context))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a code and the hosts that it let in."""
        self.check_view(request)
        code = self.get_queryset(request).select_related("agent").filter(pk=uuid_or_404(object_id)).first()
        if code is None:
            raise Http404
        may_revoke = self.has_revoke_permission(request) and code.revoked_at is None
        used = code.enrolments.select_related("token__agent")[:RECENT]
        context = {
            "title": code.title, "original": code, "code": code, "badge": self.shown_state(code),
            "whom": self.whom(code), "left": self.left(code), "expires": self.expiry(code),
            "created": moment(code.created_at),
            "labels": [(key, text(value)) for key, value in code.agent_labels.items()]
            if isinstance(code.agent_labels, dict) else [],
            "actions": buttons_of(self, code, ["revoke"] if may_revoke else []),
            "hosts": [
                {
                    "name": one.name, "agent": one.token.agent, "address": one.address,
                    "url": reverse("admin:jobs_agent_change", args=[one.token.agent_id]),
                    "when": moment(one.enrolled_at),
                }
                for one in used
            ],
            "timeline": acts_on([code.pk]) if request.user.has_perm("jobs.view_auditevent") else [],
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/enrolment_code.html", self._with_site(request, context))

    @dialog_action(description=_("Revoke"), icon="block", url_path="revoke", permission="revoke", asked=REVOKE)
    def revoke(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """End a code at once."""
        code_id = uuid_or_404(object_id)
        try:
            ended = enrolling.revoke_code(
                code_id=code_id, by=request.user.get_username(), reason=form.cleaned_data["reason"]
            )
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, REVOKE, form, refusal)
        if ended:
            messages.success(request, _("Revoked."))
        else:
            messages.warning(request, _("It was revoked before; nothing was changed."))
        return to(request, reverse("admin:jobs_enrolmentcode_change", args=[code_id]))

    def _with_site(self, request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
        return {**self.admin_site.each_context(request), "opts": self.opts, **context}
