"""The list of jobs, and the frame of a job's page."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from jobs.engine.failure_classes import known
from jobs.models import AgentJob, LegalHold
from jobs.services import acknowledging, exports, legal_holds
from jobs.services.errors import Invalid, NoResults

from .acknowledgements import in_words, offered_beside
from .badges import NOTHING, badge, moment, span
from .bulk import ActingOnMany
from .dialogs import ReasonForm, dialog, dialog_action, uuid_or_404
from .enqueue import enqueue_view
from .filters import (
    AgentFilter,
    EndedFilter,
    EndedOnFilter,
    KindFilter,
    LatestFilter,
    NewsFilter,
    QueuedFilter,
    StatusFilter,
    VerdictFilter,
)
from .job_page import job_context, offered
from .searching import rows_like
from .trends import trends_view

LIVE_ROWS = 100  # of a list, in one poll
HOLD = dialog(
    _("Place a legal hold?"),
    _("Neither this job nor its files are deleted, by retention or by anybody, until the hold is released."),
    _("Place hold"),
)
RELEASE = dialog(
    _("Release the legal hold?"),
    _("The retention of its kind decides again. What is over its time goes with the next turn of the maintenance."),
    _("Release hold"),
)


@admin.register(AgentJob)
class AgentJobAdmin(ActingOnMany):
    """Look at jobs, enqueue them, and act on them through dialogs."""

    rows = AgentJob.objects
    actions_detail = (*ActingOnMany.actions_detail, "hold_row", "release_row")
    show_add_link = True
    list_display = ("name", "agent_key", "state", "outcome", "try_number", "queued", "took", "created_by")
    list_display_links = ("name",)
    list_filter = (
        StatusFilter,
        VerdictFilter,
        NewsFilter,
        LatestFilter,
        KindFilter,
        AgentFilter,
        QueuedFilter,
        EndedFilter,
        EndedOnFilter,
    )
    list_before_template = "agentstore/live_list.html"
    search_fields = ("id",)  # shows the field; rows_like does the work
    search_help_text = _("Id, its beginning, dedupe or concurrency key, or run")
    ordering = (F("queued_at").desc(), F("id").desc())
    sortable_by = ()
    fields = ()
    change_form_template = "agentstore/job_page.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Enqueueing is the one way to add a job."""
        return request.user.has_perm("jobs.add_agentjob")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AgentJob]:
        """Leave out what no list shows: specs and results of fifty rows are megabytes."""
        return AgentJob.objects.defer("spec", "results", "details", "labels").order_by(*self.ordering)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AgentJob], search_term: str
    ) -> tuple[QuerySet[AgentJob], bool]:
        """Rows by id, key or run."""
        return rows_like(queryset, search_term, "dedupe_key", "concurrency_key", "run_ref"), False

    def has_hold_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may place and release legal holds."""
        return self._may(request, "hold")

    has_release_permission = has_hold_permission

    @dialog_action(description=_("Legal hold"), icon="gavel", url_path="hold", permission="hold", asked=HOLD)
    def hold_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Keep a job and its files from being deleted."""

        def act(row_id: UUID, **said: str) -> UUID:
            legal_holds.place_hold(job_id=row_id, **said)
            messages.success(request, _("The job is under a legal hold."))
            return row_id

        return self._answer(request, HOLD, form, object_id, act)

    @dialog_action(
        description=_("Release hold"), icon="lock_open", url_path="release", permission="hold", asked=RELEASE
    )
    def release_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Let retention decide again."""

        def act(row_id: UUID, **said: str) -> UUID:
            legal_holds.release_hold(job_id=row_id, **said)
            messages.success(request, _("The legal hold is released."))
            return row_id

        return self._answer(request, RELEASE, form, object_id, act)

    @admin.display(description=_("job"))
    def name(self, job: AgentJob) -> str:
        """The kind, and enough of the id to tell rows apart."""
        return str(job)

    @admin.display(description=_("agent"))
    def agent_key(self, job: AgentJob) -> str:
        """The key, as SQL clients write it; it needs no join."""
        return str(job.agent_id)

    @admin.display(description=_("status"))
    def state(self, job: AgentJob) -> str:
        """The status; a running job that was asked to stop says so."""
        if job.status == AgentJob.Status.RUNNING and job.cancel_requested_at:
            return badge("running", _("stopping"))
        return badge(job.status, job.get_status_display())

    @admin.display(description=_("verdict"))
    def outcome(self, job: AgentJob) -> str:
        """The verdict, or why the work failed."""
        if job.verdict:
            return badge(job.verdict, job.get_verdict_display())
        return known(job.failure_class).value if job.failure_class else NOTHING

    @admin.display(description=_("attempt"))
    def try_number(self, job: AgentJob) -> str:
        """Which attempt of how many."""
        return f"{job.attempt}/{max(job.attempt, job.max_attempts)}"

    @admin.display(description=_("queued"))
    def queued(self, job: AgentJob) -> str:
        """When it was queued, in words."""
        return moment(job.queued_at)

    @admin.display(description=_("took"))
    def took(self, job: AgentJob) -> str:
        """How long the work took."""
        return span(job.finished_at - job.started_at) if job.finished_at and job.started_at else NOTHING

    def get_urls(self) -> list[URLPattern]:
        """Add what the pages poll."""
        guarded = self.admin_site.admin_view
        return [
            path("trends/", guarded(self.trends_view), name="jobs_agentjob_trends"),
            path("live/", guarded(self.live_view), name="jobs_agentjob_live"),
            path("<path:object_id>/part/", guarded(self.part_view), name="jobs_agentjob_part"),
            path("<path:object_id>/results/", guarded(self.results_view), name="jobs_agentjob_results"),
            *super().get_urls(),
        ]

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """The changing cells of the rows on screen, as JSON by id."""
        self.check_view(request)
        wanted = [uuid_or_404(text) for text in request.GET.getlist("id")[:LIVE_ROWS]]
        rows = self.get_queryset(request).filter(pk__in=wanted)
        cells = {str(job.pk): [str(self.state(job)), str(self.outcome(job)), str(self.took(job))] for job in rows}
        return JsonResponse({"cells": cells})

    def trends_view(self, request: HttpRequest) -> HttpResponse:
        """The last runs of a kind, check by check."""
        return trends_view(self, request)

    def part_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of the page that refreshes itself."""
        self.check_view(request)
        return render(request, "agentstore/job_part.html", self._context(request, self._job(object_id)))

    def results_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The results as a file for another tool."""
        self.check_view(request)
        try:
            export = exports.results_of(job=self._job(object_id), form=request.GET.get("format", "json"))
        except (Invalid, NoResults) as refusal:
            raise Http404(str(refusal)) from None
        return HttpResponse(
            export.content,
            content_type=export.content_type,
            headers={"Content-Disposition": f'attachment; filename="{export.file_name}"', "Cache-Control": "no-store"},
        )

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Enqueue a job."""
        return enqueue_view(self, request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a job; a POST has nothing to save."""
        self.check_view(request)
        job = self._job(object_id)
        context = {
            **self.admin_site.each_context(request),
            **self._context(request, job),
            "title": str(job),
            "opts": self.opts,
            "media": self.media,
            "part_url": reverse("admin:jobs_agentjob_part", args=[job.pk]),
        }
        return TemplateResponse(request, self.change_form_template, context)

    def _job(self, object_id: str) -> AgentJob:
        job = AgentJob.objects.select_related("agent").filter(pk=uuid_or_404(object_id)).first()
        if job is None:
            raise Http404
        return job

    def _context(self, request: HttpRequest, job: AgentJob) -> dict[str, Any]:
        rows = AgentJob.objects.all()
        is_latest = not rows.filter(retry_of=job.pk).exists()
        hold = LegalHold.objects.filter(root_id=job.chain_id).first()
        said = acknowledging.holding(job)
        beside = (*offered_beside(job, said, is_latest=is_latest), "release_row" if hold else "hold_row")
        context = job_context(
            job, request, self.buttons(request, job, (*offered(job, rows, is_latest=is_latest), *beside))
        )
        return context | {"hold": hold, "known": in_words(said, job) if said else None}
