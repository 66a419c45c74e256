"""Which addresses a spec may open: URLs resolved against the target, hosts compared with what is allowed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

_FORBIDDEN = re.compile(r"[\s\\\x00-\x1f\x7f]")
_DEFAULT_PORT = {"http": 80, "https": 443}


class OffTargetError(ValueError):
    """An address that the spec does not allow; the text is a sentence for the person who wrote the spec."""


@dataclass(frozen=True)
class Target:
    """The base URL of a spec with the further hosts its pages may load from."""

    base_url: str
    allow_hosts: tuple[str, ...] = ()

    def resolve(self, address: str) -> str:
        """Return the absolute URL of an address; raises OffTargetError for other schemes, user info and other hosts."""
        if _FORBIDDEN.search(address):
            raise OffTargetError("an address must not contain spaces, backslashes or control characters")
        try:
            # The base counts as a folder, so that "page" stays below it and "/page" starts at the root of the host.
            url = urljoin(self.base_url.rstrip("/") + "/", address)
        except ValueError as error:
            raise OffTargetError(f"the address cannot be read: {error}") from error
        parts = split(url)
        if not self.allows(parts):
            raise OffTargetError(f"the host {host_and_port(parts)} is neither the target nor in target.allow_hosts")
        return url

    def allows(self, parts: SplitResult) -> bool:
        """Say whether a page of this address may be opened or loaded from."""
        return self.owns(parts) or any(matches(pattern, parts) for pattern in self.allow_hosts)

    def owns(self, parts: SplitResult) -> bool:
        """Say whether an address belongs to the target itself, which alone receives the test marker."""
        return same_site(urlsplit(self.base_url), parts)

    def hosts(self) -> Iterable[str]:
        """Yield the host patterns without ports, the target's first."""
        yield urlsplit(self.base_url).hostname or ""
        for pattern in self.allow_hosts:
            yield pattern.rpartition(":")[0] if re.search(r":[0-9]+\Z", pattern) else pattern


def split(url: str) -> SplitResult:
    """Parse an absolute http or https URL; raises OffTargetError for what readers may read apart."""
    if _FORBIDDEN.search(url):
        raise OffTargetError("an address must not contain spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OffTargetError(f"the address cannot be read: {error}") from error
    if parts.scheme not in _DEFAULT_PORT:
        raise OffTargetError("only http and https addresses can be opened")
    if not parts.hostname:
        raise OffTargetError("the address has no host")
    if "@" in parts.netloc:
        raise OffTargetError("an address must not contain a user name or a password")
    if port == 0:
        raise OffTargetError("the port must be between 1 and 65535")
    return parts


def host_and_port(parts: SplitResult) -> str:
    """Return the host, with its port where one was written."""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port is None else f"{host}:{parts.port}"


def same_site(base: SplitResult, parts: SplitResult) -> bool:
    """Say whether an address is at the host and port of another; a site may move between http and https."""
    if parts.scheme not in _DEFAULT_PORT or (parts.hostname or "") != (base.hostname or ""):
        return False
    return port_of(base) == port_of(parts) or (base.port is None and parts.port is None)


def port_of(parts: SplitResult) -> int | None:
    """Return the port of an address, written or by its scheme."""
    return parts.port or _DEFAULT_PORT.get(parts.scheme)


def matches(pattern: str, parts: SplitResult) -> bool:
    """Say whether an address is of a host pattern: `host`, `host:port` or `*.domain`."""
    name, colon, port = pattern.partition(":")
    if colon and str(port_of(parts)) != port:
        return False
    host = parts.hostname or ""
    return host.endswith(name[1:]) and host != name[2:] if name.startswith("*.") else host == name
