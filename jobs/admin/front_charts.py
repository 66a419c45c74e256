"""The charts of the front page: how jobs ended in the last fourteen days, how long they waited and worked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.urls import reverse
from django.utils.formats import date_format
from django.utils.timezone import localdate
from django.utils.translation import gettext as _

from jobs.models import ended_jobs
from jobs.models.ended_jobs import A_DAY_AT_MOST, SAMPLE, Outcomes, Times

from .badges import NOTHING, span
from .charts import Cell, Chart, Piece, Row, ceiling, ceiling_of_time, columns_over, line, stacked
from .filters import midnight

DAYS = 14
WEEK = slice(-9, -2)  # of the days: the week before yesterday, which the last 24 hours do not touch


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A way to end, from the bottom of a bar up, and the query of its list."""

    name: str
    tone: str
    query: str
    label: Callable[[], str]


OUTCOMES = (
    Outcome(name="passed", tone="good", query="status=done&verdict=pass", label=lambda: _("pass")),
    Outcome(name="unjudged", tone="busy", query="status=done&verdict=none", label=lambda: _("done, no verdict")),
    Outcome(name="risk", tone="warn", query="status=done&verdict=risk", label=lambda: _("risk")),
    Outcome(name="fail", tone="bad", query="status=done&verdict=fail", label=lambda: _("verdict fail")),
    Outcome(name="failed", tone="worse", query="status=failed", label=lambda: _("failed")),
    Outcome(name="cancelled", tone="quiet", query="status=cancelled", label=lambda: _("cancelled")),
)


@dataclass(frozen=True, kw_only=True)
class Charts:
    """What is drawn, and what an ordinary day was like."""

    drawn: Sequence[Chart]
    wrong_a_day: float  # failures and risks, the mean of the week before yesterday


def charts() -> Charts:
    """Read and draw, in two queries."""
    today = localdate()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    spans = [(midnight(day), midnight(day + timedelta(days=1))) for day in days]
    ended, took = ended_jobs.outcomes(spans), ended_jobs.times(spans)
    week = ended[WEEK]
    return Charts(
        drawn=[
            _outcomes(days, ended),
            _latency("waited", _("From queued to claimed"), days, [waited for waited, _worked in took]),
            _latency("worked", _("From claimed to finished"), days, [worked for _waited, worked in took]),
        ],
        wrong_a_day=sum(day.wrong for day in week) / len(week),
    )  # fmt: skip


def _list(day: date, query: str) -> str:
    return f"{reverse('admin:jobs_agentjob_changelist')}?{query}&finished_from={day}&finished_to={day}"


def _outcomes(days: Sequence[date], ended: Sequence[Outcomes]) -> Chart:
    columns, rows = [], []
    for day, found in zip(days, ended, strict=True):
        said = date_format(day, "j M")
        counts = [(outcome, getattr(found, outcome.name)) for outcome in OUTCOMES]
        urls = {outcome.name: _list(day, f"{outcome.query}&latest=1") for outcome in OUTCOMES}
        columns.append([
            Piece(value=number, tone=outcome.tone, url=urls[outcome.name], title=f"{said}: {number} {outcome.label()}")
            for outcome, number in counts
        ])  # fmt: skip
        cells = [Cell(value=number, url=urls[outcome.name] if number else "") for outcome, number in counts]
        rows.append(Row(label=f"{said} *" if found.is_capped else said, cells=cells))
    top = ceiling(max(found.total for found in ended))
    used = [outcome for outcome in OUTCOMES if any(getattr(found, outcome.name) for found in ended)]
    is_capped = any(found.is_capped for found in ended)
    return Chart(
        key="outcomes", title=_("Jobs that ended"),
        note=_("last 14 days; * only %d of the day counted") % A_DAY_AT_MOST if is_capped else _("last 14 days"),
        top=f"{top:g}", ticks=_ticks(days), legend=[(outcome.tone, outcome.label()) for outcome in used],
        parts=stacked(columns, top), lines=(), head=[_("Day"), *(outcome.label() for outcome in OUTCOMES)],
        rows=rows, is_empty=not used,
    )  # fmt: skip


def _latency(key: str, title: str, days: Sequence[date], took: Sequence[Times]) -> Chart:
    top = ceiling_of_time(max((found.most or 0 for found in took), default=0))
    columns, rows = [], []
    for day, found in zip(days, took, strict=True):
        said, url = date_format(day, "j M"), _list(day, "status=done&status=failed&status=cancelled")
        half, most = in_time(found.median), in_time(found.most)
        told = _("%(day)s: half within %(half)s, 95 of 100 within %(most)s") % {"day": said, "half": half, "most": most}
        is_there = found.median is not None
        columns.append(Piece(value=1, tone="nothing", title=told, url=url) if is_there else None)
        rows.append(Row(label=said, cells=[Cell(value=half, url=url if is_there else ""), Cell(value=most)]))
    lines = [
        line([found.most for found in took], top, tone="warn", label=_("95 of 100 within")),
        line([found.median for found in took], top, tone="busy", label=_("half within")),
    ]
    return Chart(
        key=key, title=title, note=_("last 14 days"), top=in_time(top), ticks=_ticks(days),
        legend=[(one.tone, one.label) for one in lines], parts=columns_over(columns), lines=lines,
        head=[_("Day"), _("Half within"), _("95 of 100 within")], rows=rows, is_empty=not any(columns),
        help=_("Of each hour, the first %d attempts that ended.") % SAMPLE,
    )  # fmt: skip


def _ticks(days: Sequence[date]) -> list[str]:
    return [date_format(day, "j M") if number % 3 == 1 else "" for number, day in enumerate(days)]


def in_time(seconds: float | None) -> Any:
    """A length of time; what an SQL client wrote may be longer than a timedelta."""
    if seconds is None:
        return NOTHING
    return span(timedelta(seconds=seconds)) if seconds < timedelta.max.total_seconds() else _("for ever")
