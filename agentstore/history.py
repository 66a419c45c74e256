"""Who acted, for the row history that PostgreSQL's triggers write."""

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from pghistory.middleware import HistoryMiddleware as UserHistoryMiddleware

from agentstore.client_address import client_address


class HistoryMiddleware(UserHistoryMiddleware):
    """Adds the client's address to the user and path of every event that a person's request causes."""

    def get_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what each event of this request carries."""
        context: dict[str, Any] = super().get_context(request)
        return {**context, "address": client_address(request)}

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Leave the API alone: there the actor stands in the row itself, and a context would cost a statement."""
        answer = self.get_response if request.path.startswith("/api/") else super().__call__
        response: HttpResponseBase = answer(request)
        return response
