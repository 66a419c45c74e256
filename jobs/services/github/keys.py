"""The public keys of issuers: kept while they are good, asked for seldom, and never lost to an outage of the issuer."""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import jwt

from jobs.services.errors import KeysUnavailable

FRESH_SECONDS = 300.0  # so long a key is taken without asking whether it still stands there
STALE_SECONDS = 24 * 3600.0  # so long a key outlives an issuer that does not answer
COOL_DOWN_SECONDS = 30.0  # between two questions, whatever tokens name
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class UnknownKey(Exception):
    """The issuer has no key of that name."""


@dataclass
class _Shelf:
    keys: dict[str, jwt.PyJWK] = field(default_factory=dict)
    read_at: float = float("-inf")
    asked_at: float = float("-inf")
    failed: bool = False


class Keys:
    """The keys of any number of issuers, by the address of their key set. Threads share one."""

    def __init__(
        self, *, fetch: Callable[[str], bytes] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch, self._clock = fetch or _over_http, clock
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def key(self, url: str, kid: str) -> jwt.PyJWK:
        """The key `kid` of a key set.

        Raises UnknownKey, or KeysUnavailable when the issuer does not answer and the key is not known from before. Only
        one thread asks, and not twice within COOL_DOWN_SECONDS: whoever comes meanwhile gets what is known.
        """
        with self._lock:
            shelf = self._shelves.setdefault(url, _Shelf())
            now = self._clock()
            if kid in shelf.keys and now - shelf.read_at < FRESH_SECONDS:
                return shelf.keys[kid]
            must_ask = now - shelf.asked_at >= COOL_DOWN_SECONDS
            if must_ask:
                shelf.asked_at, shelf.failed = now, True  # until the answer is here
        if must_ask:
            self._ask(url, shelf)
        with self._lock:
            if kid in shelf.keys and self._clock() - shelf.read_at < STALE_SECONDS:
                return shelf.keys[kid]
            raise KeysUnavailable if shelf.failed else UnknownKey

    def _ask(self, url: str, shelf: _Shelf) -> None:
        try:
            found = _parsed(self._fetch(url))
        except (OSError, ValueError) as trouble:
            log.warning("The keys at %s cannot be read: %s", url, trouble)
            return
        with self._lock:
            shelf.keys, shelf.read_at, shelf.failed = found, self._clock(), False


def _parsed(text: bytes) -> dict[str, jwt.PyJWK]:
    """The RSA signing keys of a key set; raises ValueError when there are none."""
    document = json.loads(text)
    listed = document.get("keys") if isinstance(document, dict) else None
    found = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, Mapping) and one.get("kty") == "RSA" and one.get("use", "sig") == "sig":
            key = _key(one)
            if key is not None:
                found[key.key_id or ""] = key
    found.pop("", None)
    if not found:
        raise ValueError("it holds no key that could be used")
    return found


def _key(one: Mapping[str, Any]) -> jwt.PyJWK | None:
    try:
        return jwt.PyJWK(dict(one), algorithm="RS256")
    except jwt.PyJWTError:
        return None  # a key that we cannot use must not cost the others


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing: keys from elsewhere are somebody else's."""


def _over_http(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
        text: bytes = answer.read(MAX_BYTES + 1)
        if answer.status != HTTPStatus.OK or len(text) > MAX_BYTES:
            raise ValueError(f"status {answer.status}, {len(text):,} bytes")
    return text
