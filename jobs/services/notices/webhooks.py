"""Webhooks as Standard Webhooks describes them: a signed POST to an address that was checked, without redirects."""

import base64
import hashlib
import hmac
import http.client
import secrets
import socket
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from . import addresses

PREFIX = "whsec_"
TIMEOUT = 5.0  # seconds for one step of a connection
TOTAL = 10.0  # seconds for all of it
SHOWN_BYTES = 300  # of an answer that refuses
MAX_URL = 2000


class UndeliveredError(Exception):
    """The message did not arrive; the text says why and holds no secret."""


def new_secret() -> str:
    """A signing key of 256 bits, in the spelling that receivers' libraries expect."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: HMAC-SHA256 over id, time and body."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    mac = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac).decode()


def url_problem(url: str, *, may_be_plain: bool) -> str:
    """What is wrong with a webhook's address, or an empty text."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This is no web address."
    if len(url) > MAX_URL or not url.isascii() or any(ord(character) < 33 for character in url):
        return f"At most {MAX_URL} printable ASCII characters without spaces."
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0 or parts.fragment:
        return "An address such as https://hooks.example.com/agentstore, without a fragment."
    if "@" in parts.netloc:
        return "Without user name and password: the signature says who sends."
    if parts.scheme == "http" and not may_be_plain:
        return "Only https: the operator has allowed no network for plain http."
    return ""


def post(url: str, body: bytes, headers: Mapping[str, str], networks: addresses.Networks) -> None:
    """POST to an address of the host that was judged a moment before, and to no other. Raises UndeliveredError.

    Redirects are not followed; an answer other than 2xx is a failure.
    """
    parts = urlsplit(url)
    plain, host = parts.scheme == "http", str(parts.hostname)
    port = parts.port or (80 if plain else 443)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: _Pinned | None = None
    try:
        address = addresses.resolve(host, port, networks, only_networks=plain)[0]
        connection = _Pinned(host, port, address, None if plain else _tls())
        with _ended_after(TOTAL, connection):
            connection.request("POST", target, body, dict(headers))
            with connection.getresponse() as answer:
                said = answer.read(SHOWN_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise UndeliveredError(_reason(error)) from None
    finally:
        if connection is not None:
            connection.close()
    if 300 <= answer.status < 400:
        raise UndeliveredError(f"The receiver answered {answer.status}, a redirect; those are not followed.")
    if not 200 <= answer.status < 300:
        raise UndeliveredError(f"The receiver answered {answer.status} {answer.reason}: {said}".strip(": "))


class _Pinned(http.client.HTTPConnection):
    """A connection to one address; the host's name serves the Host header and the certificate only."""

    def __init__(self, host: str, port: int, address: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout=TIMEOUT)
        self.default_port = 80 if tls is None else 443
        self._address, self._tls = address, tls

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._tls:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


class _ended_after:  # noqa: N801  (reads as a phrase)
    """Cuts a connection when its time is over: time-outs of single steps do not bound one that drips."""

    def __init__(self, seconds: float, connection: _Pinned) -> None:
        self._connection = connection
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._is_over = False

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._is_over:  # what was read of a cut answer can look like all of it
            raise TimeoutError

    def _cut(self) -> None:
        self._is_over = True
        held: Any = self._connection.sock
        if held is not None:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended already


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _reason(error: Exception) -> str:
    match error:
        case addresses.RefusedAddressError():
            return str(error)
        case socket.gaierror():
            return "The name of the host does not resolve."
        case ssl.SSLCertVerificationError():
            return f"The receiver's certificate is not trusted: {error.verify_message}."
        case TimeoutError():
            return "The receiver did not answer in time."
        case http.client.HTTPException():
            return f"The receiver did not answer with HTTP ({type(error).__name__})."
    return f"The connection failed: {getattr(error, 'strerror', None) or type(error).__name__}."
