"""A look into a snapshot: its folders as agents listed them, each a step away from being restored."""

import posixpath
import re
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.models import AgentJob, BackupSnapshot
from jobs.services.backups import listing
from jobs.services.errors import Duplicate, Invalid, NotFound

from .backup_forms import ListForm, form_page, show_at_fields
from .badges import badge, moment, size

PER_PAGE = 200
MAX_SHOWN = 200  # characters of a name
LIVE = (AgentJob.Status.QUEUED, AgentJob.Status.RUNNING)
# Control characters, and those that turn the direction of the text around or have no width.
HIDDEN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff]")


def visible(name: str) -> str:
    """A name in which nothing hides: what has no look of its own as an escape, and of a long one the beginning."""
    cut = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…"
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def is_nameable(name: str) -> bool:
    """Whether a form can ask for this name: not with a line break, nor where restic told only a substitute for it."""
    return len(name.splitlines()) == 1 and "\ufffd" not in name and bool(name.strip()) and "\x00" not in name


def top_of(snapshot: BackupSnapshot) -> str:
    """The folder that all paths of the source lie in."""
    paths = [path for path in snapshot.source.paths or () if isinstance(path, str) and path.startswith("/")]
    return listing.whole(posixpath.commonpath(paths)) if paths else "/"


def folder_context(model_admin: Any, request: HttpRequest, snapshot: BackupSnapshot) -> dict[str, Any]:
    """What the refreshing part of a snapshot's page shows: one folder, from the newest list of it."""
    path = _path(request, snapshot)
    done, newest = listing.latest_listings(snapshot, path)
    folder = listing.folder_of(done) if done else None
    page = Paginator(folder.entries if folder else [], PER_PAGE).get_page(request.GET.get("page"))
    restores = _restores(request, snapshot)
    may_list = model_admin.has_list_permission(request) and snapshot.forgotten_at is None
    waits = newest is not None and newest.status in LIVE
    list_url = reverse("admin:jobs_backupsnapshot_list", args=[snapshot.pk])
    return {
        "snapshot": snapshot,
        "is_live": waits,
        "part_url": f"{reverse('admin:jobs_backupsnapshot_part', args=[snapshot.pk])}?{_query(path, page.number)}",
        "list_url": f"{list_url}?{urlencode({'path': path})}" if may_list and not waits else "",
        "restore_url": _restore_url(restores, snapshot, path) if is_nameable(path) else "",
        "crumbs": _crumbs(snapshot, path),
        "job": _told(request, newest, newest is not done),
        "listed": moment(done.finished_at) if done else "",
        "by": done.agent if done else "",
        "is_cut": folder is not None and folder.is_cut,
        "count": len(folder.entries) if folder else 0,
        "page": page,
        "newer_url": f"?{_query(path, page.previous_page_number())}" if page.has_previous() else "",
        "older_url": f"?{_query(path, page.next_page_number())}" if page.has_next() else "",
        "entries": [_row(entry, path, snapshot, restores) for entry in page],
    }


def list_view(model_admin: Any, request: HttpRequest, snapshot: BackupSnapshot) -> HttpResponse:
    """Ask which agent is to list a folder, and let it."""
    agent = snapshot.source.agent.principal_key if snapshot.source.agent else ""
    first = {"agent": agent, "path": _path(request, snapshot)}
    form = ListForm(request.POST if request.method == "POST" else None, initial=first)
    if form.is_valid():
        said = form.cleaned_data
        try:
            listing.enqueue_listing(snapshot_id=snapshot.pk, by=request.user.get_username(), **said)
        except NotFound:
            raise Http404 from None
        except Duplicate:
            messages.info(request, _("An agent is asked for this folder already."))
            return HttpResponseRedirect(_page_url(snapshot, said["path"]))
        except Invalid as refusal:
            show_at_fields(form, refusal.problems)
        else:
            messages.success(request, _("The agent is asked. The list appears here once it has answered."))
            return HttpResponseRedirect(_page_url(snapshot, said["path"]))
    text = _("An agent asks the repository what the folder held. The names come here; the files stay where they are.")
    return form_page(
        model_admin, request, form, title=_("List files of %s") % snapshot, submit=_("List files"), text=text
    )


def _path(request: HttpRequest, snapshot: BackupSnapshot) -> str:
    """The folder that the address names, or else the top of the source."""
    said = request.GET.get("path", "")
    fits = said.startswith("/") and len(said) <= listing.MAX_PATH and "\x00" not in said
    return listing.whole(said) if fits else top_of(snapshot)


def _query(path: str, page: int) -> str:
    return urlencode({"path": path, "page": page})


def _page_url(snapshot: BackupSnapshot, path: str) -> str:
    return f"{reverse('admin:jobs_backupsnapshot_change', args=[snapshot.pk])}?{urlencode({'path': path})}"


def _restores(request: HttpRequest, snapshot: BackupSnapshot) -> str:
    """The form of a restore, for those who may; none of what was forgotten."""
    may = request.user.has_perm("jobs.restore_backupjob") and request.user.has_perm("jobs.view_backupjobsource")
    if not may or snapshot.forgotten_at is not None or snapshot.source.job_id is None:
        return ""
    return reverse("admin:jobs_backupjobsource_restore", args=[snapshot.source_id])


def _restore_url(form: str, snapshot: BackupSnapshot, path: str) -> str:
    asked: dict[str, str | UUID] = {"snapshot": snapshot.pk, **({"include": path} if path != "/" else {})}
    return f"{form}?{urlencode(asked)}" if form else ""


def _crumbs(snapshot: BackupSnapshot, path: str) -> list[dict[str, str]]:
    """The folder and those around it, from the top down."""
    parts = [part for part in path.split("/") if part]
    paths = ["/", *("/" + "/".join(parts[: depth + 1]) for depth in range(len(parts)))]
    return [
        {"name": visible(name), "url": _page_url(snapshot, one)} for name, one in zip(["/", *parts], paths, strict=True)
    ]


def _told(request: HttpRequest, job: AgentJob | None, is_news: bool) -> dict[str, Any] | None:
    """The newest look, unless its list is what the page shows."""
    if job is None or not is_news:
        return None
    sees = request.user.has_perm("jobs.view_agentjob")
    return {
        "badge": badge(job.status, job.get_status_display()), "agent": job.agent, "when": moment(job.queued_at),
        "error": job.error or "", "url": reverse("admin:jobs_agentjob_change", args=[job.pk]) if sees else "",
    }  # fmt: skip


def _row(entry: listing.Entry, folder: str, snapshot: BackupSnapshot, restores: str) -> dict[str, Any]:
    path = posixpath.join(folder, entry.name)
    is_within = "/" not in entry.name and entry.name not in ("", ".", "..") and len(path) <= listing.MAX_PATH
    can = is_within and is_nameable(entry.name)
    return {
        "name": visible(entry.name), "kind": entry.kind, "is_folder": entry.is_folder,
        "size": "" if entry.is_folder else size(entry.size), "mtime": visible(entry.mtime[:16].replace("T", " ")),
        "url": _page_url(snapshot, path) if entry.is_folder and can else "",
        "restore_url": _restore_url(restores, snapshot, path) if can else "",
        "is_odd": not can,
    }  # fmt: skip
