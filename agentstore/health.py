"""Liveness and readiness for load balancers and orchestrators, answered before any other middleware."""

from collections.abc import Callable

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from artifacts.services.self_check import Probe


class HealthMiddleware:
    """Answers GET /healthz and /readyz whatever the Host header says and whether or not TLS was used."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._migrated = False
        self._storage = Probe()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a probe or hand the request on."""
        if request.path not in ("/healthz", "/readyz"):
            return self._get_response(request)
        response: HttpResponse
        if request.method not in ("GET", "HEAD"):
            response = HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        elif request.path == "/healthz":
            response = HttpResponse("ok", content_type="text/plain")
        else:
            response = self._readiness()
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response

    def _readiness(self) -> HttpResponse:
        # Reported, and never red: without its storage the installation still hears heartbeats and takes results.
        storage = self._storage.latest()
        try:
            with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
                cursor.execute("SELECT 1")
            # Asked until it was true once: migrations are never taken back under a running server.
            self._migrated = self._migrated or not _pending_migrations()
        except Error:
            # The reason stays in the log of whoever connects: this page has no login.
            return JsonResponse({"database": "unreachable", "migrations": "unknown", "storage": storage}, status=503)
        if not self._migrated:
            return JsonResponse({"database": "ok", "migrations": "pending", "storage": storage}, status=503)
        return JsonResponse({"database": "ok", "migrations": "ok", "storage": storage})


def _pending_migrations() -> bool:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
