"""Secrets of channels at rest: sealed with a key that is derived from the installation's SECRET_KEY."""

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.encoding import force_bytes


class UnsealableError(Exception):
    """The secret was stored under another SECRET_KEY: set it anew."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def seal(secret: str) -> str:
    """The secret as it is stored."""
    return _box().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """The secret itself. Raises UnsealableError."""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise UnsealableError from None


def _box() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    derived = (hmac.digest(force_bytes(key), b"agentstore.notices.sealing", hashlib.sha256) for key in keys)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])
