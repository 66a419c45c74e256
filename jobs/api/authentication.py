"""Who calls: the agent of a bearer token."""

from typing import Any
from uuid import UUID

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from jobs.engine.leases import LeaseQuerySet
from jobs.services import execution
from jobs.services.errors import Unauthenticated

CLIENT_ADDRESS = "agentstore.client_address"  # in META: a callable, left by whoever knows which proxies to believe


class BearerAuthentication(BaseAuthentication):
    """Leaves the `execution.Caller` in `request.auth`; whatever is wrong with the bearer, the answer is the same.

    The look-up reads the work of one row as well, for a call that needs it.
    """

    def __init__(self, rows: LeaseQuerySet[Any] | None = None, row_id: UUID | None = None) -> None:
        self._rows, self._row_id = rows, row_id

    def authenticate(self, request: Request) -> tuple[None, execution.Caller]:
        """Read the Authorization header; raises Unauthenticated, also when it is missing."""
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated
        instance = request.META.get("HTTP_AGENTSTORE_INSTANCE", "")
        return None, execution.authenticate(
            bearer=token.strip(" "), rows=self._rows, row_id=self._row_id, instance=instance
        )


class IsAgent(BasePermission):
    """Lets agents pass, nobody else."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Say whether the request was made by an agent."""
        return isinstance(request.auth, execution.Caller)


def address_of(request: Request) -> str:
    """The address that a request came from; empty where nobody left it."""
    asked = request.META.get(CLIENT_ADDRESS)
    return str(asked()) if asked else ""
