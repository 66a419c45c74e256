"""Channels of notices: how people are told. Their secrets are shown once or never."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from unfold.forms import BaseDialogForm
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.models import Notice, NoticeChannel
from jobs.services import governance
from jobs.services.errors import Invalid, NotFound
from jobs.services.notices import registry

from .badges import badge, moment
from .dialogs import dialog, dialog_action, to, uuid_or_404
from .governed import GovernedAdmin

RECENT = 10


def _number(label: Any, allowed: range, initial: int, help_text: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=allowed[0], max_value=allowed[-1], initial=initial, help_text=help_text,
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip


class ChannelForm(forms.Form):
    """A channel. Names are those of the service, so that its problems find their fields."""

    name = forms.CharField(
        label=_("Name"), max_length=registry.MAX_NAME, widget=UnfoldAdminTextInputWidget,
        help_text=_("Such as On-call or #ops; it stands in lists and rules."),
    )  # fmt: skip
    transport = forms.ChoiceField(
        label=_("Transport"), choices=NoticeChannel.Transport.choices, widget=UnfoldAdminSelectWidget,
        help_text=_("It never changes."),
    )  # fmt: skip
    address = forms.CharField(
        label=_("Address"), strip=True, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text=_(
            "E-mail: recipients, separated by commas. Webhook: an https address. Chat: an Apprise URL, such as "
            "slack://… or tgram://…; it is a secret and is never shown again."
        ),
    )  # fmt: skip
    digest_over = _number(
        _("Messages in a window"), registry.DIGEST_OVER, 5, _("What goes beyond becomes one digest.")
    )  # fmt: skip
    digest_seconds = _number(_("Window (seconds)"), registry.DIGEST_SECONDS, 300, _("One digest in a window at most."))


class ChangeForm(ChannelForm):
    """A channel that exists."""

    enabled = forms.BooleanField(
        label=_("Enabled"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=_("Off: it carries nothing new, and what waits stays until it is on again."),
    )  # fmt: skip
    field_order = ("name", "transport", "address", "enabled")


class SecretForm(forms.Form):
    """Why a new signing key is needed."""

    reason = forms.CharField(
        label=_("Reason"), max_length=governance.MAX_REASON, help_text=_("Kept in the audit trail."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2, "autofocus": True}),
    )  # fmt: skip


TEST = dialog(
    _("Send a test message?"),
    _("It leaves now, over this channel, and the answer of the other side is shown."),
    _("Send"),
    form=BaseDialogForm,
)
SHOWN_ONCE = _(
    "The new key is shown once, on the next page, and holds at once: messages are refused by a receiver that still "
    "has the old one, and are tried again for some hours."
)


@admin.register(NoticeChannel)
class NoticeChannelAdmin(GovernedAdmin):
    """Look at channels, add and change them, try them."""

    show_add_link = True
    list_display = ("name", "transport", "address", "switch", "undelivered")
    list_display_links = ("name",)
    sortable_by = ()
    fields = ()
    actions_detail = ("send_test",)
    change_form_template = "agentstore/notice_channel.html"

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None in unfold's own bar; the page has the buttons."""
        return []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether this person may add channels."""
        return request.user.has_perm("jobs.add_noticechannel")

    def has_test_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may send test messages."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.test_noticechannel")

    def has_edit_permission(self, request: HttpRequest) -> bool:
        """Whether this person may change channels and their secrets."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.change_noticechannel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[NoticeChannel]:
        """Channels with what was given up."""
        dead = Count("notices", filter=Q(notices__status=Notice.Status.DEAD))
        return NoticeChannel.objects.annotate(dead=dead).order_by("name")

    @admin.display(description=_("state"))
    def switch(self, channel: NoticeChannel) -> str:
        """Whether it carries messages."""
        return badge("enabled", _("enabled")) if channel.enabled else badge("disabled", _("disabled"))

    @admin.display(description=_("given up"))
    def undelivered(self, channel: NoticeChannel) -> int:
        """How many messages never arrived."""
        return channel.dead  # type: ignore[attr-defined,no-any-return]  # the annotation

    def get_urls(self) -> list[URLPattern]:
        """Add the page that shows a signing key once."""
        view = self.admin_site.admin_view(self.secret_view)
        return [path("<path:object_id>/secret/", view, name="jobs_noticechannel_secret"), *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add a channel; a webhook's signing key is shown in the answer, once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ChannelForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                made = registry.create_channel(**form.cleaned_data, by=request.user.get_username())
            except Invalid as refusal:
                _show(refusal, form)
            else:
                if made.secret:
                    return self._secret_page(request, made)
                messages.success(request, _("Added. Send a test message to see whether it works."))
                return HttpResponseRedirect(reverse("admin:jobs_noticechannel_change", args=[made.channel_id]))
        context = {"title": _("Add a channel"), "form": form, "submit": _("Add")}
        return self._page(request, "agentstore/plain_form.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a channel; those who may change it save here."""
        self.check_view(request)
        channel = self._channel(object_id)
        may_change = self.has_edit_permission(request)
        if request.method == "POST" and not may_change:
            raise PermissionDenied
        form = self._change_form(request, channel, may_change=may_change)
        if form.is_valid():
            said = {name: value for name, value in form.cleaned_data.items() if name != "transport"}
            try:
                registry.change_channel(channel_id=channel.pk, by=request.user.get_username(), **said)
            except Invalid as refusal:
                _show(refusal, form)
            else:
                messages.success(request, _("Saved."))
                return HttpResponseRedirect(reverse("admin:jobs_noticechannel_change", args=[channel.pk]))
        context = {
            "title": channel.name, "original": channel, "channel": channel, "form": form,
            "submit": _("Save") if may_change else "", "state": self.switch(channel), "may_renew": may_change,
            "may_test": self.has_test_permission(request), "deliveries": self._deliveries(request, channel),
            "all_url": f"{reverse('admin:jobs_notice_changelist')}?channel={channel.pk}",
        }  # fmt: skip
        return self._page(request, self.change_form_template, context)

    @dialog_action(description=_("Send a test message"), url_path="test", permission="test", asked=TEST)
    def send_test(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        """Send a test message now, and say what the other side answered."""
        channel_id = uuid_or_404(object_id)
        try:
            tested = registry.send_test(channel_id=channel_id, by=request.user.get_username())
        except NotFound:
            raise Http404 from None
        if tested.error:
            messages.error(request, _("The test message did not arrive. %s") % tested.error)
        else:
            messages.success(request, _("The other side took the test message."))
        return to(request, reverse("admin:jobs_noticechannel_change", args=[channel_id]))

    def secret_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a reason; POST makes a new signing key and is the only page that ever shows it."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        channel = self._channel(object_id)
        if channel.transport != NoticeChannel.Transport.WEBHOOK:
            raise Http404
        form = SecretForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                made = registry.renew_secret(
                    channel_id=channel.pk, by=request.user.get_username(), reason=form.cleaned_data["reason"]
                )
            except Invalid as refusal:
                _show(refusal, form)
            else:
                return self._secret_page(request, made)
        context = {"title": _("New signing key"), "form": form, "submit": _("Make a new key"), "text": SHOWN_ONCE}
        return self._page(request, "agentstore/plain_form.html", context)

    def _secret_page(self, request: HttpRequest, made: registry.MadeChannel) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "title": _("Signing key"), "opts": self.opts, "made": made}
        return render(request, "agentstore/signing_key.html", context)

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        return TemplateResponse(
            request, template, {**self.admin_site.each_context(request), "opts": self.opts, **context}
        )

    def _channel(self, object_id: str) -> NoticeChannel:
        channel = NoticeChannel.objects.filter(pk=uuid_or_404(object_id)).first()
        if channel is None:
            raise Http404
        return channel

    def _change_form(self, request: HttpRequest, channel: NoticeChannel, *, may_change: bool) -> ChangeForm:
        is_chat = channel.transport == NoticeChannel.Transport.APPRISE
        now = {name: getattr(channel, name) for name in ChangeForm.base_fields} | ({"address": ""} if is_chat else {})
        form = ChangeForm(request.POST if request.method == "POST" else None, initial=now)
        for name, field in form.fields.items():
            field.disabled = not may_change or name == "transport"
        if is_chat:
            form.fields["address"].required = False
            form.fields["address"].help_text = _("The Apprise URL is sealed. Empty: keep it.")
        return form

    def _deliveries(self, request: HttpRequest, channel: NoticeChannel) -> list[dict[str, Any]]:
        if not request.user.has_perm("jobs.view_notice"):
            return []
        return [
            {
                "url": reverse("admin:jobs_notice_change", args=[notice.pk]), "name": notice.title,
                "badge": badge(notice.status, notice.get_status_display()), "when": moment(notice.created_at),
                "agent": notice.get_event_display(), "why": notice.last_error,
            }
            for notice in channel.notices.order_by("-id")[:RECENT]
        ]  # fmt: skip


def _show(refusal: Invalid, form: forms.Form) -> None:
    for problem in refusal.problems:
        name = problem.pointer.strip("/")
        form.add_error(name if name in form.fields else None, problem.message)
