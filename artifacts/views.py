"""What people see of the bytes: each look at evidence passes a permission, and is written down."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final
from uuid import UUID

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_safe

from artifacts.services import evidence, exporting, signing
from artifacts.services.refusals import BytesMissing, StorageUnavailable, Withheld
from artifacts.services.storage import open_bytes
from jobs.services.errors import NotFound, Refusal

View = Callable[..., HttpResponseBase]
RETRY_SECONDS: Final = 30
# The bytes come from somebody else's page: whatever they are, they run nothing and are kept nowhere.
SEALED: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}


def gated(*permissions: str) -> Callable[[View], View]:
    """Let those in who may use the admin and have all `permissions`; send the unknown to the login."""

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path(), reverse("admin:login"))
            if not admin.site.has_permission(request) or not request.user.has_perms(permissions):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return checked

    return decorate


@require_safe
@gated("artifacts.open_jobartifact", "jobs.view_agentjob")
def open_artifact(request: HttpRequest, artifact_id: UUID) -> HttpResponseBase:
    """Write down who opens the file and send the browser to its bytes; `?download=1` saves what could be shown."""
    try:
        if request.method == "HEAD":
            # No line for a look that shows nothing, and therefore no address either.
            evidence.visible(artifact_id=artifact_id)
            response = HttpResponse()
        else:
            address = evidence.open_artifact(
                artifact_id=artifact_id,
                by=request.user.get_username(),
                sensitive=request.user.has_perm("artifacts.open_sensitive_jobartifact"),
                download=request.GET.get("download") == "1",
            )
            response = HttpResponseRedirect(address)
    except Refusal as refusal:
        response = _refused(refusal)
    response["Cache-Control"] = "private, no-store"
    response["Referrer-Policy"] = "no-referrer"
    return response


@require_GET
@gated("artifacts.open_jobartifact", "jobs.view_agentjob")
def export(request: HttpRequest, job_id: UUID) -> HttpResponseBase:
    """Write down who takes a job's evidence along, and send it as one archive."""
    may_have_all = request.user.has_perm("artifacts.open_sensitive_jobartifact")
    try:
        archive = exporting.export(job_id=job_id, by=request.user.get_username(), sensitive=may_have_all)
    except NotFound:
        raise Http404 from None
    response = StreamingHttpResponse(archive.blocks, content_type="application/zip")
    return _sealed(response, **{"Content-Disposition": f'attachment; filename="{archive.name}"'})


@require_safe
@gated("jobs.view_agentjob")
def thumbnail(_request: HttpRequest, artifact_id: UUID) -> HttpResponseBase:
    """The small picture of an image, which our own maintenance made; 404 while there is none."""
    try:
        picture = evidence.open_thumbnail(artifact_id=artifact_id)
    except Refusal as refusal:
        return _refused(refusal)
    return _sealed(FileResponse(picture, content_type="image/webp"), **{"Cache-Control": "private, max-age=300"})


@require_safe
def artifact_bytes(_request: HttpRequest, token: str) -> HttpResponseBase:
    """The bytes that a signed address stands for. It needs no session: its signature says what, how and how long."""
    grant = signing.read(token)
    if grant is None:
        return _sealed(_plain(_("This address is no longer valid. Open the file again from its job's page."), 403))
    try:
        content = open_bytes(grant.key)
    except Refusal as refusal:
        return _sealed(_refused(refusal))
    response = FileResponse(content, content_type=grant.content_type)
    return _sealed(response, **{"Content-Disposition": grant.disposition})


def _sealed(response: HttpResponseBase, **headers: str) -> HttpResponseBase:
    for name, value in {**SEALED, **headers}.items():
        response[name] = value
    return response


def _refused(refusal: Refusal) -> HttpResponse:
    match refusal:
        case NotFound():
            raise Http404
        case Withheld():
            raise PermissionDenied
        case BytesMissing():
            return _plain(_("The bytes of this file are missing from the storage."), 404)
        case StorageUnavailable():
            response = _plain(_("The storage does not answer now. Try again in a moment."), 503)
            response["Retry-After"] = str(RETRY_SECONDS)
            return response
    raise refusal


def _plain(text: str, status: int) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
