"""Agents and their tokens: who may claim work. Registered, paused and retired here, never deleted."""

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import BooleanField, Case, Count, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.timezone import now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from jobs.metrics import is_silent
from jobs.models import Agent, AgentJob, AgentToken
from jobs.models.agent_instances import LATELY, is_cloned
from jobs.services import identities
from jobs.services.errors import Invalid, NotFound
from jobs.services.execution import effective_state

from . import connecting
from .badges import NOTHING, badge, moment
from .dialogs import ReasonForm, ask_again, dialog, dialog_action, to, uuid_or_404
from .enqueue import LocalMoment
from .filters import AgentStateFilter, AttentionFilter
from .governed import GovernedAdmin
from .job_page import text

RECENT_JOBS = 10
RECENT_PROCESSES = 50


class StateForm(BaseDialogForm):
    """What an agent may do from now on."""

    state = forms.ChoiceField(label=_("State"), choices=Agent.State.choices, widget=UnfoldAdminSelectWidget)
    note = forms.CharField(
        label=_("Note"), required=False, max_length=identities.MAX_TEXT,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("Why; the agent's owner reads it. Needed unless the agent becomes active."),
    )  # fmt: skip
    until = LocalMoment(
        label=_("Until"), help_text=_("UTC. When a pause ends by itself; empty: until somebody ends it.")
    )


class TokenForm(forms.Form):
    """What is known of a new token."""

    note = forms.CharField(
        label=_("Note"), required=False, max_length=identities.MAX_TEXT,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": True}), help_text=_("Where it will be used."),
    )  # fmt: skip
    expires_at = LocalMoment(label=_("Expires"), help_text=_("UTC. Empty: it does not expire."))


class RegisterForm(forms.Form):
    """A new agent."""

    key = forms.CharField(
        label=_("Key"), max_length=identities.MAX_KEY, strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": True}),
        help_text=_("The name under which work is enqueued for it, such as ci-uat. It never changes."),
    )  # fmt: skip
    title = forms.CharField(
        label=_("Title"), required=False, max_length=identities.MAX_TEXT, widget=UnfoldAdminTextInputWidget
    )
    presence = forms.ChoiceField(
        label=_("Presence"), choices=Agent.Presence.choices, initial=Agent.Presence.ON_DEMAND,
        widget=UnfoldAdminSelectWidget,
        help_text=_("Resident agents raise an alarm when they fall silent; on-demand ones are started per job."),
    )  # fmt: skip


SET_STATE = dialog(
    _("Change what this agent may do"),
    _(
        "Paused: takes no new work for now. Draining: finishes what it holds and takes nothing new. "
        "Disabled: retired. Work that it holds goes on in every state."
    ),
    _("Set state"),
    form=StateForm,
)
SHOWN_ONCE = _(
    "It is shown once, on the next page. Other tokens of the agent stay valid, so it can be rotated without a gap."
)
REVOKE = dialog(
    _("Revoke this token?"), _("The runner that uses it is refused from now on, also for work it holds."), _("Revoke")
)


@admin.register(Agent)
class AgentAdmin(GovernedAdmin):
    """Look at agents, register them, say what they may do, and issue tokens."""

    show_add_link = True
    list_display = ("name", "shown_state", "presence", "seen", "holding", "live_tokens", "runner_version")
    list_display_links = ("name",)
    list_filter = (AgentStateFilter, AttentionFilter)
    search_fields = ("principal_key__startswith", "title__icontains")
    search_help_text = _("Beginning of the key, or words of the title")
    sortable_by = ()
    fields = ()
    actions_detail = ("set_state",)
    change_form_template = "agentstore/agent_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Registering is the one way to add an agent."""
        return request.user.has_perm("jobs.add_agent")

    def has_govern_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may say what agents may do."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.govern_agent")

    def has_issue_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may hand out bearers."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.add_agenttoken")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """Agents with what the list counts."""
        held = AgentJob.objects.leased().filter(agent=OuterRef("principal_key")).order_by()
        tokens = AgentToken.objects.filter(agent=OuterRef("pk"), revoked_at=None).order_by()
        tokens = tokens.filter(Q(expires_at=None) | Q(expires_at__gt=Now()))
        return Agent.objects.annotate(
            held=Subquery(held.values("agent").annotate(number=Count("id")).values("number")),
            tokens_live=Subquery(tokens.values("agent").annotate(number=Count("id")).values("number")),
            is_silent=Case(When(is_silent(), then=Value(True)), default=Value(False), output_field=BooleanField()),
            is_cloned=Case(When(is_cloned(), then=Value(True)), default=Value(False), output_field=BooleanField()),
        ).order_by("principal_key")

    @admin.display(description=_("agent"))
    def name(self, agent: Agent) -> str:
        """The title, or the key."""
        return f"{agent.title} ({agent.principal_key})" if agent.title else agent.principal_key

    @admin.display(description=_("state"))
    def shown_state(self, agent: Agent) -> str:
        """The state at this moment, and what is wrong first."""
        return agent_badge(agent)

    @admin.display(description=_("last seen"))
    def seen(self, agent: Agent) -> str:
        """When the agent last called."""
        return moment(agent.last_seen_at) if agent.last_seen_at else gettext("never")

    @admin.display(description=_("holds"))
    def holding(self, agent: Agent) -> int:
        """How many jobs it works on."""
        return agent.held or 0  # type: ignore[attr-defined]  # the annotation

    @admin.display(description=_("live tokens"))
    def live_tokens(self, agent: Agent) -> int:
        """How many bearers would be let in."""
        return agent.tokens_live or 0  # type: ignore[attr-defined]  # the annotation

    def get_urls(self) -> list[URLPattern]:
        """Add the page that shows a token once."""
        view = self.admin_site.admin_view(self.token_view)
        return [path("<path:object_id>/token/", view, name="jobs_agent_token"), *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Register an agent."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = RegisterForm(request.POST or None)
        if form.is_valid():
            try:
                agent = identities.create_agent(**form.cleaned_data, by=request.user.get_username())
            except Invalid as refusal:
                for problem in refusal.problems:
                    form.add_error(problem.pointer.strip("/"), problem.message)
            else:
                messages.success(request, _("Registered. Issue a token for its runner next."))
                return HttpResponseRedirect(reverse("admin:jobs_agent_change", args=[agent.pk]))
        context = {
            **self.admin_site.each_context(request), "title": _("Register an agent"), "opts": self.opts, "form": form,
            "submit": _("Register"),
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/plain_form.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show an agent."""
        self.check_view(request)
        agent = self._agent(request, object_id)
        context = {
            **self.admin_site.each_context(request),
            "title": str(agent),
            "original": agent,
            "opts": self.opts,
            "agent": agent,
            "badge": agent_badge(agent),
            "labels": [(key, text(value)) for key, value in agent.labels.items()]
            if isinstance(agent.labels, dict)
            else [],
            "can": agent.capabilities,
            "seen": self.seen(agent),
            "created": moment(agent.created_at),
            "until": moment(agent.state_until) if agent.state_until else "",
            "processes": [
                {"name": one.name, "since": moment(one.first_seen_at), "seen": moment(one.last_seen_at)}
                for one in agent.instances.filter(last_seen_at__gt=Now() - LATELY)[:RECENT_PROCESSES]
            ],
            "tokens": self._tokens(request, agent),
            "jobs": self._jobs(request, agent),
            "jobs_url": f"{reverse('admin:jobs_agentjob_changelist')}?agent={agent.principal_key}",
            "can_govern": self.has_govern_permission(request),
            "can_issue": self.has_issue_permission(request),
            **self._connect(request, agent),
        }
        return TemplateResponse(request, self.change_form_template, context)

    @dialog_action(description=_("Set state"), url_path="state", permission="govern", asked=SET_STATE)
    def set_state(self, request: HttpRequest, form: StateForm, object_id: str) -> HttpResponse:
        """Let an agent work, pause, drain or disable it."""
        agent = self._agent(request, object_id)
        said = {name: form.cleaned_data[name] for name in ("state", "note", "until")}
        try:
            identities.set_state(agent_id=agent.pk, by=request.user.get_username(), **said)
        except Invalid as refusal:
            return ask_again(request, SET_STATE, form, refusal)
        messages.success(request, _("The agent is %(state)s now.") % {"state": Agent.State(said["state"]).label})
        return to(request, reverse("admin:jobs_agent_change", args=[agent.pk]))

    def token_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a note and an expiry; POST issues the token and is the only page that ever shows it."""
        if not self.has_issue_permission(request):
            raise PermissionDenied
        agent = self._agent(request, object_id)
        form = TokenForm(request.POST if request.method == "POST" else None)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Issue a token"),
            "opts": self.opts,
            "agent": agent,
        }
        if form.is_valid():
            said = {name: form.cleaned_data[name] for name in ("note", "expires_at")}
            try:
                issued = identities.issue_token(agent_id=agent.pk, by=request.user.get_username(), **said)
            except Invalid as refusal:
                for problem in refusal.problems:
                    form.add_error(problem.pointer.strip("/"), problem.message)
            else:
                context |= {"issued": issued, "server": settings.PUBLIC_URL, "title": _("Token for %s") % agent}
                return render(request, "agentstore/token_issued.html", context)
        context |= {"form": form, "submit": _("Issue token"), "text": SHOWN_ONCE}
        return TemplateResponse(request, "agentstore/plain_form.html", context)

    def _agent(self, request: HttpRequest, object_id: str) -> Agent:
        agent = self.get_queryset(request).filter(pk=uuid_or_404(object_id)).first()
        if agent is None:
            raise Http404
        return agent

    def _connect(self, request: HttpRequest, agent: Agent) -> dict[str, Any]:
        """What to type on a host, for those who may let one in; nobody connects one to a retired agent."""
        may_enrol = request.user.has_perm("jobs.add_enrolmentcode")
        if agent.state == Agent.State.DISABLED or not (may_enrol or self.has_issue_permission(request)):
            return {}
        asked = urlencode({"agent": agent.principal_key})
        url = f"{reverse('admin:jobs_enrolmentcode_add')}?{asked}" if may_enrol else ""
        return {"connect": connecting.commands(settings.PUBLIC_URL), "enrol_url": url}

    def _tokens(self, request: HttpRequest, agent: Agent) -> list[dict[str, Any]]:
        if not request.user.has_perm("jobs.view_agenttoken"):
            return []
        may_revoke = request.user.has_perm("jobs.change_agenttoken")
        found = []
        for token in agent.tokens.all():
            state = token_state(token)
            found.append({
                "prefix": token.prefix, "state": badge(state, TOKEN_STATES[state]), "note": token.note,
                "created": moment(token.created_at), "by": token.created_by,
                "expires": moment(token.expires_at) if token.expires_at else _("never"),
                "used": moment(token.last_used_at) if token.last_used_at else _("never"),
                "revoke_url": reverse("admin:jobs_agenttoken_revoke", args=[token.pk])
                if may_revoke and state == "live" else "",
            })  # fmt: skip
        return found

    def _jobs(self, request: HttpRequest, agent: Agent) -> list[dict[str, Any]]:
        if not request.user.has_perm("jobs.view_agentjob"):
            return []
        rows = AgentJob.objects.filter(agent=agent).order_by("-queued_at", "-id").defer("spec", "results")
        return [
            {
                "url": reverse("admin:jobs_agentjob_change", args=[job.pk]), "name": str(job),
                "status": badge(job.status, job.get_status_display()),
                "verdict": badge(job.verdict, job.get_verdict_display()) if job.verdict else NOTHING,
                "when": moment(job.queued_at),
            }
            for job in rows[:RECENT_JOBS]
        ]  # fmt: skip


TOKEN_STATES = {"live": _("live"), "revoked": _("revoked"), "expired": _("expired")}


def token_state(token: AgentToken) -> str:
    """Whether a bearer would be let in: live, revoked or expired."""
    if token.revoked_at:
        return "revoked"
    return "expired" if token.expires_at and token.expires_at <= now() else "live"


def agent_badge(agent: Agent) -> str:
    """What is wrong with an agent, else its state; `is_silent` and `is_cloned` are the list's annotations."""
    if agent.registered_at is None:
        return badge("unregistered", _("unregistered"))
    state = effective_state(agent, now())
    if getattr(agent, "is_cloned", False):
        return badge("cloned", _("cloned"))
    if getattr(agent, "is_silent", False) and state == Agent.State.ACTIVE:
        return badge("silent", _("silent"))
    return badge(state, Agent.State(state).label)


@admin.register(AgentToken)
class AgentTokenAdmin(GovernedAdmin):
    """Only a place for the revoke dialog; tokens are listed on their agent's page."""

    actions_detail = ("revoke",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """No entry of its own in the navigation."""
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may end bearers."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_agenttoken")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Lead to the agents."""
        self.check_view(request)
        return HttpResponseRedirect(reverse("admin:jobs_agent_changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the agent."""
        self.check_view(request)
        token = AgentToken.objects.filter(pk=uuid_or_404(object_id)).first()
        if token is None:
            raise Http404
        return HttpResponseRedirect(reverse("admin:jobs_agent_change", args=[token.agent_id]))

    @dialog_action(description=_("Revoke"), url_path="revoke", permission="revoke", asked=REVOKE)
    def revoke(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """End a bearer at once."""
        token_id = uuid_or_404(object_id)
        try:
            by, reason = request.user.get_username(), form.cleaned_data["reason"]
            ended = identities.revoke_token(token_id=token_id, by=by, reason=reason)
        except NotFound:
            raise Http404 from None
        if ended:
            messages.success(request, _("Revoked."))
        else:
            messages.warning(request, _("It was revoked before; nothing was changed."))
        return to(request, reverse("admin:jobs_agenttoken_change", args=[token_id]))
