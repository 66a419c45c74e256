"""The enqueue page: a form drawn from the kind's JSON Schema, which works as a plain text field too."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from jobs.models import Agent, AgentJob, JobKind
from jobs.services import documents, governance
from jobs.services.errors import Duplicate, Invalid
from jobs.services.kinds import CONTRACTS

from .job_page import pretty

if TYPE_CHECKING:
    from unfold.admin import ModelAdmin

MAX_AGENTS = 1000


class JsonDocument(forms.CharField):
    """Text that must be a JSON document; the value is what `documents.parse` makes of it."""

    def to_python(self, value: Any) -> Any:
        """Parse, or say where the text stops being JSON."""
        text = super().to_python(value)
        if not text:
            return None
        try:
            return documents.parse(text.encode("utf-8", "surrogatepass"))
        except documents.Malformed as fault:
            raise forms.ValidationError(str(fault)) from None

    def run_validators(self, value: Any) -> None:
        """Nothing: those of a text field read text, and `governance.enqueue` judges the document."""

    def validate(self, value: Any) -> None:
        """Require a document; `{}` and `[]` are documents."""
        if value is None and self.required:
            raise forms.ValidationError(self.error_messages["required"], code="required")


class LocalMoment(forms.DateTimeField):
    """A time picked in the browser, in the zone that the page names."""

    widget = forms.DateTimeInput

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            required=False,
            widget=UnfoldAdminTextInputWidget(attrs={"type": "datetime-local", "step": "60"}),
            **kwargs,
        )

    def prepare_value(self, value: Any) -> Any:
        """The form that a browser's picker reads; typed text stays what it is."""
        shown = super().prepare_value(value)
        return shown.strftime("%Y-%m-%dT%H:%M") if hasattr(shown, "strftime") else shown


def agent_choices() -> list[tuple[str, Any]]:
    """The agents that may be given work, for a field; a single one is chosen already."""
    agents = Agent.objects.exclude(state=Agent.State.DISABLED).values_list("principal_key", "title", "state")
    choices = [(key, _described(key, title, state)) for key, title, state in agents[:MAX_AGENTS]]
    return [("", _("Choose an agent")), *choices] if len(choices) != 1 else choices


class WorkForm(forms.Form):
    """What is to be done, by whom, and how. Names are those of the services, so that their problems find the fields."""

    agent = forms.ChoiceField(label=_("Agent"), widget=UnfoldAdminSelectWidget)
    spec = JsonDocument(
        label=_("Spec"),
        strip=False,
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 22, "class": "as-code", "spellcheck": "false", "autocapitalize": "off", "autocorrect": "off"}
        ),
    )
    priority = forms.IntegerField(
        label=_("Priority"), initial=0, required=False, min_value=governance.PRIORITIES[0],
        max_value=governance.PRIORITIES[-1], widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("Higher goes first; 0 is normal."),
    )  # fmt: skip
    concurrency_key = forms.CharField(
        label=_("Concurrency key"), required=False, max_length=governance.MAX_KEY, widget=UnfoldAdminTextInputWidget,
        help_text=_("Jobs of one key run one after the other."),
    )  # fmt: skip

    MORE: tuple[str, ...] = ("priority", "concurrency_key")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["agent"]
        field.choices = agent_choices()

    @property
    def more(self) -> list[forms.BoundField]:
        """The fields that most jobs leave alone."""
        return [self[name] for name in self.MORE]

    @property
    def more_is_open(self) -> bool:
        """Whether one of them says something."""
        return any(self[name].errors or self[name].value() not in (None, "", 0, "0") for name in self.MORE)


class EnqueueForm(WorkForm):
    """What a job is made of."""

    not_before = LocalMoment(label=_("Not before"), help_text=_("UTC. The job waits until then."))
    expires_at = LocalMoment(
        label=_("Expires"), help_text=_("UTC. Cancelled if no agent has taken it by then. Empty: as its kind says.")
    )
    dedupe_key = forms.CharField(
        label=_("Dedupe key"), required=False, max_length=governance.MAX_KEY, widget=UnfoldAdminTextInputWidget,
        help_text=_("At most one live job may hold it."),
    )  # fmt: skip
    again = forms.UUIDField(required=False, widget=forms.HiddenInput)

    MORE = ("priority", "not_before", "expires_at", "dedupe_key", "concurrency_key")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A problem of the spec with its place in words."""

    pointer: str
    place: str
    message: str


def enqueue_view(model_admin: "ModelAdmin", request: HttpRequest) -> HttpResponse:
    """Show the form for the chosen kind; POST enqueues through the service and leads to the job."""
    if not request.user.has_perm("jobs.add_agentjob"):
        raise PermissionDenied
    kinds = list(JobKind.objects.filter(enabled=True).only("name", "title", "description", "schema"))
    origin = _origin(request)
    kind = _chosen(request, kinds, origin)
    places: list[Place] = []
    if request.method == "POST" and kind:
        form = EnqueueForm(request.POST)
        if form.is_valid():
            try:
                return _enqueue(request, form, kind)
            except Invalid as refusal:
                places = show_problems(form, refusal.problems)
            except Duplicate as refusal:
                form.add_error("dedupe_key", _duplicate(refusal))
    else:
        form = EnqueueForm(initial=_initial(origin, kind))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Enqueue a job"),
        "opts": model_admin.opts,
        "form": form,
        "kinds": kinds,
        "kind": kind,
        "origin": origin,
        "places": places,
        "schema": CONTRACTS[kind.name].schema if kind and kind.name in CONTRACTS else kind and kind.schema,
        "pointers": [{"pointer": place.pointer, "message": place.message} for place in places],
    }
    return TemplateResponse(request, "agentstore/enqueue.html", context)


def readable(pointer: str, document: Any) -> str:
    """A JSON pointer in words: names of members, list entries counted from one with their title or id."""
    words, here = [], document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and key.isdigit() and len(key) < 10:
            here = here[int(key)] if int(key) < len(here) else None
            name = (here.get("title") or here.get("id")) if isinstance(here, dict) else None
            words.append(f"{int(key) + 1}. {name}" if isinstance(name, str) else f"{int(key) + 1}.")
        else:
            here = here.get(key) if isinstance(here, dict) else None
            words.append(key)
    return " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ".join(words) or str(_("the whole document"))


def _described(key: str, title: str, state: str) -> str:
    named = f"{title} ({key})" if title else key
    return named if state == Agent.State.ACTIVE else f"{named} ({Agent.State(state).label})"


def _origin(request: HttpRequest) -> AgentJob | None:
    text = request.POST.get("again") or request.GET.get("again") or ""
    try:
        return AgentJob.objects.filter(pk=UUID(text)).first()
    except ValueError:
        return None


def _chosen(request: HttpRequest, kinds: list[JobKind], origin: AgentJob | None) -> JobKind | None:
    name = request.GET.get("kind") or (origin.kind if origin else "")
    found = next((kind for kind in kinds if kind.name == name), None)
    return found or (kinds[0] if len(kinds) == 1 and not name else None)


def _initial(origin: AgentJob | None, kind: JobKind | None) -> dict[str, Any]:
    if origin is None:
        return {"spec": "{}"}
    same_kind = kind is not None and kind.name == origin.kind
    return {
        "agent": origin.agent_id, "spec": pretty(origin.spec) if same_kind else "{}", "priority": origin.priority,
        "concurrency_key": origin.concurrency_key or "", "again": origin.pk,
    }  # fmt: skip


def _enqueue(request: HttpRequest, form: EnqueueForm, kind: JobKind) -> HttpResponse:
    said = form.cleaned_data
    done = governance.enqueue(
        by=request.user.get_username(), kind=kind.name, agent=said["agent"], spec=said["spec"],
        priority=said["priority"] or 0, not_before=said["not_before"], expires_at=said["expires_at"],
        dedupe_key=said["dedupe_key"], concurrency_key=said["concurrency_key"], root_of=said["again"],
    )  # fmt: skip
    messages.success(request, _("Enqueued for %(agent)s.") % {"agent": done.agent})
    return HttpResponseRedirect(reverse("admin:jobs_agentjob_change", args=[done.job_id]))


def show_problems(form: WorkForm, problems: tuple[Problem, ...]) -> list[Place]:
    """Put each problem at its field; those of the spec also with their place in words."""
    places = []
    for problem in problems:
        name, _slash, rest = problem.pointer.removeprefix("/").partition("/")
        if name == "spec":
            pointer = f"/{rest}" if rest else ""
            place = Place(pointer=pointer, place=readable(pointer, form.cleaned_data["spec"]), message=problem.message)
            places.append(place)
            form.errors.setdefault("spec", form.error_class()).append(f"{place.place}: {place.message}")
        else:
            form.errors.setdefault(name if name in form.fields else "__all__", form.error_class()).append(
                problem.message
            )
    return places


def _duplicate(refusal: Duplicate) -> Any:
    if refusal.job_id is None:
        return str(refusal)
    url = reverse("admin:jobs_agentjob_change", args=[refusal.job_id])
    return format_html('{} <a href="{}">{}</a>', str(refusal), url, _("See it"))
