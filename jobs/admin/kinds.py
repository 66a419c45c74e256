"""Kinds of jobs: what their specs must look like, and their limits. Disabled, never deleted."""

import re
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.engine.failure_classes import JITTER_PERCENT, MEANINGS, RULES, FailureClass, RetryRule, rule_of
from jobs.models import JobKind
from jobs.services import kind_registry
from jobs.services.errors import Invalid
from jobs.services.kinds import CONTRACTS

from .badges import badge
from .enqueue import JsonDocument, readable
from .governed import GovernedAdmin
from .job_page import pretty
from .trends import trends_url

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
NEVER, RETRY, MAX_RULE = "never", "retry_after_", 200


def _number(label: Any, allowed: range, help_text: Any, *, required: bool = True) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=allowed[0], max_value=allowed[-1], required=required, help_text=help_text,
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip


def _optional(name: str, label: Any, help_text: Any) -> forms.IntegerField:
    return _number(label, kind_registry.EVIDENCE[name], help_text, required=False)


class RetryDelays(forms.CharField):
    """Delays such as “1m 5m 15m …”: the value is a rule as `kind_registry` takes it, None when nothing is said.

    Each word is a number and s, m, h or d. Dots at the end repeat the last delay; “never” is no retry.
    """

    def __init__(self, word: FailureClass) -> None:
        super().__init__(
            label=_("After %(word)s") % {"word": word}, required=False, max_length=MAX_RULE,
            help_text=f"{MEANINGS[word]}.",
            widget=UnfoldAdminTextInputWidget(attrs={"placeholder": as_text(RULES[word]), "autocomplete": "off"}),
        )  # fmt: skip

    def to_python(self, value: Any) -> Any:
        """Read the rule, or say which word is no delay."""
        text = super().to_python(value) or ""
        words = text.replace("…", " … ").replace("...", " … ").replace(",", " ").lower().split()
        if not words:
            return None
        if words == [NEVER]:
            return {"delays": [], "repeats": False}
        repeats = words[-1] == "…"
        delays = [_seconds(word) for word in (words[:-1] if repeats else words)]
        return {"delays": delays, "repeats": repeats}

    def run_validators(self, value: Any) -> None:
        """Nothing: those of a text field read text, and `kind_registry` judges the rule."""

    def prepare_value(self, value: Any) -> Any:
        """The text of a stored rule; typed text stays what it is."""
        rule = rule_of(value)
        return as_text(rule) if rule else value


def as_text(rule: RetryRule) -> str:
    """A rule as `RetryDelays` reads it."""
    words = []
    for delay in rule.delays:
        unit = next(unit for unit, size in UNITS.items() if delay % size == 0) if delay else "s"
        words.append(f"{delay // UNITS[unit]}{unit}")
    return " ".join([*words, "…"] if rule.repeats else words) or NEVER


def _seconds(word: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})([dhms])", word)
    if match is None:
        raise forms.ValidationError(_("“%(word)s” is no delay: use 30s, 5m, 1h or 1d.") % {"word": word[:20]})
    return int(match[1]) * UNITS[match[2]]


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    """Fields of a form under one title; `text` says what they have in common."""

    title: Any
    text: Any
    fields: list[forms.BoundField]


class KindForm(forms.Form):
    """A kind. Names are those of the service, so that its problems find their fields."""

    name = forms.CharField(
        label=_("Name"), max_length=kind_registry.MAX_NAME, widget=UnfoldAdminTextInputWidget,
        help_text=_("What runners ask for, such as uat.quick-task. It never changes."),
    )  # fmt: skip
    title = forms.CharField(
        label=_("Title"), required=False, max_length=kind_registry.MAX_TEXT, widget=UnfoldAdminTextInputWidget
    )
    description = forms.CharField(
        label=_("Description"), required=False, max_length=kind_registry.MAX_TEXT,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
    )  # fmt: skip
    enabled = forms.BooleanField(
        label=_("Enabled"), required=False, initial=True, widget=UnfoldBooleanSwitchWidget,
        help_text=_("A disabled kind is not enqueued any more; what waits is still worked on."),
    )  # fmt: skip
    max_attempts = _number(
        _("Attempts at most"), kind_registry.ATTEMPTS, _("Automatic retries end here; people may go beyond.")
    )
    lease_seconds = _number(
        _("Lease (seconds)"), kind_registry.LEASE_SECONDS, required=False,
        help_text=_("A runner that is silent for so long has lost the job. Empty: the agent's own."),
    )  # fmt: skip
    max_run_seconds = _number(
        _("Maximum run time (seconds)"), kind_registry.RUN_SECONDS,
        _("The runner stops the work after it, else the system asks it to. Holds at once, for running work too."),
    )  # fmt: skip
    expire_after_seconds = _number(
        _("Waits at most (seconds)"), kind_registry.EXPIRE_SECONDS, required=False,
        help_text=_("A job that no agent has taken by then is cancelled. Empty: it waits for ever."),
    )  # fmt: skip
    retry_jitter_percent = _number(
        _("Spread of delays (percent)"),
        kind_registry.JITTER_PERCENT,
        _("So much of a delay is added at most, so that failures of one cause do not come back together."),
    )
    keep_files_days = _optional("keep_files_days", _("Keep files (days)"), _("Empty: as long as their job."))
    keep_jobs_days = _optional(
        "keep_jobs_days", _("Keep jobs (days)"), _("Ended jobs go after that, with their files. Empty: for ever.")
    )
    max_files = _optional("max_files", _("Files of a job at most"), _("Empty: as the installation allows."))
    max_file_bytes = _optional("max_file_bytes", _("Bytes of a file at most"), _("Empty: as the installation allows."))
    max_job_bytes = _optional(
        "max_job_bytes", _("Bytes of a job's files at most"), _("Empty: as the installation allows.")
    )
    schema = JsonDocument(
        label=_("JSON Schema of the spec"), strip=False,
        help_text=_("Draft 2020-12. The enqueue form is drawn from it."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 18, "class": "as-code", "spellcheck": "false"}),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for word in FailureClass:
            self.fields[f"{RETRY}{word}"] = RetryDelays(word)

    @property
    def groups(self) -> list[FieldGroup]:
        """The fields as the page shows them."""
        retries = [f"{RETRY}{word}" for word in FailureClass]
        return [
            self._group(_("Identity"), "", ["name", "title", "description", "enabled"]),
            self._group(
                _("Schema"), _("What a spec must look like; whoever enqueues one is told what does not fit."),
                ["schema"],
            ),
            self._group(
                _("Retries"),
                _("When a failed job is tried again by itself, by the class of its failure: one delay for each retry,"
                  " such as “1m 5m 15m”, in s, m, h or d. “…” at the end repeats the last delay until the attempts are"
                  " used up; “never” is no retry. Empty: as shown in grey."),
                ["max_attempts", "retry_jitter_percent", *retries],
            ),
            self._group(
                _("Limits"), _("How long work may be silent, run and wait, and how much it may store."),
                ["lease_seconds", "max_run_seconds", "expire_after_seconds", "max_files", "max_file_bytes",
                 "max_job_bytes"],
            ),
            self._group(
                _("Retention"), _("How long ended work is kept; a legal hold keeps it longer."),
                ["keep_jobs_days", "keep_files_days"],
            ),
        ]  # fmt: skip

    def _group(self, title: Any, text: Any, names: list[str]) -> FieldGroup:
        return FieldGroup(title=title, text=text, fields=[self[name] for name in names])

    @property
    def values(self) -> dict[str, Any]:
        """What the service takes: the retry fields become one value."""
        said: dict[str, Any] = self.cleaned_data
        rules = {word: rule for word in FailureClass if (rule := said[f"{RETRY}{word}"]) is not None}
        return {name: value for name, value in said.items() if not name.startswith(RETRY)} | {"retry_rules": rules}


@admin.register(JobKind)
class JobKindAdmin(GovernedAdmin):
    """Look at kinds, register them, change their schema and limits."""

    show_add_link = True
    list_display = ("name", "title", "switch", "max_attempts", "lease_seconds", "max_run_seconds")
    list_display_links = ("name",)
    sortable_by = ()
    fields = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may register kinds."""
        return request.user.has_perm("jobs.add_jobkind")

    @admin.display(description=_("state"))
    def switch(self, kind: JobKind) -> str:
        """Whether it can be enqueued."""
        return badge("enabled", _("enabled")) if kind.enabled else badge("disabled", _("disabled"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Register a kind."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        fresh = {
            "max_attempts": 3,
            "max_run_seconds": 3600,
            "retry_jitter_percent": JITTER_PERCENT,
            "schema": '{\n  "type": "object"\n}',
            "enabled": True,
        }
        form = KindForm(request.POST if request.method == "POST" else None, initial=fresh)
        if form.is_valid() and self._saved(form, kind_registry.register_kind):
            messages.success(request, _("Registered."))
            return HttpResponseRedirect(reverse("admin:jobs_jobkind_changelist"))
        return self._page(request, form, _("Register a kind"), _("Register"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a kind; those who may change it save here."""
        self.check_view(request)
        kind = self.get_object(request, object_id)
        if kind is None:
            raise Http404
        may_change = request.user.has_perm("jobs.change_jobkind")
        if request.method == "POST" and not may_change:
            raise PermissionDenied
        now = {name: getattr(kind, name) for name in KindForm.base_fields} | {"schema": pretty(kind.schema)}
        stored = kind.retry_rules if isinstance(kind.retry_rules, dict) else {}
        now |= {f"{RETRY}{word}": rule for word, rule in stored.items() if rule_of(rule) is not None}
        form = KindForm(request.POST if request.method == "POST" else None, initial=now)
        for name, field in form.fields.items():
            field.disabled = not may_change or name == "name" or (name == "schema" and kind.name in CONTRACTS)
        if form.is_valid() and self._saved(form, kind_registry.change_kind):
            messages.success(request, _("Saved."))
            return HttpResponseRedirect(reverse("admin:jobs_jobkind_change", args=[kind.pk]))
        trends = trends_url(kind.name) if request.user.has_perm("jobs.view_agentjob") else ""
        return self._page(request, form, str(kind), _("Save") if may_change else "", trends)

    def _saved(self, form: KindForm, save: Any) -> bool:
        try:
            save(**form.values)
        except Invalid as refusal:
            for problem in refusal.problems:
                name, _slash, rest = problem.pointer.removeprefix("/").partition("/")
                if name == "retry_rules":
                    name, rest = f"{RETRY}{rest}", ""
                place = f"{readable('/' + rest, form.cleaned_data['schema'])}: " if rest else ""
                form.add_error(name, f"{place}{problem.message}")
            return False
        return True

    def _page(self, request: HttpRequest, form: KindForm, title: Any, submit: Any, trends: str = "") -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": title, "opts": self.opts, "form": form, "submit": submit,
            "trends_url": trends,
        }  # fmt: skip
        return TemplateResponse(request, "agentstore/kind_form.html", context)
