"""Snapshots: the catalogue of what can be restored, and of what was forgotten."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from jobs.models import BackupSnapshot

from . import backup_browsing as browsing
from .backup_filters import CompleteFilter, RepositoryFilter, SnapshotSourceFilter
from .badges import NOTHING, badge, moment, size
from .dialogs import uuid_or_404
from .governed import GovernedAdmin


@admin.register(BackupSnapshot)
class BackupSnapshotAdmin(GovernedAdmin):
    """A list to read, which reports of runners write, and a look into each snapshot."""

    list_display = ("short_id", "source_name", "in_repository", "whole", "files", "amount", "taken", "checked", "gone")
    list_display_links = ("short_id",)
    change_form_template = "agentstore/backup_snapshot_page.html"
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

    def has_list_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Whether this person may let an agent look into snapshots."""
        return self.has_view_permission(request) and request.user.has_perm("jobs.list_backupsnapshot")

    def get_urls(self) -> list[URLPattern]:
        """Add the look into a folder, and what the page polls."""
        guarded = self.admin_site.admin_view
        return [
            path("<path:object_id>/list/", guarded(self.list_view), name="jobs_backupsnapshot_list"),
            path("<path:object_id>/part/", guarded(self.part_view), name="jobs_backupsnapshot_part"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a snapshot and one of its folders, as an agent listed it; a POST has nothing to save."""
        self.check_view(request)
        snapshot = self._snapshot(object_id)
        context = {
            **self.admin_site.each_context(request), **browsing.folder_context(self, request, snapshot),
            "title": _("Snapshot %s") % snapshot, "original": snapshot, "opts": self.opts, "media": self.media,
            "facts": self._facts(snapshot),
        }  # fmt: skip
        return TemplateResponse(request, self.change_form_template, context)

    def part_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of the page that refreshes itself."""
        self.check_view(request)
        context = browsing.folder_context(self, request, self._snapshot(object_id))
        return render(request, "agentstore/backup_snapshot_part.html", context)

    def list_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let an agent list a folder, by default that of the source."""
        if not self.has_list_permission(request):
            raise PermissionDenied
        return browsing.list_view(self, request, self._snapshot(object_id))

    def _snapshot(self, object_id: str) -> BackupSnapshot:
        snapshots = BackupSnapshot.objects.select_related("repository", "source__job", "source__agent")
        snapshot = snapshots.filter(pk=uuid_or_404(object_id)).first()
        if snapshot is None:
            raise Http404
        return snapshot

    def _facts(self, snapshot: BackupSnapshot) -> list[tuple[Any, Any]]:
        facts = [
            (_("Source"), self.source_name(snapshot)),
            (_("Repository"), self.in_repository(snapshot)),
            (_("Taken"), moment(snapshot.taken_at)),
            (_("Files"), snapshot.files),
            (_("Size"), size(snapshot.bytes)),
            (_("Verified"), self.checked(snapshot)),
            (_("Forgotten"), moment(snapshot.forgotten_at) if snapshot.forgotten_at else ""),
        ]
        return [(label, value) for label, value in facts if value != ""]


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
