"""The outbox: what was sent, what waits, and what never arrived, with the reason."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter
from unfold.forms import BaseDialogForm

from jobs.models import Event, Notice, NoticeChannel
from jobs.services.errors import Invalid, NotFound
from jobs.services.notices import registry
from jobs.services.notices.outbox import MAX_ATTEMPTS

from .badges import badge, moment
from .dialogs import dialog, dialog_action, to
from .filters import ColumnFilter, EndedFilter
from .governed import GovernedAdmin

MAX_CHOICES, MAX_LISTED = 500, 100

AGAIN = dialog(
    _("Send this notice again?"),
    _("It starts anew with all its attempts and the same delivery id, so that a receiver can tell a repetition."),
    _("Send again"),
    form=BaseDialogForm,
)


class NoticeStatusFilter(ColumnFilter):
    title, parameter_name, column, words = _("status"), "status", "status", Notice.Status.choices


class NoticeEventFilter(ColumnFilter):
    title, parameter_name, column, words = _("event"), "event", "event", Event.choices


class NoticeAgeFilter(EndedFilter):
    title, parameter_name, column = _("created"), "created", "created_at"


class ChannelFilter(DropdownFilter):
    title, parameter_name = _("channel"), "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The channels."""
        return [(str(key), name) for key, name in NoticeChannel.objects.values_list("pk", "name")[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The notices of that channel; none for what is no channel."""
        chosen = self.value()
        known = {key for key, _name in self.lookups(request, None)} if chosen else set()
        if not chosen:
            return queryset
        return queryset.filter(channel_id=chosen) if chosen in known else queryset.none()


@admin.register(Notice)
class NoticeAdmin(GovernedAdmin):
    """A list to read, and another try for what was given up."""

    list_display = ("about", "event", "channel", "state", "attempts", "created", "trouble")
    list_display_links = ("about",)
    list_filter = (NoticeStatusFilter, ChannelFilter, NoticeEventFilter, NoticeAgeFilter)
    list_select_related = ("channel",)
    ordering = ("-id",)
    sortable_by = ()
    fields = ()
    actions_detail = ("send_again",)
    change_form_template = "agentstore/notice_page.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the button."""
        return []

    def has_retry_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may send again."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.retry_notice")

    @admin.display(description=_("notice"))
    def about(self, notice: Notice) -> str:
        """Its title."""
        return notice.title if len(notice.title) <= MAX_LISTED else notice.title[: MAX_LISTED - 1] + "…"

    @admin.display(description=_("status"))
    def state(self, notice: Notice) -> str:
        """How far it got."""
        return badge(notice.status, notice.get_status_display())

    @admin.display(description=_("created"))
    def created(self, notice: Notice) -> str:
        """When it was written."""
        return moment(notice.created_at)

    @admin.display(description=_("last error"))
    def trouble(self, notice: Notice) -> str:
        """Why it did not arrive yet."""
        return notice.last_error if len(notice.last_error) <= MAX_LISTED else notice.last_error[: MAX_LISTED - 1] + "…"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a notice."""
        self.check_view(request)
        notice = Notice.objects.select_related("channel", "rule", "digest").filter(pk=_id_or_404(object_id)).first()
        if notice is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request), "title": notice.title, "opts": self.opts, "notice": notice,
            "original": notice, "badge": self.state(notice), "facts": _facts(notice),
            "again_url": reverse("admin:jobs_notice_send_again", args=[notice.pk])
            if notice.status == Notice.Status.DEAD and self.has_retry_permission(request) else "",
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)

    @dialog_action(description=_("Send again"), url_path="again", permission="retry", asked=AGAIN)
    def send_again(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """Let a notice that was given up start anew."""
        notice_id = _id_or_404(object_id)
        try:
            registry.send_again(notice_id=notice_id)
        except NotFound:
            raise Http404 from None
        except Invalid as refusal:
            messages.error(request, " ".join(problem.message for problem in refusal.problems))
        else:
            messages.success(request, _("It is sent within the next turn of the maintenance loop."))
        return to(request, reverse("admin:jobs_notice_change", args=[notice_id]))


def _facts(notice: Notice) -> list[tuple[Any, Any]]:
    facts: list[tuple[Any, Any]] = [
        (_("Event"), notice.get_event_display()),
        (_("Channel"), notice.channel.name),
        (_("Rule"), notice.rule.name if notice.rule else ""),
        (_("Attempts"), _("%(n)d of %(max)d") % {"n": notice.attempts, "max": MAX_ATTEMPTS} if notice.attempts else ""),
        (_("Created"), moment(notice.created_at)),
        (_("Sent"), moment(notice.sent_at) if notice.sent_at else ""),
        (_("Next attempt"), moment(notice.next_attempt_at) if notice.next_attempt_at else ""),
        (_("Digest"), notice.digest.title if notice.digest else ""),
    ]
    return [(label, value) for label, value in facts if value != ""]


def _id_or_404(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Http404
    return int(text)
