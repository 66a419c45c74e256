"""The form of a schedule, and what its cron expression means: in words, with the next times, while it is typed."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from jobs.models import JobKind, Schedule
from jobs.services import schedule_registry as registry
from jobs.services.calendar import MAX_EXPRESSION, BadExpression, BadZone, calendar, zones
from jobs.services.errors import Invalid
from jobs.services.kinds import CONTRACTS
from jobs.services.scheduling import ScheduleRetired, is_paused

from .badges import badge, in_words
from .enqueue import JsonDocument, Place, WorkForm, show_problems
from .job_page import pretty, text

MAX_ZONE = 60


def _number(label: Any, allowed: range, help_text: Any, *, required: bool = True) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=allowed[0], max_value=allowed[-1], required=required, help_text=help_text,
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip


class CalendarForm(forms.Form):
    """When something is due, and what becomes of a time that was missed. Names are those of the service."""

    name = forms.CharField(
        label=_("Name"), max_length=registry.MAX_NAME, strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": True}), help_text=_("What it makes carries it."),
    )  # fmt: skip
    expression = forms.CharField(
        label=_("Cron expression"), max_length=MAX_EXPRESSION, strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text=_("Minute, hour, day of the month, month, day of the week; such as 30 2 * * 1-5."),
    )  # fmt: skip
    zone = forms.CharField(
        label=_("Time zone"), max_length=MAX_ZONE, initial="UTC", strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"list": "zones", "spellcheck": "false", "autocomplete": "off"}),
        help_text=_("Such as Europe/Berlin. A local time that the clocks skip comes right after the gap."),
    )  # fmt: skip
    misfire = forms.ChoiceField(
        label=_("Missed times"), choices=Schedule.Misfire.choices, widget=UnfoldAdminSelectWidget,
        help_text=_("What happens to times that nobody could act on, such as in an outage."),
    )  # fmt: skip
    splay_seconds = _number(
        _("Splay (seconds)"), registry.SPLAY_SECONDS,
        _("Each agent begins later by an offset of its own within it, so that many do not start together."),
    )  # fmt: skip
    grace_seconds = _number(
        _("Late after (seconds)"), registry.GRACE_SECONDS, _("A time that is noticed later than this was missed.")
    )

    WHEN: tuple[str, ...] = ("expression", "zone")
    RULES: tuple[str, ...] = ("misfire", "splay_seconds", "grace_seconds")
    FRESH: Mapping[str, Any] = {
        "zone": "UTC", "misfire": Schedule.Misfire.LATEST, "splay_seconds": 0, "grace_seconds": 300,
    }  # fmt: skip

    @property
    def when(self) -> list[forms.BoundField]:
        """The fields of the calendar."""
        return [self[name] for name in self.WHEN]

    @property
    def rules(self) -> list[forms.BoundField]:
        """The fields of the policies."""
        return [self[name] for name in self.RULES]

    @property
    def outlook(self) -> dict[str, Any]:
        """What the page says of the calendar as it stands in the fields."""
        return preview(str(self["expression"].value() or ""), str(self["zone"].value() or ""))


class ScheduleForm(CalendarForm, WorkForm):
    """A schedule of jobs."""

    overlap = forms.ChoiceField(
        label=_("Overlap"), choices=Schedule.Overlap.choices, widget=UnfoldAdminSelectWidget,
        help_text=_("What happens when the job of an earlier time is still open, retries that wait included."),
    )  # fmt: skip
    catch_up_limit = _number(_("Catch up at most"), registry.CATCH_UP, _("When all missed times are run."))
    expires_after_seconds = _number(
        _("Expires after (seconds)"), registry.EXPIRY_SECONDS, required=False,
        help_text=_("Cancelled if no agent has taken the job by then. Empty: as its kind says."),
    )  # fmt: skip
    labels = JsonDocument(
        label=_("Labels (JSON)"), required=False, widget=UnfoldAdminTextInputWidget,
        help_text=_('Such as {"team": "shop"}; each job carries them.'),
    )  # fmt: skip

    RULES = ("overlap", "misfire", "splay_seconds")
    MORE = ("grace_seconds", "catch_up_limit", "expires_after_seconds", "priority", "concurrency_key", "labels")
    FRESH: Mapping[str, Any] = {
        **CalendarForm.FRESH, "overlap": Schedule.Overlap.SKIP, "catch_up_limit": 10, "priority": 0, "spec": "{}",
    }  # fmt: skip

    @property
    def more_is_open(self) -> bool:
        """Whether one of the rare fields says something unusual."""
        usual = {"grace_seconds": 300, "catch_up_limit": 10, "priority": 0}
        return any(
            self[name].errors or self[name].value() not in (None, "", usual.get(name), str(usual.get(name)))
            for name in self.MORE
        )


def schedule_form_view(model_admin: Any, request: HttpRequest, schedule: Schedule | None) -> HttpResponse:
    """Show the form of a new or of an existing schedule; POST saves through the service."""
    if not request.user.has_perm("jobs.change_schedule" if schedule else "jobs.add_schedule"):
        raise PermissionDenied
    kinds = list(JobKind.objects.filter(enabled=True).only("name", "title", "description", "schema"))
    name = request.GET.get("kind") or (schedule.kind if schedule else "")
    kind = next((one for one in kinds if one.name == name), kinds[0] if len(kinds) == 1 and not name else None)
    places: list[Place] = []
    form = ScheduleForm(request.POST if request.method == "POST" else None, initial=_initial(schedule, kind))
    if request.method == "POST" and kind and form.is_valid():
        try:
            return _save(request, form, kind, schedule)
        except Invalid as refusal:
            places = show_problems(form, refusal.problems)
        except ScheduleRetired as refusal:
            form.add_error(None, str(refusal))
    context = {
        **model_admin.admin_site.each_context(request),
        **form.outlook,
        "title": _("Change %s") % schedule if schedule else _("New schedule"),
        "opts": model_admin.opts, "original": schedule, "form": form, "kinds": kinds, "kind": kind, "places": places,
        "zones": sorted(zones()),
        "schema": CONTRACTS[kind.name].schema if kind and kind.name in CONTRACTS else kind and kind.schema,
        "pointers": [{"pointer": place.pointer, "message": place.message} for place in places],
    }  # fmt: skip
    return TemplateResponse(request, "agentstore/schedule_form.html", context)


def preview(expression: str, zone: str) -> dict[str, Any]:
    """What the fragment under the fields says: words and the next times, or what is wrong; nothing for no text."""
    if not expression.strip():
        return {"outlook": None, "wrong": ""}
    try:
        found = registry.outlook(expression, zone)
    except (BadExpression, BadZone) as refusal:
        return {"outlook": None, "wrong": str(refusal)}
    at = now()
    times = [(time, in_zone(time, found.calendar.zone), in_words(time, at)) for time in found.times]
    return {"outlook": found, "times": times, "wrong": ""}


def words_of(schedule: Schedule) -> str:
    """What the expression of a schedule means, or why it means nothing here."""
    try:
        return calendar(schedule.expression, schedule.zone).words
    except (BadExpression, BadZone) as refusal:  # the time zone database of this machine may lack it
        return str(refusal)


def state_badge(schedule: Schedule) -> str:
    """The state at this moment; a pause whose end has passed is over."""
    state = Schedule.State(schedule.state)
    if state == Schedule.State.PAUSED and not is_paused(schedule, now()):
        state = Schedule.State.ACTIVE
    return badge(state.value, state.label)


def in_zone(time: Any, zone: Any) -> str:
    """A time on the wall of a zone, with the zone's own short name at that time."""
    return date_format(time.astimezone(zone), "D j M Y H:i T")


def _initial(schedule: Schedule | None, kind: JobKind | None) -> dict[str, Any]:
    if schedule is None:
        return dict(ScheduleForm.FRESH)
    same_kind = kind is not None and kind.name == schedule.kind
    said = {name: getattr(schedule, name) for name in ScheduleForm.base_fields if hasattr(schedule, name)}
    return said | {
        "agent": schedule.agent.principal_key if schedule.agent else "",
        "concurrency_key": schedule.concurrency_key or "",
        "spec": pretty(schedule.spec) if same_kind else "{}",
        "labels": text(schedule.labels) if schedule.labels else "",
    }  # fmt: skip


def _save(request: HttpRequest, form: ScheduleForm, kind: JobKind, schedule: Schedule | None) -> HttpResponse:
    said = form.cleaned_data | {"kind": kind.name, "priority": form.cleaned_data["priority"] or 0}
    definition, by = registry.Definition(**said), request.user.get_username()
    if schedule:
        registry.change_schedule(definition, schedule_id=schedule.pk, by=by)
        messages.success(request, _("Saved. It holds for the times from now on."))
        return HttpResponseRedirect(reverse("admin:jobs_schedule_change", args=[schedule.pk]))
    made = registry.create_schedule(definition, by=by)
    messages.success(request, _("Created."))
    return HttpResponseRedirect(reverse("admin:jobs_schedule_change", args=[made.pk]))
