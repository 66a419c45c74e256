"""The shape of an agent's bearer: `ags_r_`, 33 base62 digits (192 random bits), 6 base62 digits of CRC-32.

An enrolment code is the same behind `ags_e_`. The prefix lets secret scanners find leaks and the checksum lets the
server refuse junk without a query. Only the SHA-256 is stored: 192 random bits need no slow hash.
"""

import hashlib
import hmac
import secrets
import string
import zlib

PREFIX = "ags_r_"
CODE_PREFIX = "ags_e_"
LENGTH = len(PREFIX) + 33 + 6
SHOWN = 12  # leading characters that are stored to recognise a token by
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def mint(prefix: str = PREFIX) -> str:
    """A fresh bearer or code; show it once and forget it."""
    head = prefix + _base62(secrets.randbits(192), 33)
    return head + checksum(head)


def well_formed(token: str, prefix: str = PREFIX) -> bool:
    """Whether a text could be one of our bearers or codes; never says whose."""
    if len(token) != LENGTH or not token.isascii() or not token.startswith(prefix):
        return False
    return hmac.compare_digest(token[-6:], checksum(token[:-6]))


def digest(token: str) -> str:
    """The stored form: SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def checksum(head: str) -> str:
    """The last six digits of a bearer that begins so."""
    return _base62(zlib.crc32(head.encode("ascii")), 6)


def _base62(number: int, width: int) -> str:
    text = ""
    while number:
        number, rest = divmod(number, 62)
        text = DIGITS[rest] + text
    return text.rjust(width, "0")
