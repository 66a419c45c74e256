"""What the OpenAPI document says of each call: every status it may answer, with its codes."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from .components import COMPONENTS, Schema, ref
from .problem import CONTENT_TYPE

F = TypeVar("F", bound=Callable[..., Any])

ALWAYS = {
    400: "bad_request",
    401: "unauthenticated",
    405: "method_not_allowed",
    429: "too_many_refusals",
    500: "internal",
    503: "unavailable",
}
BODY = {
    400: "invalid, malformed, duplicate_key, too_deep, incomplete, invalid_length",
    411: "length_required",
    413: "too_large",
    415: "unsupported_media_type",
}
HELD = {404: "not_found", 409: "lease_lost", 410: "ended"}
CLAIM = BODY | {
    403: "agent_paused, agent_draining, agent_disabled",
    409: "claim_mismatch, claim_foreign, agent_busy, lease_lost",
    410: "ended",
    426: "runner_too_old",
}
ENROL = BODY | {
    403: "enrolment_refused",
    409: "name_taken, enrolment_mismatch",
    422: "invalid",
    426: "runner_too_old",
}
HEARTBEAT = BODY | HELD | {422: "invalid"}
START = BODY | HELD
RESULT = BODY | HELD | {409: "result_mismatch, lease_lost", 422: "invalid"}
RETRY_AFTER = (204, 409, 429, 503)


class Bearer(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # spectacular gives it no types
    """The bearer of an agent, as a security scheme."""

    target_class = "jobs.api.authentication.BearerAuthentication"
    name = "agent"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """The scheme itself."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "ags_r_…", "description": "A token of an agent."}


def call(
    name: str,
    summary: str,
    *,
    answers: dict[int, tuple[str, Schema | None]],
    problems: dict[int, str],
    body: Schema | None = None,
    media_type: str = "application/json",
    also: tuple[str, ...] = (),
    parameters: tuple[OpenApiParameter, ...] = (),
) -> Callable[[F], F]:
    """Describe one method of a view: its answers by status (`also` in other media types), and its problem codes."""
    codes = {status: [ALWAYS[status]] for status in ALWAYS}
    for status, more in problems.items():
        codes.setdefault(status, []).insert(0, more)
    responses: dict[Any, OpenApiResponse] = {
        (status, "application/json"): OpenApiResponse(response=schema, description=description)
        for status, (description, schema) in answers.items()
    }
    for status, (description, _schema) in answers.items():
        for other in also:
            responses[(status, other)] = OpenApiResponse(response=OpenApiTypes.STR, description=description)
    for status in sorted(codes):
        description = f"{HTTPStatus(status).phrase}: {', '.join(codes[status])}"
        responses[(status, CONTENT_TYPE)] = OpenApiResponse(response=ref("Problem"), description=description)
    headers = [
        OpenApiParameter(
            "Retry-After", OpenApiTypes.INT, OpenApiParameter.HEADER, description="Seconds to wait.",
            response=[status for status in RETRY_AFTER if status in answers or status in codes],
        )
    ]  # fmt: skip
    return extend_schema(
        operation_id=name,
        summary=summary,
        request=None if body is None else {media_type: body},
        responses=responses,
        parameters=[*parameters, *headers],
    )


def add_components(result: Schema, generator: object, request: object, public: bool) -> Schema:
    """Spectacular's hook: the components that the calls refer to; a call that reads a body cannot do without."""
    result["components"]["schemas"] = dict(sorted(COMPONENTS.items()))
    for operations in result["paths"].values():
        for operation in operations.values():
            if "requestBody" in operation:
                operation["requestBody"]["required"] = True
    return result
