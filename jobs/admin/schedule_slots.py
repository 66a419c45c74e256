"""Slots: every time that a schedule was due, with its job or with the reason why there is none."""

from datetime import tzinfo
from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from jobs.models import ScheduleSlot

from .badges import NOTHING, badge, moment, span
from .filters import DueFilter, OutcomeFilter, ScheduleFilter
from .governed import GovernedAdmin
from .schedule_form import in_zone


@admin.register(ScheduleSlot)
class ScheduleSlotAdmin(GovernedAdmin):
    """Every time of every schedule, with what came of it."""

    list_display = ("due", "schedule_name", "came", "why", "work", "who")
    rows_have_pages = False
    list_filter = (OutcomeFilter, ScheduleFilter, DueFilter)
    list_select_related = ("schedule",)
    ordering = ("-due_at", "-id")
    sortable_by = ()
    fields = ()

    @admin.display(description=_("due"))
    def due(self, slot: ScheduleSlot) -> str:
        """When it was due."""
        return moment(slot.due_at)

    @admin.display(description=_("schedule"))
    def schedule_name(self, slot: ScheduleSlot) -> str:
        """The schedule, which leads to its page."""
        url = reverse("admin:jobs_schedule_change", args=[slot.schedule_id])
        return format_html('<a href="{}">{}</a>', url, slot.schedule.name)

    @admin.display(description=_("outcome"))
    def came(self, slot: ScheduleSlot) -> str:
        """What came of it."""
        return badge(slot.outcome, slot.get_outcome_display())

    @admin.display(description=_("reason"))
    def why(self, slot: ScheduleSlot) -> str:
        """Why there is no job."""
        return slot_reason(slot) or NOTHING

    @admin.display(description=_("job"))
    def work(self, slot: ScheduleSlot) -> str:
        """The job or run of this time, or the one that stood in its way."""
        made = _work(slot)
        return format_html('<a href="{}">{}</a>', made[1], made[0]) if made else NOTHING

    @admin.display(description=_("run by"))
    def who(self, slot: ScheduleSlot) -> str:
        """Who ran it by hand."""
        return slot.requested_by or NOTHING

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the page of the schedule, which has the slot."""
        self.check_view(request)
        slot = (
            ScheduleSlot.objects.filter(pk=object_id).first() if object_id.isdecimal() and len(object_id) < 19 else None
        )
        if slot is None:
            raise Http404
        return HttpResponseRedirect(reverse("admin:jobs_schedule_change", args=[slot.schedule_id]))


def slot_reason(slot: ScheduleSlot) -> str:
    """Why a slot has no job, in words."""
    why = str(slot.get_reason_display()) if slot.reason else ""
    return f"{why}: {slot.note}" if slot.note else why


def shown_slot(slot: ScheduleSlot, zone: tzinfo) -> dict[str, Any]:
    """A slot as its schedule's page shows it."""
    late = slot.recorded_at - slot.due_at
    name, url = _work(slot) or ("", "")
    return {
        "due": in_zone(slot.due_at, zone), "iso": slot.due_at.isoformat(), "by": slot.requested_by,
        "badge": badge(slot.outcome, slot.get_outcome_display()), "why": slot_reason(slot),
        "late": span(late) if late.total_seconds() >= 60 else "",
        "job": name, "url": url,
    }  # fmt: skip


def _work(slot: ScheduleSlot) -> tuple[str, str] | None:
    """The job or the backup run of a time, else the one that stood in its way: its short id and its page."""
    for found, page in ((slot.job_id, "agentjob"), (slot.run_id, "backupjobrun"),
                        (slot.open_job_id, "agentjob"), (slot.open_run_id, "backupjobrun")):  # fmt: skip
        if found:
            return str(found)[:8], reverse(f"admin:jobs_{page}_change", args=[found])
    return None
