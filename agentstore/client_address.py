"""The address a request came from, as far as it can be believed."""

from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """Return the peer's address; behind N trusted proxies the Nth entry of X-Forwarded-For from the right."""
    peer = str(request.META.get("REMOTE_ADDR") or "")
    if not settings.TRUSTED_PROXIES:
        return peer
    # Only our own proxies append on the right; what stands further left was written by the client.
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",")]
    hop = hops[-min(settings.TRUSTED_PROXIES, len(hops))]
    try:
        return str(ip_address(hop))
    except ValueError:
        return peer
