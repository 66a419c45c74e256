"""The browser's one way out: a proxy on loopback that connects only where the fence is open.

Pages start requests that nobody can look at before they leave: redirects inside windows they open, and inside frames
that live in processes of their own. All of them come through here. Names are looked up here as well, so that one that
leads elsewhere than a moment ago leads nowhere.
"""

import base64
import contextlib
import ipaddress
import socket
import socketserver
import ssl
import threading
import urllib.request
from typing import Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from agentstore_runner.contract.addresses import OffTargetError, port_of, split
from agentstore_runner.contract.grants import is_local_address
from agentstore_runner.uat.fence import Fence

_CONNECT_SECONDS: Final = 30.0
_HEAD_BYTES: Final = 256 * 1024
_BLOCK: Final = 64 * 1024
_WORDS: Final = {
    socket.gaierror: "ERR_NAME_NOT_RESOLVED",
    ConnectionRefusedError: "ERR_CONNECTION_REFUSED",
    TimeoutError: "ERR_CONNECTION_TIMED_OUT",
}
_HOP: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"})


class ClosedError(Exception):
    """Nobody may, or can, be connected to."""


class Gate(socketserver.ThreadingTCPServer):
    """Listens on a free port of loopback until it is closed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fence: Fence) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.fence = fence
        self.failures: dict[tuple[str | None, int | None], str] = {}
        """Why a host and port could not be connected to at last, in Chromium's words."""

    @property
    def url(self) -> str:
        """Where the browser finds it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def open(self) -> Self:
        """Let the browser through from now on."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a page that goes away breaks its connections, and the browser notices what breaks for it."""


class _Passage(socketserver.BaseRequestHandler):
    """One connection of the browser: a tunnel, or one plain request."""

    server: Gate
    request: socket.socket

    def handle(self) -> None:
        head, rest = self._head()
        method, _, words = head.partition(b" ")
        asked = words.partition(b" ")[0]
        try:
            if method == b"CONNECT":
                away = self._tunnel(asked.decode("ascii"))
                self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                away = self._plain(method, asked.decode("ascii"), head)
        except (ClosedError, OffTargetError, OSError, ValueError):
            # An answer would be shown as the page of that address; a connection that ends is an error of the network.
            if method == b"CONNECT":
                self.request.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        with away:
            threading.Thread(target=_pump, args=(rest, self.request, away), daemon=True).start()
            while block := away.recv(_BLOCK):
                self.request.sendall(block)

    def _head(self) -> tuple[bytes, bytes]:
        """Return the head of what the browser asks, and what it has sent beyond it."""
        received = b""
        while b"\r\n\r\n" not in received and len(received) <= _HEAD_BYTES:
            if not (block := self.request.recv(_BLOCK)):
                return b"", b""
            received += block
        head, _, rest = received.partition(b"\r\n\r\n")
        return head, rest

    def _tunnel(self, netloc: str) -> socket.socket:
        here = split(f"https://{netloc}")
        if not self.server.fence.opens(here) and not self.server.fence.opens(split(f"http://{netloc}")):
            raise ClosedError
        proxy = _proxy(here)
        if proxy is None:
            return self._connected(here)
        away = _to_proxy(proxy)
        away.sendall(f"CONNECT {netloc} HTTP/1.1\r\nHost: {netloc}\r\n{_credentials(proxy)}\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n") and len(answer) < _HEAD_BYTES:
            if not (byte := away.recv(1)):
                raise ClosedError
            answer += byte
        if answer.split(b" ", 2)[1:2] != [b"200"]:
            raise ClosedError
        return away

    def _plain(self, method: bytes, url: str, head: bytes) -> socket.socket:
        parts = split(url)
        if not self.server.fence.opens(parts):
            raise ClosedError
        proxy = _proxy(parts)
        away = self._connected(parts) if proxy is None else _to_proxy(proxy)
        # One request a connection: the next one of the browser may be for somewhere else.
        lines = [line for line in head.splitlines()[1:] if line.partition(b":")[0].strip().lower() not in _HOP]
        path = "/" + url.partition("//")[2].partition("/")[2]
        first = b" ".join((method, (url if proxy else path).encode("ascii"), b"HTTP/1.1"))
        more = _credentials(proxy).encode() if proxy else b""
        away.sendall(b"\r\n".join([first, *lines, b"Connection: close", more + b"\r\n"]))
        return away

    def _connected(self, parts: SplitResult) -> socket.socket:
        """Connect to the first address of a name that answers and that the target does not forbid."""
        place = (parts.hostname, port_of(parts))
        self.server.failures.pop(place, None)
        try:
            return self._first(parts)
        except OSError as error:
            for kind, word in _WORDS.items():
                if isinstance(error, kind):
                    self.server.failures[place] = word
            raise

    def _first(self, parts: SplitResult) -> socket.socket:
        port, failed = port_of(parts), None
        for *_, peer in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM):
            here = is_local_address(ipaddress.ip_address(str(peer[0]).partition("%")[0]))
            if here and not self.server.fence.grant.allow_local:
                continue
            try:
                away = socket.create_connection((str(peer[0]), port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                failed = error
                continue
            away.settimeout(None)
            return away
        raise failed or ClosedError


def _pump(first: bytes, source: socket.socket, away: socket.socket) -> None:
    """Send on what the browser has sent and sends, until it has no more."""
    with contextlib.suppress(OSError):
        block = first or source.recv(_BLOCK)
        while block:
            away.sendall(block)
            block = source.recv(_BLOCK)
        away.shutdown(socket.SHUT_WR)


def _proxy(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for an address, or None."""
    found = urllib.request.getproxies().get(parts.scheme)
    if found is None or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(found if "//" in found else f"http://{found}")


def _to_proxy(proxy: SplitResult) -> socket.socket:
    away = socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout=_CONNECT_SECONDS)
    away.settimeout(None)
    if proxy.scheme == "https":
        return ssl.create_default_context().wrap_socket(away, server_hostname=proxy.hostname)
    return away


def _credentials(proxy: SplitResult) -> str:
    if proxy.username is None:
        return ""
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}\r\n"
