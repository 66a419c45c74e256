"""The page of trends: the last runs of one kind, check by check, and how long they took."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.http import urlencode
from django.utils.timezone import localtime, now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from jobs.models import Agent, AgentJob, JobKind, Schedule
from jobs.models.kind_runs import LOOKED_AT, RUNS_AT_MOST, Run, last_runs
from jobs.services.documents import UNSTORABLE

from .badges import LOOKS, NOTHING, UNKNOWN, in_words
from .charts import Cell, Chart, Piece, Row, ceiling_of_time, stacked
from .front_charts import in_time
from .trend_matrix import ROWS_AT_MOST, CheckTrend, matrix

if TYPE_CHECKING:
    from .jobs import AgentJobAdmin

MAX_CHOICES, MAX_TEXT = 500, 200
LENGTHS = (10, 20, 30, RUNS_AT_MOST)
USUAL = 30
MARKS = {"passed": "\N{CHECK MARK}", "pass": "\N{CHECK MARK}", "done": "\N{CHECK MARK}",
         "failed": "\N{MULTIPLICATION X}", "fail": "\N{MULTIPLICATION X}", "error": "!", "risk": "!",
         "skipped": "\N{EN DASH}", "": ""}  # fmt: skip
TONES = {"failed": "worse", "fail": "bad", "risk": "warn", "pass": "good", "done": "busy"}
WORDS = {
    "passed": gettext_lazy("passed"), "failed": gettext_lazy("failed"), "error": gettext_lazy("not evaluated"),
    "skipped": gettext_lazy("skipped"), "pass": gettext_lazy("pass"), "fail": gettext_lazy("fail"),
    "risk": gettext_lazy("risk"), "done": gettext_lazy("done, no verdict"), "": gettext_lazy("not in this run"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One cell of the matrix."""

    tone: str
    sign: str
    words: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """One check of the matrix, and what to make of it."""

    trend: CheckTrend
    marks: Sequence[Mark]
    rate: str
    since: str
    since_url: str


class TrendForm(forms.Form):
    """Which runs; each field but the kind may stay empty."""

    kind = forms.ChoiceField(label=gettext_lazy("Kind"), widget=UnfoldAdminSelectWidget)
    agent = forms.ChoiceField(label=gettext_lazy("Agent"), required=False, widget=UnfoldAdminSelectWidget)
    schedule = forms.ChoiceField(label=gettext_lazy("Schedule"), required=False, widget=UnfoldAdminSelectWidget)
    label = forms.CharField(
        label=gettext_lazy("Label"), required=False, max_length=MAX_TEXT,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "branch=main"}),
    )  # fmt: skip
    runs = forms.TypedChoiceField(
        label=gettext_lazy("Runs"), coerce=int, initial=USUAL,
        choices=[(length, length) for length in LENGTHS], widget=UnfoldAdminSelectWidget,
    )  # fmt: skip

    def __init__(self, data: dict[str, str]) -> None:
        super().__init__(data)
        kinds = list(JobKind.objects.values_list("name", flat=True)[:MAX_CHOICES])
        agents = list(Agent.objects.values_list("principal_key", flat=True)[:MAX_CHOICES])
        schedules = Schedule.objects.filter(backup_job=None).values_list("pk", "name")[:MAX_CHOICES]
        fields: dict[str, Any] = self.fields
        fields["kind"].choices = [(name, name) for name in _with(kinds, data["kind"])]
        fields["agent"].choices = [("", _("All agents")), *((key, key) for key in _with(agents, data["agent"]))]
        fields["schedule"].choices = [("", _("All")), *((str(key), name) for key, name in schedules)]

    def clean_label(self) -> tuple[str, str]:
        """The key and the value."""
        text = self.cleaned_data["label"]
        key, sign, value = (part.strip() for part in text.partition("="))
        if text and not (key and sign):
            raise forms.ValidationError(_("A label is written as key=value."))
        return key, value

    def clean_schedule(self) -> UUID | None:
        """Its id."""
        return UUID(self.cleaned_data["schedule"]) if self.cleaned_data["schedule"] else None


def trends_url(kind: str, **narrowed: str) -> str:
    """The page about a kind."""
    return f"{reverse('admin:jobs_agentjob_trends')}?{urlencode({'kind': kind, **narrowed})}"


def trends_view(model_admin: "AgentJobAdmin", request: HttpRequest) -> HttpResponse:
    """Show the runs that the query string names; without a kind, those of the kind that ended last."""
    model_admin.check_view(request)
    said = {name: request.GET.get(name, "") for name in TrendForm.base_fields}
    if not said["kind"]:
        last = (
            AgentJob.objects.filter(finished_at__isnull=False).order_by("-finished_at").values_list("kind", flat=True)
        )
        said["kind"] = last.first() or ""
    said["runs"] = said["runs"] or str(USUAL)
    form = TrendForm(said)
    runs = last_runs(**form.cleaned_data) if form.is_valid() else []
    trends = matrix(runs)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Trends"),
        "opts": model_admin.opts,
        "form": form,
        "runs": [_run_mark(run) for run in runs],
        "rows": [_row(trend, runs) for trend in trends[:ROWS_AT_MOST]],
        "left_out": len(trends) - ROWS_AT_MOST if len(trends) > ROWS_AT_MOST else 0,
        "too_large": sum(run.is_too_large for run in runs),
        "facts": _facts(runs, trends) if runs else (),
        "chart": _durations(runs[::-1]) if runs else None,
        "looked_at": LOOKED_AT,
        "is_narrowed": form.is_valid() and any((said["agent"], said["schedule"], said["label"])),
    }
    return TemplateResponse(request, "agentstore/trends.html", context)


def _with(choices: list[str], chosen: str) -> list[str]:
    """The choices, and a kind or agent beyond them: SQL clients name what nobody registered."""
    is_there = not chosen or chosen in choices or UNSTORABLE.search(chosen) or len(chosen) > MAX_TEXT
    return choices if is_there else [*choices, chosen]


def _page(run: Run) -> str:
    return reverse("admin:jobs_agentjob_change", args=[run.id])


def _clock(run: Run) -> str:
    return date_format(localtime(run.finished_at), "j M H:i")


def _mark(word: str, words: str, url: str = "") -> Mark:
    tone = LOOKS.get(word, UNKNOWN).tone if word else "none"
    return Mark(tone=tone, sign=MARKS.get(word, "?"), words=words, url=url)


def _run_mark(run: Run) -> Mark:
    what = WORDS.get(run.outcome, run.outcome)
    why = f" ({run.failure_class})" if run.status == "failed" and run.failure_class else ""
    return _mark(run.outcome, f"{_clock(run)}: {what}{why}, {run.agent}", _page(run))


def _row(trend: CheckTrend, runs: Sequence[Run]) -> CheckRow:
    marks = [
        _mark(state, f"{_clock(run)}: {WORDS.get(state, state)}") for run, state in zip(runs, trend.states, strict=True)
    ]
    since, url = "", ""
    if trend.failing_since:
        when = {"when": in_words(trend.failing_since.finished_at, now()), "n": trend.failing_runs}
        since = (
            _("for longer than %(when)s, %(n)d runs") if trend.is_older else _("since %(when)s, %(n)d runs")
        ) % when
        url = _page(trend.failing_since)
    rate = f"{100 * trend.passed // trend.judged} %" if trend.judged else NOTHING
    return CheckRow(trend=trend, marks=marks, rate=rate, since=since, since_url=url)


def _facts(runs: Sequence[Run], trends: Sequence[CheckTrend]) -> list[tuple[str, Any]]:
    good = sum(run.outcome == "pass" for run in runs)
    took = [run.seconds for run in runs if run.seconds is not None]
    return [
        (_("Runs"), len(runs)),
        (_("Verdict pass"), f"{good} ({100 * good // len(runs)} %)"),
        (_("Half took at most"), in_time(median(took)) if took else NOTHING),
        (_("Failing checks"), sum(trend.failing_since is not None for trend in trends)),
        (_("Flaky checks"), sum(trend.is_flaky for trend in trends)),
        (_("Specs"), len({run.spec_digest for run in runs})),
    ]


def _durations(runs: Sequence[Run]) -> Chart:
    top = ceiling_of_time(max((run.seconds or 0 for run in runs), default=0))
    every = -(-len(runs) // 6)
    titles = [f"{_clock(run)}: {in_time(run.seconds)}, {WORDS.get(run.outcome, run.outcome)}" for run in runs]
    columns = [
        [Piece(
            value=max(run.seconds or 0, top / 1000), tone=TONES.get(run.outcome, "quiet"), title=title, url=_page(run)
        )] for run, title in zip(runs, titles, strict=True)
    ]  # fmt: skip
    used = [word for word in TONES if any(run.outcome == word for run in runs)]
    return Chart(
        key="durations", title=_("How long they took"), note=_("oldest first"), top=str(in_time(top)),
        ticks=[_day(run) if number % every == every // 2 else "" for number, run in enumerate(runs)],
        legend=[(TONES[word], WORDS[word]) for word in used], parts=stacked(columns, top), lines=(),
        head=[_("Ended"), _("Took"), _("Outcome")], is_empty=False,
        rows=[
            Row(label=_clock(run), cells=[
                Cell(value=in_time(run.seconds), url=_page(run)), Cell(value=WORDS.get(run.outcome, run.outcome)),
            ]) for run in runs
        ],
    )  # fmt: skip


def _day(run: Run) -> str:
    return date_format(localtime(run.finished_at), "j M")
