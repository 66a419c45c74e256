"""Where messages may go: public addresses, and the networks that the installation's operator named."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

NAT64, TEREDO = ip_network("64:ff9b::/96"), ip_network("2001::/32")
# Public by number, and all the same only reachable inside: Azure's channel to its virtual machines.
INSIDE = frozenset({ip_address("168.63.129.16")})


class RefusedAddressError(OSError):
    """An address that messages must not go to."""


def judge(address: str, networks: Networks, *, only_networks: bool = False) -> Address:
    """The address, if messages may go to it; `only_networks` refuses the public ones too (plain http).

    Private, loopback, link-local, multicast and reserved addresses are refused unless `networks` holds them, also when
    an IPv6 address carries one (mapped, 6to4, NAT64); Teredo leads anywhere. Raises RefusedAddressError.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        raise RefusedAddressError(f"{address!r} is no IP address.") from None
    carried = _carried(found)
    if any(carried in network for network in networks):
        return found
    if only_networks:
        raise RefusedAddressError(f"Plain http goes only to networks that the operator allowed, and not to {found}.")
    is_inside = carried in INSIDE or carried in TEREDO
    if is_inside or not carried.is_global or carried.is_multicast or carried.is_reserved:
        raise RefusedAddressError(f"{found} is not a public address, and the operator has not allowed it.")
    return found


def _carried(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def resolve(host: str, port: int, networks: Networks, *, only_networks: bool = False) -> list[str]:
    """The addresses of a host, all of them judged: one bad answer refuses the name. Raises OSError."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = dict.fromkeys(str(answer[4][0]) for answer in answers)
    for address in found:
        judge(address, networks, only_networks=only_networks)
    return list(found)
