"""The fence around a job: which addresses its pages and requests may reach, by its spec and by its target."""

import ipaddress
import socket
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import SplitResult

from agentstore_runner.contract.addresses import OffTargetError, Target, split
from agentstore_runner.contract.grants import REQUESTS, Grant, is_local, is_local_address

DOCUMENT = "document"
_FETCHES = frozenset({"xhr", "fetch", "eventsource", "preflight", "ping", "prefetch"})


@dataclass(frozen=True, kw_only=True)
class Fence(Target):
    """The target of a spec within the grant of its row; names are looked up once a job."""

    grant: Grant
    _looked_up: dict[str, bool] = field(default_factory=dict, init=False, compare=False)

    def allows(self, parts: SplitResult) -> bool:
        """Say whether a page of this address may be opened: by the spec, by the target, and by where its name leads."""
        return super().allows(parts) and self.grant.allows(parts) and not self.is_local(parts)

    def refusal(self, url: str, resource_type: str) -> str | None:
        """Return why a page may not load an address as this type of resource (the browser's word), or None."""
        try:
            parts = split(url)
        except OffTargetError as error:
            return str(error)
        kind = resource_type.lower()
        kind = "fetch" if kind in _FETCHES else kind
        if kind != DOCUMENT and (kind if kind in REQUESTS else "other") not in self.grant.restricted:
            return f"{parts.hostname} is on the runner's own machine or link" if self.is_local(parts) else None
        return None if self.allows(parts) else f"{parts.netloc} is not allowed"

    def opens(self, parts: SplitResult) -> bool:
        """Say whether the browser may connect to an address at all, whatever it loads from there."""
        if set(REQUESTS) <= set(self.grant.restricted):
            return self.allows(parts)
        return not self.is_local(parts)

    def is_local(self, parts: SplitResult) -> bool:
        """Say whether an address leads to this machine or its link and the target does not allow that."""
        host = parts.hostname or ""
        if self.grant.allow_local:
            return False
        if host not in self._looked_up:
            self._looked_up[host] = is_local(host) or leads_here(host)
        return self._looked_up[host]

    def is_local_peer(self, url: str, address: str) -> bool:
        """Say whether a connection ended at a local address after all; one through a proxy shows only the proxy's."""
        if self.grant.allow_local or _has_proxy(split(url)):
            return False
        try:
            return is_local_address(ipaddress.ip_address(address.strip("[]").partition("%")[0]))
        except ValueError:
            return False


def leads_here(host: str) -> bool:
    """Say whether the resolver knows a host under an address of this machine or its link."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # nobody gets there, or a proxy does the looking up
    return any(is_local_address(ipaddress.ip_address(str(entry[4][0]).partition("%")[0])) for entry in found)


def _has_proxy(parts: SplitResult) -> bool:
    return parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname or "")
