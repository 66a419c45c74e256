"""The stand-in on a real socket: real HTTP, and the faults of a network."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from standin import PATIENCE_S, Call, Fault, Reply, StandIn

NAMES = {"artifacts": "artifact", "uploads": "begin_upload", "complete": "complete_upload"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, *args: Any) -> None:
        """Keep the output of the tests quiet."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        standin, parts = self.server.standin, urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if parts.path in ("/healthz", "/readyz"):
            self._send(200, b"ok", {"Content-Type": "text/plain"})
            return
        segments = parts.path.strip("/").split("/")
        name = NAMES.get(segments[-1], segments[-1])
        table = segments[2] if len(segments) > 2 else ""
        row_id = segments[3] if len(segments) > 4 else None  # api/v1/jobs/<row>/…
        body = json.loads(raw) if raw and name not in ("artifact", "bucket") else None
        with standin.changed:
            standin.calls.append(Call(name, body, raw, headers, row_id))
            fault = next((fault for fault in standin.faults if fault.call == name), None)
            if fault is not None:
                standin.faults.remove(fault)
            reply: Reply = (0, None, {})
            if fault is None or fault.acts:
                reply = standin.dispatch(table, name, row_id, body, raw, headers, parse_qs(parts.query))
            standin.changed.notify_all()
        status, document, extra = reply
        content = b"" if document is None else json.dumps(document).encode()
        extra = {"Content-Type": "application/json", **extra}
        if fault is None:
            self._send(status, content, extra)
        else:
            self._break(fault, status, content, extra)

    def _break(self, fault: Fault, status: int, content: bytes, headers: dict[str, str]) -> None:
        if fault.how == "reply" and fault.reply is not None:
            self._send(*fault.reply)
        elif fault.how == "cut":
            self._send(status, content[:-3], {**headers, "Content-Length": str(len(content))})
        elif fault.how == "hang" and fault.release is not None:
            fault.release.wait(PATIENCE_S)
        self.close_connection = True

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            if status != 204 or name == "Retry-After":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    standin: StandIn

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A runner that is killed in the middle of a request is part of the tests."""


@contextmanager
def serving() -> Iterator[StandIn]:
    standin = StandIn()
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.standin = standin
        standin.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield standin
        finally:
            server.shutdown()
            thread.join()
