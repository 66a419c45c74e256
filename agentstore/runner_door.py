"""The short way of a runner's request: to its view, without what only people's pages need.

A session, a language, CSRF, messages, a content policy and the lockout of logins are nothing to a bearer, and
every heartbeat would pay for them.
"""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from django.db import Error
from django.http import HttpRequest, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import resolve

from agentstore.client_address import client_address
from jobs.api.authentication import CLIENT_ADDRESS
from jobs.api.problem import problem_of, response, too_many_refusals
from jobs.services import throttle


class RunnerDoor:
    """Calls the view of an address under /api/ itself, instead of the middleware below."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a runner's request or hand a person's on."""
        if not request.path_info.startswith("/api/"):
            return self._get_response(request)
        request.get_host()  # raises DisallowedHost
        request.resolver_match = match = resolve(request.path_info)
        request.META[CLIENT_ADDRESS] = partial(client_address, request)
        answer: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
        if isinstance(answer, SimpleTemplateResponse):
            answer = answer.render()
        if answer.status_code == HTTPStatus.UNAUTHORIZED and "Authorization" in request.headers:
            answer = self._counted(request, answer)
        if not answer.streaming:
            answer.headers.setdefault("Content-Length", str(len(answer.content)))  # type: ignore[attr-defined]  # only streams have none
        return answer

    @staticmethod
    def _counted(request: HttpRequest, refused: HttpResponseBase) -> HttpResponseBase:
        """The refusal of a bearer, or 429 when this client had too many of them; a good bearer never comes here."""
        try:
            if throttle.count_refusal(address=client_address(request)):
                return refused
        except Error as trouble:
            return response(problem_of(trouble))
        return response(too_many_refusals("bearers", throttle.WINDOW_SECONDS))
