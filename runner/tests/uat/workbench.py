"""A web site that misbehaves on request, and a desk that remembers what a handler told it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agentstore_runner.contract.addresses import OffTargetError
from agentstore_runner.handlers import Report, Work
from agentstore_runner.specs import own_grant
from agentstore_runner.uat.handler import UatHandler

Answer = tuple[int, dict[str, str], str]
HTML = {"Content-Type": "text/html; charset=utf-8"}


class Site(ThreadingHTTPServer):
    """Answers from a table of routes, and keeps what it was asked for; a route may hang until the site closes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.routes: dict[str, Answer | Callable[[], Answer]] = {}
        self.seen: list[tuple[str, dict[str, str], str]] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def page(self, path: str, body: str, status: int = 200, **headers: str) -> None:
        html = f"<!doctype html><title>{path}</title><link rel=icon href=data:,>{body}"
        self.routes[path] = (status, {**HTML, **headers}, html)

    def hangs(self) -> Answer:
        self.closing.wait()
        return 200, {}, ""

    def headers_for(self, path: str) -> dict[str, str]:
        return next(headers for seen, headers, _ in self.seen if seen == path)


class _Visit(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (named by the base class)
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path = self.path.split("?")[0]
        self.server.seen.append((path, {k.lower(): v for k, v in self.headers.items()}, body))
        answer = self.server.routes.get(path, (404, HTML, "nothing here"))
        status, headers, text = answer() if callable(answer) else answer
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815 (named by the base class)


@contextmanager
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


@dataclass
class Notebook:
    """A desk that keeps everything, and stops the work or calls back when a check begins."""

    on_progress: Callable[[int], object] = lambda done: None
    reason: str | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    steps: list[tuple[int, int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def stopped(self) -> str | None:
        return self.reason

    def wait(self, seconds: float) -> str | None:
        return self.reason

    def progress(self, done: int, total: int, title: str) -> None:
        self.steps.append((done, total, title))
        self.on_progress(done)

    def attach(self, path: Path, *, name: str, content_type: str) -> None:
        assert content_type == {".png": "image/png", ".zip": "application/zip"}[path.suffix]
        self.files[name] = path.read_bytes()

    def log(self, message: str) -> None:
        self.lines.append(message)


@dataclass
class Bench:
    """Runs specs the way the supervisor does."""

    scratch: Path
    environ: dict[str, str]
    passed_seconds: float = 0.0
    """What the handler's clock shows beyond the real one: tests let time pass without waiting."""

    def run(
        self, spec: dict[str, Any], desk: Notebook | None = None, *, seconds: float = 600, **granted: Any
    ) -> Report:
        """Run a spec under a grant of all it asks for, but for what `granted` says."""
        try:
            grant = None if granted == {"target": None} else {**own_grant(spec).document(), **granted}
        except OffTargetError:
            grant = None  # the spec is none
        environ = {**os.environ, **self.environ}
        handler = UatHandler(environ=environ, clock=lambda: time.monotonic() + self.passed_seconds)
        work = Work("id", "root", "uat.quick-task", spec, 1, seconds, self.scratch, grant)
        return handler.run(work, desk or Notebook())


def spec(base_url: str, *checks: list[dict[str, Any]] | dict[str, Any], **top: Any) -> dict[str, Any]:
    """Return a spec; a check is a list of steps, or an object to say more about it."""
    built = []
    for number, check in enumerate(checks):
        content = check if isinstance(check, dict) else {"steps": check}
        built.append({"id": f"c{number}", "title": f"Check {number}", **content})
    target = {"base_url": base_url, **top.pop("target", {})}
    limits = {"step_timeout_ms": 15_000, **top.pop("limits", {})}
    return {"version": 1, "target": target, "limits": limits, "checks": built, **top}


def outcome(report: Report, index: int = 0) -> tuple[str, str | None, str]:
    """Return status, code and message of one check."""
    assert report.results is not None, report.error
    check = report.results["checks"][index]
    return check["status"], check["code"], check["message"] or ""


def expect(css: str, **conditions: Any) -> dict[str, Any]:
    return {"expect": {"locator": {"css": css}, **conditions}}


def request(path: str, method: str = "GET", **content: Any) -> dict[str, Any]:
    return {"request": {"method": method, "path": path, **content}}
