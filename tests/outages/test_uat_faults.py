"""A real server, a real runner and a real Chromium, and a fault in the middle: each job ends in a truthful state."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.outages.installation import Database, Web, add_agent, maintenance, manage, wait_until, web
from tests.outages.line import Line

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
LEASE = 9  # seconds: a runner beats every three of them
# What a page holds back until the test lets it go, so that a fault hits the job in its middle and nobody sleeps.
TWO_HOURS_OFF = """
import datetime, time
_time, _off = time.time, 7200
time.time = lambda: _time() + _off
class _Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=_off)
datetime.datetime = _Shifted
"""


class Site(ThreadingHTTPServer):
    """A web site with one page that waits for the test, and then shows `held` beside what every page shows."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.asked, self.released = threading.Event(), threading.Event()
        self.held = b""
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = b"<title>Site</title><link rel=icon href=data:,><p>home</p>"
        if self.path == "/held":
            self.server.asked.set()
            self.server.released.wait(120)
            body += self.server.held
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


@pytest.fixture
def site() -> Iterator[Site]:
    """The site; its held page is let go at the end."""
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


class Case:
    """One job of three checks, whose second one is held back, and the runner that works on it."""

    def __init__(self, postgres: Database, site: Site, home: Path) -> None:
        self.postgres, self.site, self.home = postgres, site, home
        manage("sync_kinds", database=postgres.url, home=home)
        home_steps = [{"goto": "/"}, {"expect": {"locator": {"css": "p"}, "text": "home"}}]
        spec = {
            "version": 1, "target": {"base_url": site.url}, "limits": {"step_timeout_ms": 60_000},
            "checks": [
                {"id": "first", "title": "First", "steps": home_steps},
                {"id": "held", "title": "Held", "steps": [{"goto": "/held"}, *home_steps[1:]]},
                {"id": "last", "title": "Last", "steps": home_steps},
            ],
        }  # fmt: skip
        with postgres.connect() as connection:
            self.agent, self.bearer = add_agent(connection)
            target = connection.execute(
                "INSERT INTO targets (name, allow_local) VALUES (%s, true) RETURNING id", [self.agent]
            ).fetchone()
            assert target
            connection.execute("INSERT INTO target_origins (origin, target_id) VALUES (%s, %s)", [site.url, target[0]])
            row = connection.execute(
                "INSERT INTO agent_jobs (principal_key, kind, spec, created_by, lease_seconds, max_attempts)"
                " VALUES (%s, 'uat.quick-task', %s, 'test', %s, 2) RETURNING id",
                [self.agent, json.dumps(spec), LEASE],
            ).fetchone()
            assert row
            self.job: UUID = row[0]

    def start(self, port: int, *words: str, **environment: str) -> "subprocess.Popen[bytes]":
        """A runner process; what it says is in `log`."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        command = [sys.executable, "-m", "agentstore_runner", "run", "--server", f"http://127.0.0.1:{port}", "--name"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, self.agent, "--state", str(self.home / self.agent), *words],
                env={**kept, "AGENTSTORE_TOKEN": self.bearer, **environment}, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.home / f"{self.agent}.log"

    def row(self, column: str, attempt: int = 1) -> Any:
        """A column of an attempt; None while there is none."""
        sql = f"SELECT {column} FROM agent_jobs WHERE root_id = %s AND attempt = %s"
        found = self.postgres.ask(sql, self.job, attempt)
        return found[0][0] if found else None

    def until_held(self) -> None:
        """Wait until the browser asks for the page that is held back."""
        assert self.site.asked.wait(90), self.log.read_text()

    def ends(self, attempt: int = 1) -> tuple[str, str | None, str | None]:
        """Wait for the end of an attempt; return status, verdict and failure class."""
        wait_until(lambda: self.row("finished_at", attempt), f"the attempt ends: {self.log}", 120)
        return tuple(self.row(name, attempt) for name in ("status", "verdict", "failure_class"))  # type: ignore[return-value]  # three

    def statuses(self, attempt: int = 1) -> list[str]:
        return [check["status"] for check in self.row("results", attempt)["checks"]]


@pytest.fixture
def case(postgres: Database, site: Site, home: Path) -> Iterator[Case]:
    """The job; what its runner said is printed when the test fails."""
    made = Case(postgres, site, home)
    yield made
    print(made.log.read_text() if made.log.exists() else "the runner was not started")


@pytest.fixture
def server(home: Path, postgres: Database) -> Iterator[Web]:
    with web(home, postgres.url) as running:
        yield running


def ended(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(90)
    finally:
        process.kill()
        process.wait()


def test_a_server_that_is_restarted_in_mid_job_gets_the_whole_result(
    case: Case, home: Path, postgres: Database
) -> None:
    with web(home, postgres.url) as before:
        runner = case.start(before.port, "--once")
        case.until_held()
    case.site.released.set()
    wait_until(lambda: "not acknowledged" in case.log.read_text(), "the runner notices that the server is away")
    with web(home, postgres.url, port=before.port):
        assert case.ends() == ("done", "pass", None)
        assert case.statuses() == ["passed"] * 3
        assert ended(runner) == 0


@pytest.mark.soak
def test_a_network_that_is_cut_for_longer_than_the_lease_loses_the_attempt_and_not_the_work(
    case: Case, server: Web, home: Path, postgres: Database
) -> None:
    with maintenance(home, postgres.url), Line(server.port) as line:
        runner = case.start(line.port)
        case.until_held()
        line.fall_silent()
        assert case.ends() == ("failed", None, "lost")
        case.site.released.set()
        wait_until(
            lambda: "the report is kept in" in case.log.read_text() or "ended after" in case.log.read_text(), "it stops"
        )
        line.speak()
        with postgres.connect() as connection:  # the retry need not wait for its pause
            connection.execute("UPDATE agent_jobs SET not_before = NULL WHERE root_id = %s AND attempt = 2", [case.job])
        assert case.ends(2) == ("done", "pass", None)
        runner.send_signal(signal.SIGTERM)
        assert ended(runner) in (0, 143)
        late = postgres.ask("SELECT details FROM audit_events WHERE subject_id = %s AND tag = 'late_result'", case.job)
        assert len(late) == 1, "the report of the lost attempt is kept as evidence"


def test_a_browser_that_is_killed_costs_its_check_and_not_the_job(case: Case, server: Web) -> None:
    runner = case.start(server.port, "--once")
    case.until_held()
    (browser,) = [pid for pid in descendants(runner.pid) if is_main_browser(pid)]
    os.kill(browser, signal.SIGKILL)
    case.site.released.set()
    assert case.ends() == ("done", "risk", None)
    assert case.statuses() == ["passed", "error", "passed"]
    assert ended(runner) == 0
    assert [pid for pid in descendants(runner.pid) if is_main_browser(pid)] == []


def test_a_token_that_is_revoked_in_mid_job_ends_the_attempt_as_lost_and_the_report_stays_on_disk(
    case: Case, server: Web, home: Path, postgres: Database
) -> None:
    with maintenance(home, postgres.url):
        runner = case.start(server.port, "--once")
        case.until_held()
        with postgres.connect() as connection:
            connection.execute(
                "UPDATE agent_tokens SET revoked_at = now(), revoked_by = 'ada' FROM agents"
                " WHERE agents.id = agent_id AND principal_key = %s",
                [case.agent],
            )
        assert ended(runner) == 4, case.log.read_text()
        assert case.ends() == ("failed", None, "lost")
    kept = [path for path in (home / case.agent).rglob("*.json") if str(case.job) in path.read_text()]
    assert kept, "the report is a file"


def test_a_clock_that_is_two_hours_off_changes_nothing(case: Case, server: Web, home: Path, postgres: Database) -> None:
    off = home / "off"
    off.mkdir(exist_ok=True)
    (off / "sitecustomize.py").write_text(TWO_HOURS_OFF)
    with maintenance(home, postgres.url):
        runner = case.start(server.port, "--once", PYTHONPATH=str(off))
        case.until_held()
        beat = case.row("heartbeat_at")
        wait_until(lambda: case.row("heartbeat_at") > beat, "a heartbeat comes")
        case.site.released.set()
        assert case.ends() == ("done", "pass", None)
        assert ended(runner) == 0
    assert case.row("finished_at - started_at < interval '10 minutes' AND finished_at <= now()")
    assert case.row("(results->>'started_at')::timestamptz > now() + interval '1 hour'"), "the clock was off indeed"


@pytest.mark.parametrize("held", [None, b"<script>for (;;) {}</script>"], ids=["never comes", "never ends"])
def test_a_cancel_stops_a_page_that_would_take_minutes_within_seconds_and_leaves_no_browser(
    held: bytes | None, case: Case, server: Web, home: Path, postgres: Database
) -> None:
    with postgres.connect() as connection:  # the lease sets the pace of the heartbeats, but not that of a cancel
        connection.execute("UPDATE agent_jobs SET lease_seconds = 600 WHERE id = %s", [case.job])
    if held is not None:
        case.site.held = held
        case.site.released.set()
    runner = case.start(server.port, "--once")
    case.until_held()
    browsers = [pid for pid in descendants(runner.pid) if is_browser(pid)]
    assert browsers
    manage("cancel", str(case.job), "--reason", "wrong branch", "--by", "ada", database=postgres.url, home=home)
    assert case.ends() == ("cancelled", None, None)
    assert [pid for pid in browsers if is_browser(pid)] == []
    took = case.row("finished_at - cancel_requested_at").total_seconds()
    print(f"the cancel took {took:.1f} s")
    assert took < 20, "ten seconds are the promise, on a machine that does nothing else"
    assert case.row("cancel_requested_by") == "ada"
    assert case.statuses() == ["passed", "skipped", "skipped"]
    assert ended(runner) == 1


def descendants(pid: int) -> list[int]:
    """The living processes below one, also in sessions of their own."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def is_browser(pid: int) -> bool:
    """Say whether a process is of a browser: the browser itself or one of its helpers."""
    return _has(pid, b"--remote-debugging-") or _has(pid, b"--type=")


def is_main_browser(pid: int) -> bool:
    """Say whether a process is a browser itself and not one of its helpers."""
    return _has(pid, b"--remote-debugging-") and not _has(pid, b"--type=")


def _has(pid: int, option: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(option) for word in words)
