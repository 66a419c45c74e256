"""Schedules: when which job is enqueued by the clock, and what came of each time. Retired here, never deleted."""

from datetime import UTC, tzinfo
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, OuterRef, QuerySet, Subquery, Value, When
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget

from jobs.models import AuditEvent, Schedule, ScheduleSlot
from jobs.services import schedule_registry as registry
from jobs.services import scheduling
from jobs.services.calendar import BadExpression, BadZone, calendar, splay_offset
from jobs.services.errors import Invalid, NotFound, Refusal

from .backup_schedules import backup_schedule_view, new_schedule_view
from .badges import NOTHING, badge, moment
from .dialogs import ReasonForm, ask_again, dialog, dialog_action, to, uuid_or_404
from .enqueue import LocalMoment
from .filters import AgentFilter, ScheduleStateFilter
from .governed import GovernedAdmin
from .job_page import pretty, text
from .schedule_form import preview, schedule_form_view, state_badge, words_of
from .schedule_slots import shown_slot
from .timeline import Line

RECENT_SLOTS, RECENT_LINES = 25, 50


class PauseForm(BaseDialogForm):
    """Why a schedule rests, and until when."""

    note = forms.CharField(
        label=_("Note"), max_length=registry.MAX_NOTE, help_text=_("Why; whoever waits for the job reads it."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "autofocus": True}),
    )  # fmt: skip
    until = LocalMoment(label=_("Until"), help_text=_("UTC. Empty: until somebody resumes."))


PAUSE = dialog(
    _("Pause this schedule?"),
    _("Times that come in the pause are skipped. Jobs that were enqueued before go on."),
    _("Pause"),
    form=PauseForm,
)
RESUME = dialog(
    _("Resume this schedule?"), _("Times that fell into the pause stay skipped."), _("Resume"), form=BaseDialogForm
)
RUN = dialog(
    _("Run this schedule now?"),
    _("Its job is enqueued at once, as if it were due. The next time stays as it is."),
    _("Run now"),
    form=BaseDialogForm,
)
RETIRE = dialog(
    _("Retire this schedule?"),
    _("It is never due again and cannot come back; its name is free for another one. Jobs that wait go on."),
    _("Retire"),
)
BUTTONS = ("run", "pause", "resume", "retire")


@admin.register(Schedule)
class ScheduleAdmin(GovernedAdmin):
    """Look at schedules, define them, and act on them through dialogs."""

    show_add_link = True
    list_display = ("name", "agent_key", "when", "next_due", "last_outcome", "shown_state")
    list_display_links = ("name",)
    list_filter = (ScheduleStateFilter, AgentFilter)
    search_fields = ("name__icontains",)
    search_help_text = _("Words of the name")
    sortable_by = ()
    fields = ()
    actions_detail = BUTTONS
    change_form_template = "agentstore/schedule_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may define schedules."""
        return request.user.has_perm("jobs.add_schedule")

    def has_edit_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may change and retire schedules."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_schedule")

    def has_pause_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may pause and resume."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.pause_schedule")

    def has_run_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may run a schedule by hand."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.run_schedule")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Schedules with what came of their latest time; the retired ones last."""
        latest = ScheduleSlot.objects.filter(schedule=OuterRef("pk")).order_by("-due_at")
        is_retired = Case(When(state=Schedule.State.RETIRED, then=Value(1)), default=Value(0))
        schedules = Schedule.objects.defer("spec", "labels").select_related("agent")
        return schedules.annotate(came=Subquery(latest.values("outcome")[:1])).order_by(is_retired, "name", "pk")

    @admin.display(description=_("agent"))
    def agent_key(self, schedule: Schedule) -> str:
        """The key of the agent that shall work."""
        return str(schedule.agent.principal_key) if schedule.agent else NOTHING

    @admin.display(description=_("when"))
    def when(self, schedule: Schedule) -> str:
        """The expression in words, with its zone."""
        return f"{words_of(schedule)} ({schedule.zone})"

    @admin.display(description=_("next due"))
    def next_due(self, schedule: Schedule) -> str:
        """When it is due next."""
        return moment(schedule.next_due_at)

    @admin.display(description=_("last time"))
    def last_outcome(self, schedule: Schedule) -> str:
        """What came of its latest time."""
        came: str | None = schedule.came  # type: ignore[attr-defined]  # the annotation
        return badge(came, dict(ScheduleSlot.Outcome.choices).get(came or ""))

    @admin.display(description=_("state"))
    def shown_state(self, schedule: Schedule) -> str:
        """The state at this moment; a pause whose end has passed is over."""
        return state_badge(schedule)

    def get_urls(self) -> list[URLPattern]:
        """Add the form of an existing schedule, and what the form asks for while somebody types."""
        guarded = self.admin_site.admin_view
        return [
            path("preview/", guarded(self.preview_view), name="jobs_schedule_preview"),
            path("<path:object_id>/edit/", guarded(self.edit_view), name="jobs_schedule_edit"),
            *super().get_urls(),
        ]

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """What an expression means in a zone, and its next times."""
        self.check_view(request)
        said = preview(request.GET.get("expression", ""), request.GET.get("zone", ""))
        return render(request, "agentstore/schedule_preview.html", said)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Define a schedule: of jobs, or of the backup job that the address names."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if "backup_job" in request.GET:
            return new_schedule_view(self, request, request.GET["backup_job"])
        return schedule_form_view(self, request, None)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a schedule."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        schedule = self._schedule(object_id)
        if schedule.backup_job:
            return backup_schedule_view(self, request, schedule.backup_job, schedule)
        return schedule_form_view(self, request, schedule)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a schedule with its next and its past times; a POST has nothing to save."""
        self.check_view(request)
        schedule = self._schedule(object_id)
        zone = _zone(schedule)
        is_live = schedule.state != Schedule.State.RETIRED
        context = {
            **self.admin_site.each_context(request),
            **(preview(schedule.expression, schedule.zone) if is_live else {}),
            "title": str(schedule), "original": schedule, "opts": self.opts, "media": self.media,
            "schedule": schedule, "badge": state_badge(schedule), "words": words_of(schedule), "is_live": is_live,
            "until": moment(schedule.state_until) if scheduling.is_paused(schedule, now()) else "",
            "facts": _facts(schedule),
            "actions": self._buttons(request, schedule),
            "edit_url": reverse("admin:jobs_schedule_edit", args=[schedule.pk])
            if is_live and self.has_edit_permission(request) else "",
            "backup_url": reverse("admin:jobs_backupjob_change", args=[schedule.backup_job_id])
            if schedule.backup_job_id and request.user.has_perm("jobs.view_backupjob") else "",
            "agent_url": reverse("admin:jobs_agent_change", args=[schedule.agent.pk])
            if schedule.agent and request.user.has_perm("jobs.view_agent") else "",
            "slots": [shown_slot(slot, zone) for slot in schedule.slots.order_by("-due_at")[:RECENT_SLOTS]],
            "slots_url": f"{reverse('admin:jobs_scheduleslot_changelist')}?schedule={schedule.pk}",
            "timeline": _timeline(schedule),
            "spec": pretty(schedule.spec),
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)

    @dialog_action(description=_("Run now"), icon="play_arrow", url_path="run", permission="run", asked=RUN)
    def run(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """Enqueue the job at once."""
        schedule_id = uuid_or_404(object_id)
        try:
            job_id = scheduling.run_now(schedule_id=schedule_id, by=request.user.get_username())
        except Refusal as refusal:
            return self._refused(request, schedule_id, refusal)
        if self._schedule(object_id).backup_job_id:
            messages.success(request, _("Launched."))
            return to(request, reverse("admin:jobs_backupjobrun_change", args=[job_id]))
        messages.success(request, _("Enqueued."))
        return to(request, reverse("admin:jobs_agentjob_change", args=[job_id]))

    @dialog_action(description=_("Pause"), icon="pause_circle", url_path="pause", permission="pause", asked=PAUSE)
    def pause(self, request: HttpRequest, form: PauseForm, object_id: str) -> HttpResponse:
        """Let the times pass."""
        schedule_id = uuid_or_404(object_id)
        said = {name: form.cleaned_data[name] for name in ("note", "until")}
        try:
            registry.pause_schedule(schedule_id=schedule_id, by=request.user.get_username(), **said)
        except Invalid as refusal:
            return ask_again(request, PAUSE, form, refusal)
        except Refusal as refusal:
            return self._refused(request, schedule_id, refusal)
        return self._done(request, schedule_id, _("Paused."))

    @dialog_action(description=_("Resume"), icon="resume", url_path="resume", permission="pause", asked=RESUME)
    def resume(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """End the pause."""
        schedule_id = uuid_or_404(object_id)
        try:
            registry.resume_schedule(schedule_id=schedule_id, by=request.user.get_username())
        except Refusal as refusal:
            return self._refused(request, schedule_id, refusal)
        return self._done(request, schedule_id, _("Resumed."))

    @dialog_action(description=_("Retire"), icon="archive", url_path="retire", permission="edit", asked=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """End it for good."""
        schedule_id = uuid_or_404(object_id)
        said = {"by": request.user.get_username(), "reason": form.cleaned_data["reason"]}
        try:
            registry.retire_schedule(schedule_id=schedule_id, **said)
        except Invalid as refusal:
            return ask_again(request, RETIRE, form, refusal)
        except Refusal as refusal:
            return self._refused(request, schedule_id, refusal)
        return self._done(request, schedule_id, _("Retired."))

    def _done(self, request: HttpRequest, schedule_id: Any, said: Any) -> HttpResponse:
        messages.success(request, said)
        return to(request, reverse("admin:jobs_schedule_change", args=[schedule_id]))

    def _refused(self, request: HttpRequest, schedule_id: Any, refusal: Refusal) -> HttpResponse:
        match refusal:
            case NotFound():
                raise Http404
            case scheduling.Overlaps(job_id=job_id):
                url = reverse("admin:jobs_agentjob_change", args=[job_id])
                messages.error(request, format_html('{} <a href="{}">{}</a>', str(refusal), url, _("See it")))
            case Invalid(problems=problems):
                messages.error(request, " ".join(problem.message for problem in problems))
            case _:
                messages.error(request, str(refusal))
        return to(request, reverse("admin:jobs_schedule_change", args=[schedule_id]))

    def _buttons(self, request: HttpRequest, schedule: Schedule) -> list[dict[str, Any]]:
        if schedule.state == Schedule.State.RETIRED:
            return []
        is_active = schedule.state == Schedule.State.ACTIVE
        may_pause = self.has_pause_permission(request)
        offered = {
            "run": self.has_run_permission(request), "pause": may_pause,
            "resume": may_pause and not is_active, "retire": self.has_edit_permission(request),
        }  # fmt: skip
        found = [(name, self.get_unfold_action(name)) for name, is_offered in offered.items() if is_offered]
        return [
            {"name": name, "label": act.description, "icon": act.icon,
             "url": reverse(f"admin:{act.action_name}", args=[schedule.pk])}
            for name, act in found
        ]  # fmt: skip

    def _schedule(self, object_id: str) -> Schedule:
        schedule = Schedule.objects.select_related("agent", "backup_job").filter(pk=uuid_or_404(object_id)).first()
        if schedule is None:
            raise Http404
        return schedule


def _zone(schedule: Schedule) -> tzinfo:
    try:
        return calendar(schedule.expression, schedule.zone).zone
    except (BadExpression, BadZone):
        return UTC


def _facts(schedule: Schedule) -> list[tuple[Any, Any]]:
    splay = schedule.splay_seconds
    spread = _("up to %d s, by agent") % splay
    if schedule.agent:
        offset = splay_offset(schedule.agent.principal_key, splay).total_seconds()
        spread = _("%(offset)d s of at most %(splay)d s") % {"offset": offset, "splay": splay}
    facts = [
        (_("Cron expression"), schedule.expression),
        (_("Time zone"), schedule.zone),
        (_("Overlap"), schedule.get_overlap_display()),
        (_("Missed times"), schedule.get_misfire_display()),
        (_("Late after"), _("%d s") % schedule.grace_seconds),
        (_("Catch up at most"), schedule.catch_up_limit if schedule.misfire == Schedule.Misfire.ALL else ""),
        (_("Splay"), spread if splay else ""),
        (_("Expires after"), _("%d s") % schedule.expires_after_seconds if schedule.expires_after_seconds else ""),
        (_("Priority"), schedule.priority or ""),
        (_("Concurrency key"), schedule.concurrency_key or ""),
        (_("Labels"), ", ".join(f"{key}={text(value)}" for key, value in schedule.labels.items())
         if isinstance(schedule.labels, dict) else ""),
        (_("Created by"), schedule.created_by),
    ]  # fmt: skip
    return [(label, value) for label, value in facts if value != ""]


def _timeline(schedule: Schedule) -> list[Line]:
    acts = {
        "created": _("created"), "changed": _("changed"), "paused": _("paused"), "active": _("resumed"),
        "retired": _("retired"),
    }  # fmt: skip
    events = AuditEvent.objects.filter(subject_id=schedule.pk).order_by("-id")[:RECENT_LINES]
    return [
        Line(
            at=event.at, attempt=1, word=event.tag, who=event.actor, why=event.reason,
            what=str(acts.get(event.details.get("act"), event.get_tag_display())),
        )
        for event in events
    ]  # fmt: skip
