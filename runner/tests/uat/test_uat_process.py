"""What remains when things die: the reports stay true and no process stays behind."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.uat import chromium, process
from workbench import Bench, Notebook, Site, expect, outcome, request, spec

pytestmark = pytest.mark.lengthy

MARK = b"AGENTSTORE_UAT_CHILD="


def children(parent: int) -> dict[int, str]:
    """Return the UAT children that a process has started, with their marks."""
    found = {}
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            if entry.startswith(MARK):
                found[int(child)] = entry.removeprefix(MARK).decode()
    return found


def family(parent: int) -> list[int]:
    """Return every live process that the children of a process have started, browsers included."""
    return [pid for mark in children(parent).values() for pid in process.marked(mark)]


def below(parent: int) -> list[int]:
    """Return every process below another; a page's process, which rewrites its environment, has no mark to be seen."""
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    found = [int(pid) for file in lists for pid in file.read_text().split()]
    return [*found, *(pid for child in found for pid in below(child))]


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def ended(pid: int, seconds: float = 20) -> bool:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], seconds)[0])
    finally:
        os.close(watch)


class Once:
    """Calls back at the first visit of a page; the page itself then waits until the site closes or is released."""

    def __init__(self, web: Site, act: Callable[[], Any]) -> None:
        self.web, self.act, self.visits = web, act, 0

    def __call__(self) -> tuple[int, dict[str, str], str]:
        self.visits += 1
        if self.visits == 1:
            self.act()
            return self.web.hangs()
        return 200, {"Content-Type": "text/html"}, "<p>second visit</p>"


@pytest.fixture
def page(web: Site, browser: None) -> Site:
    web.page("/", "<p>home</p>")
    return web


HOME: list[dict[str, Any]] = [{"goto": "/"}, expect("p", text="home")]
TRAP: list[dict[str, Any]] = [{"goto": "/trap"}, expect("p", text="home")]


@pytest.mark.parametrize(
    ("reason", "status", "failure_class"),
    [("cancel", "cancelled", None), ("shutdown", "failed", "interrupted"), ("lease", "failed", "interrupted")],
)
def test_a_stop_ends_the_work_at_once_and_reports_what_is_known(
    reason: str, status: str, failure_class: str | None, page: Site, bench: Bench
) -> None:
    desk, pids = Notebook(), []

    def stop() -> None:
        pids.extend(family(os.getpid()))
        desk.reason = reason

    page.routes["/trap"] = Once(page, stop)
    report = bench.run(spec(page.url, HOME, TRAP, HOME, limits={"step_timeout_ms": 60_000}), desk)
    assert (report.status, report.verdict, report.failure_class) == (status, None, failure_class)
    assert [outcome(report, n)[0] for n in range(3)] == ["passed", "skipped", "skipped"]
    assert report.results is not None
    assert report.results["verdict"] is None
    assert len(pids) > 3
    assert [pid for pid in pids if not ended(pid, 0)] == []


def test_a_long_temporary_folder_is_no_obstacle(
    page: Site, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    report = bench.run(spec(page.url, HOME))
    assert (report.status, outcome(report, 0)[0]) == ("done", "passed")


def test_the_time_limit_of_the_job_leaves_the_finished_checks_and_a_verdict(page: Site, bench: Bench) -> None:
    def pass_time() -> None:
        bench.passed_seconds = 100

    page.routes["/trap"] = Once(page, pass_time)
    limits = {"step_timeout_ms": 60_000, "job_timeout_s": 90}
    report = bench.run(spec(page.url, HOME, TRAP, HOME, limits=limits))
    assert (report.status, report.verdict) == ("done", "risk")
    assert [outcome(report, n)[:2] for n in range(3)] == [("passed", None)] + [("error", "job_timeout")] * 2
    assert "the time limit of the job (90 s) was reached" in outcome(report, 1)[2]
    assert "not started" in outcome(report, 2)[2]


def test_a_job_whose_time_is_over_before_anything_was_evaluated_fails_as_a_timeout(page: Site, bench: Bench) -> None:
    report = bench.run(spec(page.url, HOME), seconds=1)
    assert (report.status, report.verdict, report.failure_class) == ("failed", None, "timeout")
    assert "nothing could be evaluated" in (report.error or "")


def test_a_killed_child_costs_one_check_and_the_next_child_goes_on(page: Site, bench: Bench) -> None:
    def kill() -> None:
        [child] = children(os.getpid())
        os.kill(child, signal.SIGKILL)

    page.routes["/trap"] = Once(page, kill)
    saving = request("/json", save={"token": "/token"})
    page.routes["/json"] = (200, {}, '{"token": "saved-before"}')
    checks = [[*HOME, saving], TRAP, [*HOME, request("/?${token}", expect={"status": 200})]]
    dependent = {"needs": ["c0"], "steps": HOME}
    report = bench.run(spec(page.url, *checks, dependent))
    assert [outcome(report, n)[0] for n in range(4)] == ["passed", "error", "passed", "error"], report.results
    assert "stopped unexpectedly" in outcome(report, 1)[2]
    assert "the page of “c0” was lost" in outcome(report, 3)[2]
    assert (report.status, report.verdict) == ("done", "risk")


def test_a_crashed_browser_costs_one_check_and_is_started_again(page: Site, bench: Bench) -> None:
    def crash() -> None:
        for pid in family(os.getpid()):
            if "chrom" in name(pid) or "headless" in name(pid):
                os.kill(pid, signal.SIGKILL)

    page.routes["/trap"] = Once(page, crash)
    report = bench.run(spec(page.url, HOME, TRAP, HOME))
    assert [outcome(report, n)[0] for n in range(3)] == ["passed", "error", "passed"], report.results
    assert "the browser stopped" in outcome(report, 1)[2]


def test_a_page_that_runs_out_of_memory_costs_one_check(page: Site, bench: Bench) -> None:
    def starve() -> None:
        # What the kernel does when memory is short: it kills the largest process, and that is the page's own.
        pages = [pid for pid in below(os.getpid()) if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert pages
        for pid in pages:
            os.kill(pid, signal.SIGKILL)

    page.routes["/trap"] = Once(page, starve)
    page.page("/hungry", "<p>busy</p><script>fetch('/trap')</script>")
    report = bench.run(spec(page.url, HOME, [{"goto": "/hungry"}, expect("p", text="done")], HOME))
    assert [outcome(report, n)[0] for n in range(3)] == ["passed", "error", "passed"], report.results
    assert "the browser stopped" in outcome(report, 1)[2]
    assert (report.status, report.verdict) == ("done", "risk")


def test_a_page_that_never_ends_computing_costs_one_check(page: Site, bench: Bench) -> None:
    page.page("/loop", "<p>busy</p><script>setTimeout(() => { for (;;); }, 0)</script>")
    checks = [HOME, [{"goto": "/loop"}, expect("p", text="done")], HOME]
    report = bench.run(spec(page.url, *checks, limits={"step_timeout_ms": 2_000}))
    statuses = [outcome(report, n)[0] for n in range(3)]
    assert (statuses[0], statuses[2]) == ("passed", "passed"), report.results
    assert statuses[1] in ("failed", "error")
    assert report.status == "done"


def test_a_check_with_retries_survives_a_crashed_browser(page: Site, bench: Bench) -> None:
    def crash() -> None:
        for pid in family(os.getpid()):
            if "chrom" in name(pid) or "headless" in name(pid):
                os.kill(pid, signal.SIGKILL)

    page.routes["/trap"] = Once(page, crash)
    steps = [{"goto": "/trap"}, expect("p", text="second visit")]
    report = bench.run(spec(page.url, {"retries": 1, "steps": steps}))
    assert outcome(report)[0] == "passed", outcome(report)
    assert report.results is not None
    assert report.results["reasons"] == ["flaky: c0"]


def test_a_child_that_hangs_is_replaced(page: Site, bench: Bench) -> None:
    def freeze() -> None:
        [child] = children(os.getpid())
        os.kill(child, signal.SIGSTOP)
        bench.passed_seconds = 100

    page.routes["/trap"] = Once(page, freeze)
    report = bench.run(spec(page.url, TRAP, HOME))
    assert [outcome(report, n)[0] for n in range(2)] == ["error", "passed"], report.results
    assert "did not respond any more" in outcome(report, 0)[2]


def test_a_killed_runner_leaves_no_process(page: Site, tmp_path: Path) -> None:
    program = tmp_path / "victim.py"
    program.write_text(
        "import json, sys\nfrom pathlib import Path\nfrom workbench import Bench\n"
        "Bench(Path(sys.argv[1]), {}).run(json.load(sys.stdin))\n"
    )
    pids: list[int] = []
    victim = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )

    def kill() -> None:
        pids.extend(family(victim.pid))
        victim.kill()

    page.routes["/trap"] = Once(page, kill)
    victim.communicate(json.dumps(spec(page.url, TRAP, limits={"step_timeout_ms": 60_000})))
    assert victim.returncode == -signal.SIGKILL
    assert len(pids) > 3
    assert [pid for pid in pids if not ended(pid)] == []


def test_neither_token_nor_secret_stands_in_the_environment_or_command_of_a_child(
    page: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSTORE_TOKEN", "ags_r_very-secret-token")
    monkeypatch.setenv("UAT_PW", "very-secret-password")
    monkeypatch.setenv("GITHUB_TOKEN", "very-secret-other")
    seen: list[bytes] = []

    def look() -> None:
        for name in ("environ", "cmdline"):
            seen.extend(Path(f"/proc/{pid}/{name}").read_bytes() for pid in family(os.getpid()))

    page.routes["/look"] = Once(page, lambda: (look(), page.closing.set()))
    bench.environ["UAT_PW"] = "very-secret-password"
    bench.run(spec(page.url, [{"goto": "/look?${secret:pw}"}], secrets={"pw": {"env": "UAT_PW"}}))
    assert len(seen) > 3
    assert [text for text in seen if b"very-secret" in text] == []


def test_nothing_is_left_in_the_temporary_folder(page: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path(f"/tmp/uat-test-{os.getpid()}")
    short.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(short))
    bench.run(spec(page.url, HOME))
    left = sorted(short.rglob("*"))
    short.rmdir()
    assert left == []


REFUSED = {
    "a missing secret": ({}, "UAT_PW", "has no value: set UAT_PW in the runner's environment"),
    "a short secret": ({"UAT_PW": "12345"}, "UAT_PW", "too short to be masked: 6 characters are needed"),
}


@pytest.mark.parametrize(("environ", "variable", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_secret_that_cannot_be_used_is_refused_before_anything_starts(
    environ: dict[str, str], variable: str, words: str, web: Site, bench: Bench
) -> None:
    bench.environ.update(environ)
    report = bench.run(spec(web.url, [request("/")], secrets={"pw": {"env": variable}}))
    assert (report.status, report.failure_class, report.results) == ("failed", "configuration", None)
    assert words in (report.error or "")
    assert "12345" not in (report.error or "")
    assert web.seen == []


def test_without_a_browser_page_checks_are_refused_with_the_remedy_and_requests_run(web: Site, bench: Bench) -> None:
    bench.environ["AGENTSTORE_CHROMIUM"] = "/nowhere/chromium"
    web.routes["/"] = (200, {}, "hello")
    report = bench.run(spec(web.url, HOME))
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert chromium.INSTALL_HINT in (report.error or "")
    assert web.seen == []
    assert bench.run(spec(web.url, [request("/", expect={"status": 200})])).verdict == "pass"


def test_a_browser_that_cannot_start_is_an_error_that_says_so(web: Site, bench: Bench, tmp_path: Path) -> None:
    bench.environ["AGENTSTORE_CHROMIUM"] = "/bin/false"
    report = bench.run(spec(web.url, HOME))
    assert (report.status, report.verdict, report.failure_class) == ("failed", None, "internal")
    assert "the browser could not be started" in (report.error or "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "/version"),
        ({"checks": []}, "/checks"),
        ({"target": {"base_url": "http://a.example:99999"}}, "/target/base_url"),
    ],
)
def test_a_spec_that_is_not_valid_is_refused(change: dict[str, Any], words: str, web: Site, bench: Bench) -> None:
    report = bench.run({**spec(web.url, [request("/")]), **change})
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert words in (report.error or "")


def test_a_browser_is_found_on_the_path_or_where_it_was_named(tmp_path: Path) -> None:
    binary = tmp_path / "chromium"
    assert chromium.find({"PATH": str(tmp_path), "HOME": str(tmp_path)}) is None
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert chromium.find({"PATH": str(tmp_path)}) == str(binary)
    assert chromium.find({"PATH": "", "AGENTSTORE_CHROMIUM": str(binary)}) == str(binary)
    downloaded = tmp_path / ".cache/ms-playwright/chromium-1200/chrome-linux/chrome"
    downloaded.parent.mkdir(parents=True)
    downloaded.touch()
    assert chromium.find({"PATH": "", "HOME": str(tmp_path)}) == str(downloaded)


def test_the_folder_of_a_runner_that_was_killed_is_removed_by_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="t-", dir=process.short_place()))
    place = Path(tempfile.gettempdir())
    code = "import os, signal; from agentstore_runner.uat.process import short_folder\n"
    code += "with short_folder() as folder: print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    left = Path(killed.stdout.strip())
    assert left.parent == place
    assert left.is_dir()
    with process.short_folder() as mine:
        assert left.is_dir(), "a folder this young may be one that is being made"
        os.utime(mine / "runner.lock", (0, 0))
        os.utime(left / "runner.lock", (0, 0))
        with process.short_folder():
            assert not left.exists()
            assert mine.is_dir(), "somebody works in it"
    shutil.rmtree(place)
