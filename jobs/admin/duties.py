"""What the clock does: the list of duties, and what the front page says of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.models import MaintenanceDuty, Uptime

from .badges import NOTHING, badge, in_words, moment, span
from .governed import GovernedAdmin

LATE = timedelta(minutes=1)  # a duty that is overdue for so long has no loop that does it
DEAF = timedelta(seconds=30)  # the first probes after a start find a web server that is not there yet
FAILURES = 2  # in a row; a single one is tried again after a second
SHOWN = 160  # characters of an error in a list


@admin.register(MaintenanceDuty)
class MaintenanceDutyAdmin(GovernedAdmin):
    """A list to read; loops write it."""

    list_display = ("name", "state", "every", "success", "took", "due", "error", "leased_by")
    rows_have_pages = False
    list_filter = ()
    list_filter_submit = False
    ordering = ("name",)
    sortable_by = ()

    @admin.display(description=gettext_lazy("state"))
    def state(self, duty: MaintenanceDuty) -> str:
        """How it stands now."""
        return state(duty, now())

    @admin.display(description=gettext_lazy("interval"))
    def every(self, duty: MaintenanceDuty) -> str:
        """How often it is done."""
        return _interval(duty)

    @admin.display(description=gettext_lazy("last success"))
    def success(self, duty: MaintenanceDuty) -> str:
        """When it last ended well."""
        return moment(duty.last_success_at)

    @admin.display(description=gettext_lazy("took"))
    def took(self, duty: MaintenanceDuty) -> str:
        """How long the last go took."""
        return span(timedelta(seconds=duty.last_seconds)) if duty.last_seconds is not None else NOTHING

    @admin.display(description=gettext_lazy("due"))
    def due(self, duty: MaintenanceDuty) -> str:
        """When it is done next."""
        return moment(duty.due_at)

    @admin.display(description=gettext_lazy("last error"))
    def error(self, duty: MaintenanceDuty) -> str:
        """What went wrong last, and when."""
        if duty.last_error_at is None:
            return NOTHING
        return f"{in_words(duty.last_error_at, now())}: {_short(duty.last_error)}"


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """The clock at a glance: one word, what is wrong (empty when nothing is), and a line for each duty."""

    word: Any
    trouble: Any
    note: Any
    rows: Sequence[dict[str, Any]]

    @classmethod
    def seen(cls, at: datetime) -> "Maintenance":
        """The maintenance as it stands; two queries."""
        duties = list(MaintenanceDuty.objects.order_by("name"))
        word, trouble = _trouble(duties, Uptime.objects.first(), at)
        done = max((duty.last_success_at for duty in duties if duty.last_success_at), default=None)
        note = _("last done %s") % in_words(done, at) if done else _("nothing done yet")
        return cls(word=word, trouble=trouble, note=note, rows=[_row(duty, at) for duty in duties])


def state(duty: MaintenanceDuty, at: datetime) -> SafeString | str:
    """How a duty stands, as a badge."""
    if duty.failures:
        return badge("failed", _("failing"))
    if _is_late(duty, at):
        return badge("failed", _("late"))
    if _is_held(duty, at):
        return badge("running", _("running"))
    return badge("done", _("on time")) if duty.last_success_at else badge("queued", _("not yet"))


def _is_held(duty: MaintenanceDuty, at: datetime) -> bool:
    return duty.leased_until is not None and duty.leased_until > at


def _is_late(duty: MaintenanceDuty, at: datetime) -> bool:
    return duty.due_at < at - LATE and not _is_held(duty, at)


def _trouble(duties: Sequence[MaintenanceDuty], uptime: Uptime | None, at: datetime) -> tuple[Any, Any]:
    """One word, and what is wrong: the worst first."""
    if not duties:
        return _("never ran"), _("lost jobs stay open until it runs: manage.py maintain --loop 5")
    late = [duty.name for duty in duties if _is_late(duty, at)]
    if len(late) == len(duties):
        return _("not running"), _("lost jobs stay open until it runs: manage.py maintain --loop 5")
    if late:
        return _("late"), _("overdue: %s") % ", ".join(late)
    if failing := [duty for duty in duties if duty.failures >= FAILURES]:
        return _("failing"), f"{failing[0].name}: {_short(failing[0].last_error)}"
    if uptime and uptime.fault and uptime.seen_at < at - DEAF:
        return _("deaf"), _("agents cannot be heard, so nothing is reaped: %s") % _short(uptime.fault)
    return _("on time"), ""


def _interval(duty: MaintenanceDuty) -> str:
    return span(timedelta(seconds=duty.every_seconds)) if duty.every_seconds else NOTHING


def _row(duty: MaintenanceDuty, at: datetime) -> dict[str, Any]:
    return {
        "name": duty.name,
        "state": state(duty, at),
        "success": moment(duty.last_success_at, at=at),
        "every": _interval(duty),
        "took": span(timedelta(seconds=duty.last_seconds)) if duty.last_seconds is not None else NOTHING,
        "due": moment(duty.due_at, at=at),
        "error": _short(duty.last_error) if duty.failures else "",
    }


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
