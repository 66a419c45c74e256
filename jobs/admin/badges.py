"""How states look: an icon and a word, never colour alone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.template.loader import render_to_string
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime, now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Look:
    """The colour and the icon of a word."""

    tone: str  # a class of admin.css: quiet, busy, good, bad, warn
    icon: str  # a Material symbol


LOOKS = {
    "queued": Look("quiet", "schedule"),
    "pending": Look("quiet", "schedule"),
    "claimed": Look("busy", "back_hand"),
    "running": Look("busy", "progress_activity"),
    "done": Look("good", "check"),
    "succeeded": Look("good", "check"),
    "partial_failure": Look("warn", "warning"),
    "failed": Look("bad", "error"),
    "cancelled": Look("quiet", "block"),
    "pass": Look("good", "check_circle"),
    "fail": Look("bad", "cancel"),
    "risk": Look("warn", "warning"),
    "passed": Look("good", "check_circle"),
    "error": Look("warn", "report"),
    "skipped": Look("quiet", "skip_next"),
    "enqueued": Look("good", "check"),
    "missed": Look("warn", "event_busy"),
    "retired": Look("quiet", "archive"),
    "critical": Look("bad", "priority_high"),
    "major": Look("warn", "keyboard_arrow_up"),
    "minor": Look("quiet", "remove"),
    "info": Look("quiet", "info"),
    "active": Look("good", "check_circle"),
    "paused": Look("warn", "pause_circle"),
    "draining": Look("warn", "hourglass_bottom"),
    "disabled": Look("quiet", "block"),
    "enabled": Look("good", "check_circle"),
    "silent": Look("bad", "signal_disconnected"),
    "cloned": Look("bad", "content_copy"),
    "unregistered": Look("warn", "help"),
    "revoked": Look("quiet", "block"),
    "expired": Look("quiet", "timer_off"),
    "used up": Look("quiet", "done_all"),
    "held": Look("quiet", "hourglass_top"),
    "waiting": Look("busy", "outbox"),
    "sent": Look("good", "check_circle"),
    "dead": Look("bad", "error"),
    "refused": Look("warn", "error"),
    "digested": Look("quiet", "list"),
    "live": Look("good", "check_circle"),
    "good": Look("good", "check_circle"),
    "damaged": Look("bad", "broken_image"),
    "complete": Look("good", "check_circle"),
    "partial": Look("warn", "warning"),
    "on time": Look("good", "check"),
    "overdue": Look("bad", "alarm"),
}
UNKNOWN = Look("quiet", "help")


def badge(word: str | None, label: Any = None) -> SafeString | str:
    """A state as a badge; a dash for none."""
    if not word:
        return NOTHING
    look = LOOKS.get(word, UNKNOWN)
    context = {"tone": look.tone, "icon": look.icon, "label": label or word}
    return SafeString(render_to_string("agentstore/badge.html", context).strip())


def moment(value: datetime | None, *, at: datetime | None = None) -> SafeString | str:
    """A time in words, with the exact time as its tooltip; a dash for none."""
    if value is None:
        return NOTHING
    exact = date_format(localtime(value), "Y-m-d H:i:s T")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', value.isoformat(), exact, in_words(value, at or now())
    )


def in_words(value: datetime, at: datetime) -> str:
    """How long ago, or until when, in one unit; a date beyond a fortnight."""
    distance = at - value
    ahead = distance < timedelta()
    distance = abs(distance)
    if distance < timedelta(seconds=10):
        return str(_("just now") if not ahead else _("in a moment"))
    if distance > timedelta(days=14):
        return date_format(localtime(value), "j M Y")
    words = span(distance)
    return str(_("in %s") if ahead else _("%s ago")) % words


def span(length: timedelta | None) -> str:
    """A length of time in its largest fitting unit, two units for what took minutes; a dash for none."""
    if length is None:
        return NOTHING
    seconds = int(length.total_seconds())
    if seconds < 1:
        return str(_("%d ms")) % round(length.total_seconds() * 1000)
    if seconds < 60:
        return str(_("%d s")) % seconds
    if seconds < 3600:
        minutes, rest = divmod(seconds, 60)
        return str(_("%(m)d min %(s)d s") if rest else _("%(m)d min")) % {"m": minutes, "s": rest}
    if seconds < 2 * 86400:
        hours, rest = divmod(seconds // 60, 60)
        return str(_("%(h)d h %(m)d min") if rest else _("%(h)d h")) % {"h": hours, "m": rest}
    days = seconds // 86400
    return ngettext("%d day", "%d days", days) % days


def size(count: int) -> str:
    """A number of bytes with a binary unit."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
