"""`GET /metrics`: for Prometheus, which shows the token of the configuration."""

from hmac import compare_digest

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from prometheus_client import CONTENT_TYPE_LATEST

from jobs.metrics import exposition

from .answer import NO_STORE, retry_seconds


@csrf_exempt
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape. Without AGENTSTORE_METRICS_TOKEN there is no such page."""
    if not settings.METRICS_TOKEN:
        return HttpResponse("Not found.\n", status=404, content_type="text/plain", headers=NO_STORE)
    expected = f"Bearer {settings.METRICS_TOKEN}"
    if not compare_digest(request.headers.get("Authorization", "").encode(), expected.encode()):
        headers = {**NO_STORE, "WWW-Authenticate": "Bearer"}
        return HttpResponse("Unauthorized.\n", status=401, content_type="text/plain", headers=headers)
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={**NO_STORE, "Allow": "GET, HEAD"})
    try:
        return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST, headers=NO_STORE)
    except (OperationalError, InterfaceError):
        headers = {**NO_STORE, "Retry-After": str(retry_seconds())}
        return HttpResponse("The database cannot answer now.\n", status=503, content_type="text/plain", headers=headers)
