"""A storage that fails: an HTTP proxy in front of a real S3 server, which does to each request what chance says."""

import random
import socket
import threading
from collections import Counter
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

# Share of requests. A reply may also be lost after the storage did what was asked: the dearest of faults.
FAULTS = {"refused": 0.05, "error": 0.05, "cut": 0.05, "reply lost": 0.05, "silent": 0.005}
SILENCE = 5.0  # seconds at most; the client gives up sooner


class FaultyStorage:
    """Listens on a port of loopback until the end of its `with`; faults can be turned off."""

    def __init__(self, target: str, seed: int) -> None:
        self.met: Counter[str] = Counter()
        self.fails = True
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self.ended = threading.Event()
        self.target = urlsplit(target).netloc
        faulty = self

        class Handler(_Handler):
            storage = faulty

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def chosen(self) -> str:
        """What happens to the next request."""
        with self._lock:
            (found,) = self._rng.choices([*FAULTS, "none"], [*FAULTS.values(), 1 - sum(FAULTS.values())])
            found = found if self.fails else "none"
            self.met[found] += 1
            return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: FaultyStorage

    def _pass_on(self) -> None:
        self.close_connection = True
        fault, length = self.storage.chosen(), int(self.headers.get("Content-Length", 0))
        if fault == "refused":
            return self._cut()
        if fault == "cut":
            self.rfile.read(length // 2)
            return self._cut()
        body = self.rfile.read(length)
        if fault == "error":
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            return self.end_headers()
        status, headers, content = self._asked(body)
        if fault == "silent":
            self.storage.ended.wait(SILENCE)
        if fault in ("reply lost", "silent"):
            return self._cut()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", dict(headers).get("Content-Length", str(len(content))))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        return None

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on  # noqa: N815  (the names that the base class calls)

    def _asked(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = HTTPConnection(self.storage.target, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _cut(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name that the base class gives it)
        """Nothing: faults are expected here."""
