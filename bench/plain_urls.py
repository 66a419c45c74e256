"""Calls as plain Django views: nothing is checked that need not be, no framework above Django."""

import json
import os
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from bench.beat import Beat
from jobs.engine import server_bound
from jobs.models import AuditEvent

beat = Beat.from_environment(os.environ)


@csrf_exempt
def heartbeat(request: HttpRequest, row_id: str) -> JsonResponse:
    """Answer one heartbeat, by the same statements."""
    body = json.loads(request.body)
    (_caller,) = server_bound.run("default", beat.look_up, beat.caller(request.headers["Authorization"]))
    (found,) = server_bound.run("default", beat.beat, beat.values(row_id, body))
    return JsonResponse(beat.answer(found))


def open_artifact(request: HttpRequest, artifact_id: UUID) -> HttpResponseRedirect:
    """Check one permission, insert one line, redirect."""
    if not request.user.has_perm("artifacts.open_jobartifact"):
        raise PermissionDenied
    AuditEvent.objects.create(
        tag=AuditEvent.Tag.ARTIFACT_OPENED, actor=request.user.get_username(), subject_table="agent_jobs",
        subject_id=artifact_id, reason="", details={},
    )  # fmt: skip
    return HttpResponseRedirect("/")


urlpatterns = [
    path("api/v1/jobs/<uuid:row_id>/heartbeat", heartbeat),
    path("artifacts/<uuid:artifact_id>/open", open_artifact),
]
