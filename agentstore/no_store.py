"""No page made for a person may lie in a cache, refusals and redirects included."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase


class NoStore:
    """Says no-store on every answer that says nothing of caches itself; static files are answered before."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Hand the request on and mark the answer."""
        answer = self._get_response(request)
        answer.headers.setdefault("Cache-Control", "private, no-store")
        return answer
