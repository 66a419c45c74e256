"""Guessing bearers and enrolment codes is slowed down; whoever has a right one never comes here."""

from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.db import connection

WINDOW_SECONDS = 60
SLOTS = 65_536  # the most rows there can be; two clients of one slot are slowed down together

COUNT = f"""
    INSERT INTO refused_bearers AS seen (slot) VALUES (%s)
    ON CONFLICT (slot) DO UPDATE SET
      refusals = CASE WHEN seen.since > now() - interval '{WINDOW_SECONDS} s' THEN seen.refusals + 1 ELSE 1 END,
      since = CASE WHEN seen.since > now() - interval '{WINDOW_SECONDS} s' THEN seen.since ELSE now() END
    WHERE seen.refusals < %s OR seen.since <= now() - interval '{WINDOW_SECONDS} s'
    RETURNING refusals"""  # noqa: S608  (a number of ours)


def count_refusal(*, address: str) -> int:
    """Note that a bearer from this address was refused; how often within a minute, or 0 if it was once too often."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [_slot(address), settings.REFUSED_BEARERS_PER_MINUTE])
        found = cursor.fetchone()
    return found[0] if found else 0


def _slot(address: str) -> int:
    try:
        found = ip_address(address)
    except ValueError:
        whose = address  # a Unix socket has none
    else:
        # A client of IPv6 has 2^64 addresses to choose from.
        whose = str(ip_network((found, 64), strict=False) if isinstance(found, IPv6Address) else found)
    return int.from_bytes(sha256(whose.encode()).digest()[:4]) % SLOTS
