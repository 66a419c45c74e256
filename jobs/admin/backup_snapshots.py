"""Snapshots: the catalogue of what can be restored, and of what was forgotten."""

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from jobs.models import BackupSnapshot

from .backup_filters import CompleteFilter, RepositoryFilter, SnapshotSourceFilter
from .badges import NOTHING, badge, moment, size
from .dialogs import uuid_or_404
from .governed import GovernedAdmin


@admin.register(BackupSnapshot)
class BackupSnapshotAdmin(GovernedAdmin):
    """A list to read; reports of runners write it."""

    list_display = ("short_id", "source_name", "in_repository", "whole", "files", "amount", "taken", "checked", "gone")
    rows_have_pages = False
    list_filter = (CompleteFilter, SnapshotSourceFilter, RepositoryFilter)
    list_select_related = ("repository", "source__job")
    ordering = ("-taken_at", "-id")
    sortable_by = ()
    fields = ()

    @admin.display(description=_("snapshot"))
    def short_id(self, snapshot: BackupSnapshot) -> str:
        """The beginning of restic's id, as restic shows it; the whole id as its tooltip."""
        return short_id(snapshot)

    @admin.display(description=_("source"))
    def source_name(self, snapshot: BackupSnapshot) -> str:
        """The source with its job, which it leads to."""
        source = snapshot.source
        if source.job is None:
            return str(source)
        url = reverse("admin:jobs_backupjob_change", args=[source.job.pk])
        return format_html('<a href="{}">{} / {}</a>', url, source.job, source)

    @admin.display(description=_("repository"))
    def in_repository(self, snapshot: BackupSnapshot) -> str:
        """The repository, which leads to its page."""
        url = reverse("admin:jobs_backuprepository_change", args=[snapshot.repository_id])
        return format_html('<a href="{}">{}</a>', url, snapshot.repository)

    @admin.display(description=_("completeness"))
    def whole(self, snapshot: BackupSnapshot) -> str:
        """Whether every file is in it."""
        return completeness(snapshot)

    @admin.display(description=_("size"))
    def amount(self, snapshot: BackupSnapshot) -> str:
        """How much a restore of it writes."""
        return size(snapshot.bytes)

    @admin.display(description=_("taken"))
    def taken(self, snapshot: BackupSnapshot) -> str:
        """When it was taken."""
        return moment(snapshot.taken_at)

    @admin.display(description=_("verified"))
    def checked(self, snapshot: BackupSnapshot) -> str:
        """Whether a restore of it was compared, and how that went."""
        return verification(snapshot)

    @admin.display(description=_("forgotten"))
    def gone(self, snapshot: BackupSnapshot) -> str:
        """When retention removed it."""
        return moment(snapshot.forgotten_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to its repository, which tells of it."""
        self.check_view(request)
        snapshot = BackupSnapshot.objects.filter(pk=uuid_or_404(object_id)).first()
        if snapshot is None:
            raise Http404
        return HttpResponseRedirect(reverse("admin:jobs_backuprepository_change", args=[snapshot.repository_id]))


def short_id(snapshot: BackupSnapshot) -> SafeString:
    """The first eight digits of a snapshot's id, with all of them as the tooltip."""
    return format_html('<code title="{}">{}</code>', snapshot.engine_id, snapshot)


def completeness(snapshot: BackupSnapshot) -> str:
    """Whether every file is in it, as a badge."""
    return badge("complete", _("complete")) if snapshot.complete else badge("partial", _("partial"))


def verification(verified: Any) -> str:
    """When a snapshot, or one of a source, was last restored and compared, and how that went; a dash for never."""
    if verified.verified_at is None:
        return NOTHING
    word = badge("good", _("good")) if verified.verified_ok else badge("failed", _("does not come back"))
    return format_html("{} {}", word, moment(verified.verified_at))
