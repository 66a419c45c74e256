"""Dialogs: GET shows the question, only POST acts, and the service decides again what may be done."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget

from jobs.engine.answers import Cancel
from jobs.engine.errors import EngineRefusal
from jobs.engine.leased import Leased
from jobs.services import governance
from jobs.services.errors import AlreadyRetried, Duplicate, Invalid, NotFound, Refusal

from .governed import GovernedAdmin

Act = TypeVar("Act", bound=Callable[..., HttpResponse])


class ReasonForm(BaseDialogForm):
    """Why: required, kept in the audit trail."""

    reason = forms.CharField(
        label=_("Reason"),
        help_text=_("Kept in the audit trail."),
        max_length=governance.MAX_REASON,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "autofocus": True}),
    )


def dialog(title: Any, description: Any, submit: Any, *, form: type[BaseDialogForm] = ReasonForm) -> dict[str, Any]:
    """What unfold's `dialog=` wants."""
    return {"title": title, "description": description, "form_class": form, "form_submit_text": submit}


def dialog_action(
    *, description: Any, url_path: str, permission: str, asked: dict[str, Any], icon: str | None = None
) -> Callable[[Act], Act]:
    """unfold's action, but never without a permission and a dialog: without one it would run on GET.

    Whoever may act is asked about a row that exists, nobody else learns whether it does.
    """

    def made(act: Act) -> Act:
        asks = action(description=description, url_path=url_path, permissions=[permission], dialog=asked, icon=icon)(
            act
        )

        @wraps(asks)
        def about_a_row(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
            if not getattr(model_admin, f"has_{permission}_permission")(request):
                raise PermissionDenied
            if not model_admin.model.objects.filter(pk=_key_or_404(model_admin.model, object_id)).exists():
                raise Http404
            answer: HttpResponse = asks(model_admin, request, object_id=object_id)
            return answer

        return cast("Act", about_a_row)

    return made


def to(request: HttpRequest, url: str) -> HttpResponse:
    """Lead the browser to another page, out of the dialog too."""
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)


def ask_again(request: HttpRequest, asked: dict[str, Any], form: BaseDialogForm, refusal: Invalid) -> HttpResponse:
    """Show the dialog once more, with each problem at its field and what was typed kept."""
    for problem in refusal.problems:
        name = problem.pointer.strip("/").split("/")[0]
        form.add_error(name if name in form.fields else None, problem.message)
    context = {"dialog": asked, "form": form, "form_submit_text": asked["form_submit_text"]}
    return render(request, "unfold/helpers/dialog.html", context)


def _key_or_404(model: type[Model], text: str) -> Any:
    try:
        return model._meta.pk.to_python(text)
    except ValidationError:
        raise Http404 from None


def uuid_or_404(text: str) -> UUID:
    """The id in an address. Raises Http404."""
    try:
        return UUID(text)
    except ValueError:
        raise Http404 from None


def buttons_of(model_admin: Any, row: Model, names: Iterable[str]) -> list[dict[str, Any]]:
    """The dialogs of these names about a row, as a page shows them."""
    found = ((name, model_admin.get_unfold_action(name)) for name in names)
    return [
        {
            "name": name, "label": one.description, "icon": one.icon,
            "url": reverse(f"admin:{one.action_name}", args=[row.pk]),
        }
        for name, one in found
    ]  # fmt: skip


CANCEL = dialog(
    _("Cancel this job?"),
    _("What waits is cancelled at once. A running agent is asked to stop with its next heartbeat."),
    _("Cancel job"),
)
FORCE = dialog(
    _("Close this job by force?"),
    _(
        "It ends now in the store. The agent may still be working: nothing stops it, "
        "and what it reports later is refused."
    ),
    _("Close by force"),
)
RETRY = dialog(
    _("Retry this job?"),
    _("A new attempt with the same content is queued; the failed one keeps its results and files."),
    _("Retry"),
)


class LeasedActions(GovernedAdmin):
    """Cancel, close by force and retry, for the rows of a leased table. Each has its own permission."""

    rows: Any  # the manager of the leased table
    actions_detail: tuple[str, ...] = ("cancel_row", "force_row", "retry_row")

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar: the page shows those that its state allows, and refreshes them."""
        return []

    def _may(self, request: HttpRequest, verb: str) -> bool:
        permission = f"{self.opts.app_label}.{verb}_{self.opts.model_name}"
        return self.has_view_permission(request) and request.user.has_perm(permission)

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may cancel."""
        return self._may(request, "cancel")

    def has_force_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may close a row whose agent may still be working."""
        return self._may(request, "force")

    def has_retry_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may queue another attempt."""
        return self._may(request, "retry")

    def buttons(self, request: HttpRequest, row: Leased, names: tuple[str, ...]) -> list[dict[str, Any]]:
        """The dialogs to offer on a row's page: of those that its state allows, the ones this person may use."""
        may = [name for name in names if getattr(self, f"has_{name.removesuffix('_row')}_permission")(request)]
        return buttons_of(self, row, may)

    def page_of(self, row_id: UUID) -> str:
        """The address of a row's page."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[row_id])

    @dialog_action(description=_("Cancel"), icon="cancel", url_path="cancel", permission="cancel", asked=CANCEL)
    def cancel_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Cancel the latest attempt of the chain, or ask its agent to stop."""

        def act(row_id: UUID, **said: str) -> UUID:
            done = governance.cancel(self.rows.all(), row_id, **said)
            text = {
                Cancel.CLOSED: _("Cancelled."),
                Cancel.ASKED: _("The agent is asked to stop; it learns of it with its next heartbeat."),
                Cancel.UNCHANGED: _("A cancel was requested before; nothing was changed."),
            }[done.outcome]
            messages.success(request, text)
            return done.row_id

        return self._answer(request, CANCEL, form, object_id, act)

    @dialog_action(
        description=_("Close by force"),
        icon="power_settings_new",
        url_path="force",
        permission="force",
        asked=FORCE,
    )
    def force_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Close the latest attempt of the chain at once."""

        def act(row_id: UUID, **said: str) -> UUID:
            closed = governance.force_cancel(self.rows.all(), row_id, **said)
            messages.warning(request, _("Closed by force. The agent may still be working."))
            return closed

        return self._answer(request, FORCE, form, object_id, act)

    @dialog_action(description=_("Retry"), icon="replay", url_path="retry", permission="retry", asked=RETRY)
    def retry_row(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        """Queue the next attempt of a failed chain."""

        def act(row_id: UUID, **said: str) -> UUID:
            again = governance.retry(self.rows.all(), row_id, **said)
            messages.success(request, _("Another attempt waits now."))
            return again

        return self._answer(request, RETRY, form, object_id, act)

    def _answer(
        self,
        request: HttpRequest,
        asked: dict[str, Any],
        form: ReasonForm,
        object_id: str,
        act: Callable[..., UUID],
    ) -> HttpResponse:
        row_id = uuid_or_404(object_id)
        shown = row_id
        try:
            shown = act(row_id, by=request.user.get_username(), reason=form.cleaned_data["reason"])
        except NotFound:
            raise Http404 from None
        except AlreadyRetried as refusal:
            messages.warning(request, str(refusal))
            shown = refusal.row_id or row_id
        except Duplicate as refusal:
            messages.error(request, str(refusal))
            shown = refusal.job_id or row_id
        except Invalid as refusal:
            if any(problem.pointer == "/reason" for problem in refusal.problems):
                return ask_again(request, asked, form, refusal)
            messages.error(request, " ".join(problem.message for problem in refusal.problems))
        except (Refusal, EngineRefusal) as refusal:
            messages.error(request, str(refusal))
        return to(request, self.page_of(shown))
