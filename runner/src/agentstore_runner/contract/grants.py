"""What a target lets a job do: a rule of the server, checked before a job is enqueued and again by its runner."""

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from agentstore_runner.contract.addresses import matches, port_of, same_site, split
from agentstore_runner.contract.problem import Problem, pointer

REQUESTS: Final = ("script", "stylesheet", "image", "font", "media", "fetch", "websocket", "other")
"""Classes of requests that a page makes besides its documents; documents and API steps are always restricted."""

HOST: Final = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")
SECRET: Final = re.compile(r"UAT_[A-Z0-9_]{1,60}")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# The one address of cloud metadata that is neither loopback nor link-local.
_METADATA: Final = ipaddress.ip_address("fd00:ec2::254")


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The rules of one target. `hosts` are patterns beside the origins; `restricted` are classes of REQUESTS."""

    name: str
    origins: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    environment: str = ""
    restricted: tuple[str, ...] = REQUESTS
    allow_local: bool = False
    allow_traces: bool = False

    def document(self) -> dict[str, Any]:
        """Return the grant as it travels with a claimed job."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def allows(self, parts: SplitResult) -> bool:
        """Say whether an address is at an origin of the target, on either scheme's usual port, or at a further host."""
        return any(same_site(urlsplit(origin), parts) for origin in self.origins) or any(
            matches(pattern, parts) for pattern in self.hosts
        )


def read(document: Mapping[str, Any]) -> Grant:
    """Read a grant from a claimed job; ValueError names the field that is not what it must be."""
    known: dict[str, Any] = {}
    for field in fields(Grant):
        value = document.get(field.name)
        if field.type in (str, bool):
            good = isinstance(value, field.type)
        else:
            good = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not good:
            raise ValueError(f"the target's {field.name} cannot be read")
        known[field.name] = tuple(value) if isinstance(value, list) else value
    return Grant(**known)


def origin(url: str) -> str:
    """Return scheme, host and port of an address in the one spelling; raises OffTargetError for what has none."""
    parts = split(url)
    bare = SplitResult(
        parts.scheme, f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "", "", "", ""
    )
    return bare.geturl() if port_of(parts) == port_of(bare) else f"{bare.geturl()}:{parts.port}"


def problems(spec: Mapping[str, Any], grant: Grant) -> Iterator[Problem]:
    """Find what a valid spec of checks asks for and its target does not give."""
    target = spec["target"]
    if origin(target["base_url"]) not in grant.origins:
        yield Problem("/target/base_url", f"the address is none of the target “{grant.name}”")
    if not grant.allow_local and is_local(urlsplit(target["base_url"]).hostname or ""):
        yield Problem("/target/base_url", f"the target “{grant.name}” allows no address of the runner's own machine")
    for index, pattern in enumerate(target.get("allow_hosts", ())):
        where = pointer("target", "allow_hosts", index)
        if not _covered(pattern, grant):
            yield Problem(where, f"the target “{grant.name}” does not allow the host {pattern}")
        elif not grant.allow_local and is_local(pattern.partition(":")[0]):
            yield Problem(where, f"the target “{grant.name}” allows no address of the runner's own machine")
    named = target.get("environment", "")
    if named and grant.environment and named != grant.environment:
        yield Problem("/target/environment", f"the target “{grant.name}” is {grant.environment}, not {named}")
    if spec.get("flags", {}).get("trace", "never") != "never" and not grant.allow_traces:
        yield Problem("/flags/trace", f"the target “{grant.name}” allows no traces")
    for name, source in spec.get("secrets", {}).items():
        if source["env"] not in grant.secrets:
            yield Problem(
                pointer("secrets", name, "env"), f"the target “{grant.name}” does not allow the secret {source['env']}"
            )


def is_local(host: str) -> bool:
    """Say whether a host, as written, is the machine itself or its link; other names are looked up by the runner."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return is_local_address(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return is_local_address(ipaddress.IPv4Address(socket.inet_aton(host)))  # 127.1, 0x7f.1 and 2130706433
    except (OSError, UnicodeError):
        return False


def is_local_address(address: Address) -> bool:
    """Say whether an address is loopback, link-local, unspecified or cloud metadata, also inside an IPv6 wrapping."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_local_address(inner)
    return address.is_loopback or address.is_link_local or address.is_unspecified or address == _METADATA


def _covered(pattern: str, grant: Grant) -> bool:
    """Say whether everything that a pattern of a spec matches is matched by the grant."""
    name, colon, port = pattern.partition(":")
    for parts in map(urlsplit, grant.origins):
        if parts.hostname == name and (not colon or str(port_of(parts)) == port):
            return True  # without a port it matches more, of which the runner lets through what the grant allows
    for allowed in grant.hosts:
        wide, wide_colon, wide_port = allowed.partition(":")
        if wide_colon and wide_port != port:
            continue
        if wide == name or (wide.startswith("*.") and name.removeprefix("*").endswith(wide[1:]) and name != wide[2:]):
            return True
    return False
