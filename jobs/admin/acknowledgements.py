"""Saying that a failure is known: who looks after it, and until when it is no news."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget

from jobs.models import Acknowledgement, AgentJob
from jobs.services import acknowledging
from jobs.services.errors import Invalid, NotFound

from .badges import moment
from .dialogs import LeasedActions, ReasonForm, ask_again, dialog, dialog_action, to, uuid_or_404
from .enqueue import LocalMoment

MAX_PEOPLE = 500


def _people() -> list[tuple[str, Any]]:
    names = User.objects.filter(is_active=True, is_staff=True).order_by("username").values_list("username", flat=True)
    return [("", _("Nobody")), *((name, name) for name in names[:MAX_PEOPLE])]


class AcknowledgeForm(ReasonForm):
    """Why it is known, whose it is, and until when it is no news."""

    assignee = forms.ChoiceField(
        label=_("Assigned to"), required=False, choices=_people, widget=UnfoldAdminSelectWidget
    )
    muted_until = LocalMoment(
        label=_("Mute until"),
        help_text=_("UTC. Until then further failures of this kind on this agent are no news, and nobody is notified."),
    )


ACKNOWLEDGE = dialog(
    _("Acknowledge this failure?"),
    _("The front page stops counting it as new. Without a mute the next failure is news again."),
    _("Acknowledge"),
    form=AcknowledgeForm,
)
REOPEN = dialog(_("Make this failure news again?"), _("What was said about it is taken back."), _("Make it news"))


class AcknowledgingActions(LeasedActions):
    """Acknowledge and reopen, for the pages of jobs. Each has its own permission."""

    actions_detail = (*LeasedActions.actions_detail, "acknowledge_row", "reopen_row")

    def has_acknowledge_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may say that a failure is known."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.add_acknowledgement")

    def has_reopen_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may take that back."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.delete_acknowledgement")

    @dialog_action(
        description=_("Acknowledge"), icon="notifications_paused", url_path="acknowledge", permission="acknowledge",
        asked=ACKNOWLEDGE,
    )  # fmt: skip
    def acknowledge_row(self, request: HttpRequest, form: AcknowledgeForm, object_id: str) -> HttpResponse:
        """Say that a failed chain is known."""
        said = {name: form.cleaned_data[name] for name in ("reason", "assignee", "muted_until")}
        try:
            latest = acknowledging.acknowledge(job_id=uuid_or_404(object_id), by=request.user.get_username(), **said)
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, ACKNOWLEDGE, form, refusal)
        messages.success(request, _("Acknowledged."))
        return to(request, self.page_of(latest))

    @dialog_action(
        description=_("Make it news"), icon="notifications_active", url_path="reopen", permission="reopen", asked=REOPEN
    )
    def reopen_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Take an acknowledgement back."""
        try:
            reason = form.cleaned_data["reason"]
            latest = acknowledging.reopen(job_id=uuid_or_404(object_id), by=request.user.get_username(), reason=reason)
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            return ask_again(request, REOPEN, form, refusal)
        messages.success(request, _("It is news again."))
        return to(request, self.page_of(latest))


def offered_beside(job: AgentJob, said: Acknowledgement | None, *, is_latest: bool) -> tuple[str, ...]:
    """The acts that fit what is said about a job; the services decide again."""
    if not is_latest or not (job.status == AgentJob.Status.FAILED or job.verdict in ("fail", "risk")):
        return ()
    is_own = said is not None and said.root_id == job.chain_id
    return ("acknowledge_row", "reopen_row") if is_own else ("acknowledge_row",)


def in_words(said: Acknowledgement, job: AgentJob) -> dict[str, Any]:
    """What the job's page shows of it."""
    return {
        "by": said.by, "when": moment(said.at), "reason": said.reason, "assignee": said.assignee,
        "until": moment(said.muted_until) if said.muted_until else "",
        "is_over": said.muted_until is not None and said.muted_until <= now(),
        "of_another": "" if said.root_id == job.chain_id else str(said.root_id),
    }  # fmt: skip
