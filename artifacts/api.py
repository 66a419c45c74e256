"""Files over HTTP: a runner puts one as the raw body of a request, and asks what is there."""

import base64
import binascii
import re
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem as Fault
from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from drf_spectacular.utils import extend_schema_view as describe
from rest_framework.request import Request

from artifacts.models import JobArtifact
from artifacts.services import direct_uploads, uploads
from artifacts.services.refusals import (
    ArtifactMismatch,
    DigestMismatch,
    DirectUnavailable,
    Incomplete,
    OverLimit,
    StorageUnavailable,
)
from jobs.api import body
from jobs.api.answer import answer, retry_seconds
from jobs.api.components import CLAIM_ID, COUNT, FLAG, ID, TEXT, obj
from jobs.api.fields import UUID_TEXT, Fields
from jobs.api.limits import SMALL_BODY
from jobs.api.openapi import BODY, HELD, call
from jobs.api.problem import Problem, faults
from jobs.api.views import RunnerView
from jobs.services.errors import Invalid, Refusal

# RFC 9530: a dictionary of algorithms; ours must be one of them.
SHA256 = re.compile(r"(?:^|,)[ \t]*sha-256[ \t]*=[ \t]*:([A-Za-z0-9+/]{43}=):[ \t]*(?=,|$)")
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")


ARTIFACT = obj({
    "id": ID,
    "name": TEXT,
    "content_type": TEXT,
    "size_bytes": COUNT,
    "sha256": {**TEXT, "description": "Of the bytes as received."},
    "stored_sha256": {**TEXT, "description": "Of the bytes as kept; differs where secrets were masked."},
    "masked": {**COUNT, "description": "Secrets that were masked in a text on arrival."},
    "sensitive": {**FLAG, "description": "Takes a permission of its own to open, and is kept for 7 days."},
    "verified": {**FLAG, "description": "Whether the bytes were checked; a direct upload may have to wait."},
})  # fmt: skip
ATTACH = {
    400: "invalid, invalid_length, incomplete",
    404: "not_found",
    409: "artifact_mismatch, lease_lost",
    410: "ended",
    411: "length_required",
    413: "too_large",
    415: "unsupported_media_type",
    422: "digest_mismatch",
}
HEX = re.compile(r"[0-9a-f]{64}")
MAX_NAME_READ, MAX_UPLOAD = 2000, 4000  # characters; the service says more precisely what is wrong with a name
UPLOAD = obj(
    {"claim_id": CLAIM_ID, "name": TEXT, "size_bytes": COUNT, "sha256": {**TEXT, "pattern": f"^{HEX.pattern}$"},
     "sensitive": FLAG},
    optional=("sensitive",),
)  # fmt: skip
PERMITTED = obj({
    "upload": {**TEXT, "description": "Names this upload when it is completed."},
    "method": TEXT,
    "url": {**TEXT, "description": "A bearer: not to be logged. Takes no Authorization header."},
    "headers": {"type": "object", "additionalProperties": TEXT, "description": "To be sent exactly so."},
    "expires_in_s": {**COUNT, "description": "In which the request must begin."},
})  # fmt: skip
COMPLETE = obj({"claim_id": CLAIM_ID, "upload": TEXT})
BEGIN = BODY | HELD | {409: "direct_unavailable, artifact_mismatch, lease_lost"}
FINISH = BODY | HELD | {409: "artifact_mismatch, lease_lost", 422: "digest_mismatch"}
HEADERS = (
    OpenApiParameter("name", str, required=True, description="The file's name, for display only."),
    OpenApiParameter("Agentstore-Claim-Id", OpenApiTypes.UUID, OpenApiParameter.HEADER, required=True),
    OpenApiParameter(
        "Content-Digest", str, OpenApiParameter.HEADER, required=True, pattern=SHA256.pattern,
        description="RFC 9530: sha-256=:base64:",
    ),
    OpenApiParameter(
        "Agentstore-Sensitive", str, OpenApiParameter.HEADER, enum=["0", "1"],
        description="1: takes a permission of its own to open, and is kept for 7 days. Traces are found without it.",
    ),
)  # fmt: skip


@describe(
    get=call(
        "listArtifacts", "The files of a job", problems={404: "not_found"},
        answers={200: ("By name.", obj({"artifacts": {"type": "array", "items": ARTIFACT}}))},
    ),
    put=call(
        "attachArtifact", "Attach a file to a job", body={}, media_type="*/*", parameters=HEADERS, problems=ATTACH,
        answers={201: ("Stored.", ARTIFACT), 200: ("The same bytes were stored before.", ARTIFACT)},
    ),
)  # fmt: skip
class JobArtifacts(RunnerView):
    """The files of one job."""

    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """What is stored of the job, by name."""
        found = uploads.artifacts_of(caller=self.caller, job_id=job_id)
        return answer({"artifacts": [stored(artifact) for artifact in found]})

    def put(self, request: Request, job_id: UUID) -> HttpResponse:
        """Store one file; the same bytes under the same name again get the same answer."""
        length = _length(request)
        found: list[Fault] = []
        name, claim_id, sha256 = _name(request, found), _claim_id(request, found), _sha256(request, found)
        sensitive = _sensitive(request, found)
        if found:
            raise Problem(400, "invalid", "The request does not say what it must.", errors=faults(found))
        try:
            attached = uploads.attach(
                caller=self.caller, job_id=job_id, claim_id=claim_id, name=name, length=length, sha256=sha256,
                stream=request, sensitive=sensitive,
            )  # fmt: skip
        except Refusal as refusal:
            raise _problem(refusal) from None
        return answer(stored(attached.artifact), status=201 if attached.is_new else 200)


@describe(
    post=call(
        "beginUpload", "Ask to send a large file straight to the storage", body=UPLOAD, problems=BEGIN,
        answers={201: ("Send the bytes by this request, then complete.", PERMITTED),
                 200: ("The same bytes were stored before.", ARTIFACT)},
    ),
)  # fmt: skip
class Uploads(RunnerView):
    """Direct uploads of one job."""

    def post(self, request: Request, job_id: UUID) -> HttpResponse:
        """Permit one upload of exactly the announced bytes."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            claim_id, name = fields.uuid("claim_id"), fields.text("name", longest=MAX_NAME_READ)
            size, sha256 = fields.count("size_bytes"), fields.matching("sha256", HEX, "Must be 64 hex digits.")
            sensitive = fields.optional_flag("sensitive")
        try:
            begun = direct_uploads.begin(
                caller=self.caller, job_id=job_id, claim_id=claim_id, name=name, size=size, sha256=sha256,
                sensitive=sensitive,
            )  # fmt: skip
        except Refusal as refusal:
            raise _problem(refusal) from None
        if isinstance(begun, uploads.Attached):
            return answer(stored(begun.artifact))
        permitted = {
            "upload": begun.upload, "method": begun.request.method, "url": begun.request.url,
            "headers": dict(begun.request.headers), "expires_in_s": begun.seconds,
        }  # fmt: skip
        return answer(permitted, status=201)


@describe(
    post=call(
        "completeUpload", "Say that the bytes of a direct upload are there", body=COMPLETE, problems=FINISH,
        answers={201: ("Attached.", ARTIFACT), 200: ("It was attached before.", ARTIFACT)},
    ),
)  # fmt: skip
class CompleteUpload(RunnerView):
    """The end of a direct upload."""

    def post(self, request: Request, job_id: UUID) -> HttpResponse:
        """Make the row of the file; the same again gets the same answer."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            claim_id, upload = fields.uuid("claim_id"), fields.text("upload", longest=MAX_UPLOAD)
        try:
            attached = direct_uploads.complete(caller=self.caller, job_id=job_id, claim_id=claim_id, upload=upload)
        except Refusal as refusal:
            raise _problem(refusal) from None
        return answer(stored(attached.artifact), status=201 if attached.is_new else 200)


def stored(artifact: JobArtifact) -> dict[str, Any]:
    """What a runner is told of a stored file."""
    return {
        "id": str(artifact.pk),
        "name": artifact.name,
        "content_type": artifact.content_type,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.announced_sha256,
        "stored_sha256": artifact.sha256,
        "masked": artifact.masked,
        "sensitive": artifact.sensitive,
        "verified": artifact.verified_at is not None,
    }


def _length(request: Request) -> int:
    header = request.META
    media_type = (header.get("CONTENT_TYPE") or "").partition(";")[0].strip().lower()
    if media_type in FORMS or header.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in ("", "identity"):
        raise Problem(415, "unsupported_media_type", "The body must be the file itself: no form and no encoding.")
    text = header.get("CONTENT_LENGTH") or ""
    if not text or header.get("HTTP_TRANSFER_ENCODING"):
        raise Problem(411, "length_required", "A file needs a Content-Length and no Transfer-Encoding.")
    if not (text.isascii() and text.isdigit()):
        raise Problem(400, "invalid_length", "Content-Length is no number.")
    return int(text[:20])


def _name(request: Request, found: list[Fault]) -> str:
    names = request.GET.getlist("name")
    if len(names) != 1:
        found.append(Fault("/name", "The address must have ?name= exactly once."))
    return names[0] if names else ""


def _claim_id(request: Request, found: list[Fault]) -> UUID:
    text = request.META.get("HTTP_AGENTSTORE_CLAIM_ID", "")
    if not UUID_TEXT.fullmatch(text):
        found.append(Fault("/headers/Agentstore-Claim-Id", "Must be the UUID of the claim that holds the job."))
        return UUID(int=0)
    return UUID(text)


def _sensitive(request: Request, found: list[Fault]) -> bool:
    text = request.META.get("HTTP_AGENTSTORE_SENSITIVE", "0")
    if text not in ("0", "1"):
        found.append(Fault("/headers/Agentstore-Sensitive", "Must be 0 or 1."))
    return bool(text == "1")


def _sha256(request: Request, found: list[Fault]) -> str:
    match = SHA256.search(request.META.get("HTTP_CONTENT_DIGEST", ""))
    try:
        return base64.b64decode(match[1], validate=True).hex() if match else _no_digest(found)
    except binascii.Error:
        return _no_digest(found)


def _no_digest(found: list[Fault]) -> str:
    found.append(Fault("/headers/Content-Digest", "Must hold sha-256=:…: with the base64 of the file's SHA-256."))
    return ""


def _problem(refusal: Refusal) -> Exception:
    match refusal:
        case Invalid():
            return Problem(400, "invalid", str(refusal), errors=faults(refusal.problems))
        case OverLimit():
            return Problem(413, "too_large", str(refusal), limit=refusal.limit)
        case Incomplete():
            return Problem(400, "incomplete", str(refusal))
        case DirectUnavailable():
            return Problem(409, "direct_unavailable", str(refusal))
        case DigestMismatch():
            return Problem(422, "digest_mismatch", str(refusal))
        case ArtifactMismatch():
            return Problem(409, "artifact_mismatch", str(refusal), stored=stored(refusal.artifact))
        case StorageUnavailable():
            return Problem(503, "unavailable", str(refusal), headers={"Retry-After": str(retry_seconds())})
    return refusal


urlpatterns = [
    path("jobs/<uuid:job_id>/artifacts", JobArtifacts.as_view()),
    path("jobs/<uuid:job_id>/artifacts/uploads", Uploads.as_view()),
    path("jobs/<uuid:job_id>/artifacts/uploads/complete", CompleteUpload.as_view()),
]
