"""Answers to requests under /api/ that reach no endpoint, so that runners never have to read a page made for people."""

import sys

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.html import escape
from django.utils.translation import gettext
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from .answer import NO_STORE
from .problem import DATABASE_TROUBLE, Problem, problem_of, response

PREFIX = "/api/"


@csrf_exempt
def not_found(_request: HttpRequest) -> HttpResponse:
    """404 for an address that no endpoint has."""
    return response(Problem(404, "not_found", "There is no such resource."))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """400 for a request that Django refused before any view, such as one with a forged Host header."""
    if request.path.startswith(PREFIX):
        return response(Problem(400, "bad_request", "The server refuses the host name or the form of this request."))
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """503 while the database cannot answer, else 500, for a fault outside of any endpoint; Django has logged it."""
    fault = sys.exception()
    if not isinstance(fault, DATABASE_TROUBLE):
        if request.path.startswith(PREFIX):
            return response(Problem(500, "internal", "A fault of the server; it was logged."))
        return defaults.server_error(request)
    unavailable = problem_of(fault)
    if request.path.startswith(PREFIX):
        return response(unavailable)
    # Nothing but words: a template of the admin would ask the database again.
    words = gettext("The database cannot answer now. Try again in a moment.")
    page = f"<!doctype html><meta charset=utf-8><title>agentstore</title><p>{escape(words)}</p>"
    return HttpResponse(page, status=unavailable.status, headers={**NO_STORE, **unavailable.headers})
