"""Addresses of our own that need no session: what they serve, how, and until when is inside the signature."""

import time
from dataclasses import asdict, dataclass

from django.core import signing

SALT = "agentstore.artifacts.bytes"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What one address serves: an object, under this type and disposition."""

    key: str
    content_type: str
    disposition: str


def sign(grant: Grant, *, seconds: int) -> str:
    """A token, safe in a path, that is good for `seconds`."""
    until = int(time.time()) + seconds
    return signing.Signer(salt=SALT).sign_object({**asdict(grant), "until": until}, compress=True)


def read(token: str) -> Grant | None:
    """What a token grants; None when it was changed, made for something else, or its time is over."""
    try:
        signed = signing.Signer(salt=SALT).unsign_object(token)
    except signing.BadSignature:
        return None
    if signed.pop("until") < time.time():
        return None
    return Grant(**signed)
