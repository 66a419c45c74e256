"""What was refused, as RFC 9457 problem details: one mapping from refusals to answers for every endpoint."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from agentstore_runner.contract.problem import Problem as Fault
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpResponse
from rest_framework.exceptions import APIException

from jobs.engine import errors as engine
from jobs.services import errors as services
from jobs.services.documents import Malformed

from .answer import answer, moment, retry_seconds

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
AUTHENTICATE = 'Bearer realm="agentstore"'

# InternalError is what a standby says that was not promoted yet, among other troubles of the server itself.
DATABASE_TROUBLE = (OperationalError, InterfaceError, InternalError)

ANSWERS: dict[type[Exception], tuple[HTTPStatus, str]] = {
    services.Unauthenticated: (HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    services.TokenRefused: (HTTPStatus.UNAUTHORIZED, "token_refused"),
    services.KeysUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "issuer_unavailable"),
    services.AgentNotActive: (HTTPStatus.FORBIDDEN, "agent_not_active"),
    services.EnrolmentRefused: (HTTPStatus.FORBIDDEN, "enrolment_refused"),
    services.NameTaken: (HTTPStatus.CONFLICT, "name_taken"),
    services.EnrolmentMismatch: (HTTPStatus.CONFLICT, "enrolment_mismatch"),
    services.RunnerTooOld: (HTTPStatus.UPGRADE_REQUIRED, "runner_too_old"),
    services.NoResults: (HTTPStatus.NOT_FOUND, "no_results"),
    services.Invalid: (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    engine.UnknownRow: (HTTPStatus.NOT_FOUND, "not_found"),
    engine.LeaseLost: (HTTPStatus.CONFLICT, "lease_lost"),
    engine.Ended: (HTTPStatus.GONE, "ended"),
    engine.AgentBusy: (HTTPStatus.CONFLICT, "agent_busy"),
    engine.ForeignClaim: (HTTPStatus.CONFLICT, "claim_foreign"),
    engine.ClaimMismatch: (HTTPStatus.CONFLICT, "claim_mismatch"),
    engine.ResultMismatch: (HTTPStatus.CONFLICT, "result_mismatch"),
    Malformed: (HTTPStatus.BAD_REQUEST, "malformed"),
    Http404: (HTTPStatus.NOT_FOUND, "not_found"),
}


class Problem(Exception):
    """A refusal that a door itself decides; `extensions` are further members of the body."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **extensions: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.extensions = headers or {}, extensions


def too_many_refusals(what: str, wait: int) -> Problem:
    """The refusal to look at what was presented once more, for `wait` seconds."""
    detail = f"Too many {what} of this address were refused; wait {wait} seconds."
    return Problem(429, "too_many_refusals", detail, headers={"Retry-After": str(wait)})


def faults(found: tuple[Fault, ...] | list[Fault]) -> list[dict[str, str]]:
    """The `errors` member: each fault with its JSON pointer."""
    return [{"pointer": fault.pointer, "detail": fault.message} for fault in found]


def response(problem: Problem) -> HttpResponse:
    """The answer that carries a problem."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": int(problem.status),
        "code": problem.code,
        "detail": problem.detail,
        **problem.extensions,
    }
    return answer(body, status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers)


def handler(exc: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """DRF's exception handler: every exception of a view becomes a problem, the unexpected ones with a log line."""
    refusal = response(problem_of(exc))
    if refusal.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("A fault while answering %s", context["request"].path, exc_info=exc)
    elif refusal.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        # One cause, many requests: no traceback each.
        log.warning("The database cannot answer %s: %s", context["request"].path, exc)
    return refusal


def problem_of(exc: Exception) -> Problem:
    """The problem that stands for an exception; an unexpected one tells nothing about itself."""
    match exc:
        case Problem():
            return exc
        case APIException():
            # Not the framework's sentence: it follows Accept-Language, and may quote the request.
            return Problem(exc.status_code, str(exc.default_code), HTTPStatus(exc.status_code).description)
        case _ if isinstance(exc, DATABASE_TROUBLE):
            return Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The database cannot answer now; ask again.",
                headers={"Retry-After": str(retry_seconds())},
            )  # fmt: skip
    known = next((ANSWERS[kind] for kind in type(exc).__mro__ if kind in ANSWERS), None)
    if known is None:
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "A fault of the server; it was logged.")
    status, code = known
    detail = "There is no such resource." if isinstance(exc, Http404) else str(exc)
    headers, extensions = _further(exc)
    return Problem(status, extensions.pop("code", code), detail, headers=headers, **extensions)


def _further(exc: Exception) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers, and members of the body, that a refusal adds."""
    match exc:
        case services.Unauthenticated():
            return {"WWW-Authenticate": AUTHENTICATE}, {}
        case services.AgentNotActive():
            return {}, {"code": f"agent_{exc.state}", "note": exc.note, "until": moment(exc.until)}
        case services.Invalid():
            return {}, {"errors": faults(exc.problems)}
        case engine.AgentBusy() | services.KeysUnavailable():
            return {"Retry-After": str(retry_seconds())}, {}
        case engine.Ended() | engine.ResultMismatch():
            return {}, {"outcome": _outcome(exc)}
        case Malformed():
            return {}, {"code": exc.code}
    return {}, {}


def _outcome(refusal: engine.EngineRefusal) -> dict[str, Any] | None:
    """How the attempt ended that a refusal speaks of."""
    row = refusal.row
    if row is None:
        return None
    return {
        "status": row.status,
        "verdict": getattr(row, "verdict", None),  # tasks have none
        "finished_at": moment(getattr(row, row.lifecycle.finished_at)),
    }
