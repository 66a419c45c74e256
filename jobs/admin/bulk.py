"""Cancel and retry what was chosen in the list of jobs: a page that asks, then one that tells what became of each."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget

from jobs.models import AgentJob
from jobs.services import bulk, governance
from jobs.services.bulk import AT_MOST, Came, Outcome
from jobs.services.errors import Invalid

from .acknowledgements import AcknowledgingActions
from .badges import badge

ID_LENGTH = 37  # characters, with its comma


@dataclass(frozen=True, kw_only=True)
class Act:
    """What is done to many jobs."""

    verb: str
    title: Any
    text: Any
    submit: Any
    do: Callable[..., list[Outcome]]

    @property
    def route(self) -> str:
        """The name of the address that acts."""
        return f"jobs_agentjob_{self.verb}_many"


CANCEL = Act(
    verb="cancel", title=gettext_lazy("Cancel these jobs?"), submit=gettext_lazy("Cancel jobs"), do=bulk.cancel_many,
    text=gettext_lazy("What waits is cancelled at once. Running agents are asked to stop with their next heartbeat."),
)  # fmt: skip
RETRY = Act(
    verb="retry", title=gettext_lazy("Retry these jobs?"), submit=gettext_lazy("Retry jobs"), do=bulk.retry_many,
    text=gettext_lazy("Each failed job gets a new attempt with the same content. What did not fail is left as it is."),
)  # fmt: skip
WORDS = {
    Came.CANCELLED: gettext_lazy("cancelled"), Came.ASKED: gettext_lazy("asked to stop"),
    Came.RETRIED: gettext_lazy("retried"), Came.LEFT: gettext_lazy("left as they were"),
}  # fmt: skip
LOOKS = {Came.CANCELLED: "done", Came.ASKED: "waiting", Came.RETRIED: "done", Came.LEFT: "skipped"}


class ManyForm(forms.Form):
    """The jobs as they were when the page asked, how many they are, and why."""

    chosen = forms.CharField(widget=forms.HiddenInput, max_length=ID_LENGTH * AT_MOST)
    number = forms.IntegerField(
        label=gettext_lazy("Number of jobs"), min_value=1, max_value=AT_MOST,
        help_text=gettext_lazy("Type how many jobs this is about."),
        widget=UnfoldAdminIntegerFieldWidget(attrs={"autocomplete": "off"}),
    )  # fmt: skip
    reason = forms.CharField(
        label=gettext_lazy("Reason"), max_length=governance.MAX_REASON,
        help_text=gettext_lazy("Kept in the audit trail of each job."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )  # fmt: skip

    def clean_chosen(self) -> list[UUID]:
        """The ids, each once."""
        try:
            return list(dict.fromkeys(UUID(text) for text in self.cleaned_data["chosen"].split(",")))
        except ValueError:
            raise forms.ValidationError(_("Choose jobs in the list first.")) from None

    def clean(self) -> dict[str, Any]:
        """The number that was typed must be that of the jobs."""
        said: dict[str, Any] = self.cleaned_data
        number = len(said.get("chosen", ()))
        if number and said.get("number") not in (None, number):
            self.add_error("number", _("These are %d jobs.") % number)
        return said


class ActingOnMany(AcknowledgingActions):
    """The actions of the list, their page, and what they came to."""

    actions = ("cancel_chosen", "retry_chosen")

    @admin.action(description=gettext_lazy("Cancel…"), permissions=["cancel"])
    def cancel_chosen(self, request: HttpRequest, queryset: QuerySet[AgentJob]) -> HttpResponse:
        """Ask about the jobs chosen, or about all that match."""
        return self._ask_about(request, CANCEL, queryset)

    @admin.action(description=gettext_lazy("Retry…"), permissions=["retry"])
    def retry_chosen(self, request: HttpRequest, queryset: QuerySet[AgentJob]) -> HttpResponse:
        """Ask about the jobs chosen, or about all that match."""
        return self._ask_about(request, RETRY, queryset)

    def get_urls(self) -> list[URLPattern]:
        """Add where the pages post to."""
        guarded = self.admin_site.admin_view
        return [
            path("cancel-many/", guarded(self.cancel_many_view), name=CANCEL.route),
            path("retry-many/", guarded(self.retry_many_view), name=RETRY.route),
            *super().get_urls(),
        ]

    def cancel_many_view(self, request: HttpRequest) -> HttpResponse:
        """Cancel what the page asked about."""
        return self._act(request, CANCEL)

    def retry_many_view(self, request: HttpRequest) -> HttpResponse:
        """Retry what the page asked about."""
        return self._act(request, RETRY)

    def _ask_about(self, request: HttpRequest, act: Act, queryset: QuerySet[AgentJob]) -> HttpResponse:
        found = list(queryset.values_list("pk", flat=True)[: AT_MOST + 1])
        form = ManyForm(initial={"chosen": ",".join(map(str, found[:AT_MOST]))})
        return self._ask(request, act, form, found[:AT_MOST], is_capped=len(found) > AT_MOST)

    def _act(self, request: HttpRequest, act: Act) -> HttpResponse:
        if not self._may(request, act.verb):
            raise PermissionDenied
        form = ManyForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            said = form.cleaned_data
            try:
                done = act.do(job_ids=said["chosen"], by=request.user.get_username(), reason=said["reason"])
            except Invalid as refusal:
                for problem in refusal.problems:
                    form.add_error(problem.pointer.removeprefix("/"), problem.message)
            else:
                return self._tell(request, act, done)
        if "chosen" in form.errors or not form.is_bound:
            messages.error(request, _("Choose jobs in the list first, at most %d.") % AT_MOST)
            return HttpResponseRedirect(reverse("admin:jobs_agentjob_changelist"))
        return self._ask(request, act, form, form.cleaned_data["chosen"])

    def _ask(
        self, request: HttpRequest, act: Act, form: ManyForm, ids: Sequence[UUID], *, is_capped: bool = False
    ) -> HttpResponse:
        statuses = Counter(AgentJob.objects.filter(pk__in=ids).values_list("status", flat=True))
        context = {
            "title": act.title,
            "act": act,
            "form": form,
            "url": reverse(f"admin:{act.route}"),
            "number": len(ids),
            "counts": [(badge(word, AgentJob.Status(word).label), number) for word, number in statuses.items()],
            "is_capped": is_capped,
            "at_most": AT_MOST,
        }
        return self._page(request, "agentstore/many_asked.html", context)

    def _tell(self, request: HttpRequest, act: Act, done: Sequence[Outcome]) -> HttpResponse:
        jobs = AgentJob.objects.only("kind").in_bulk([one.asked_for for one in done])
        counted = Counter(one.came for one in done)
        context = {
            "title": _("Done"),
            "summary": ", ".join(f"{counted[came]} {WORDS[came]}" for came in Came if counted[came]),
            "rows": [
                {
                    "name": jobs.get(one.asked_for, one.asked_for), "url": self.page_of(one.row_id), "why": one.why,
                    "came": badge(LOOKS[one.came], _("left as it was") if one.came is Came.LEFT else WORDS[one.came]),
                } for one in sorted(done, key=lambda one: one.came is not Came.LEFT)
            ],
        }  # fmt: skip
        return self._page(request, "agentstore/many_told.html", context)

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        return TemplateResponse(
            request, template, {**self.admin_site.each_context(request), "opts": self.opts, **context}
        )
