"""The command itself with a browser: a cancel and a workflow's signals end in a truthful report, and in no process.

The server is the stand-in, the page is real and never answers.
"""

import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agentstore_runner.specs import own_grant
from harness import Process
from standin import Row, StandIn
from test_uat_process import HOME, TRAP, ended, family
from workbench import Site, spec

pytestmark = pytest.mark.lengthy

CANCEL = {"reason": "wrong branch", "by": "ada", "requested_at": "2026-01-01T00:00:00Z", "grace_s": 30}
# GitHub gives a cancelled step this long after SIGINT, and this long after SIGTERM, before it kills.
AFTER_SIGINT_S, AFTER_SIGTERM_S = 7.5, 2.5
Launch = Callable[..., Process]


@dataclass
class Stuck:
    """A runner whose second of three checks waits for a page."""

    row: Row
    process: Process
    pids: list[int]

    def told(self) -> list[str]:
        """The status of each check of the report, once no process of the job is left."""
        assert [pid for pid in self.pids if not ended(pid)] == []
        return [check["status"] for check in self.row.result["results"]["checks"]]


@pytest.fixture(params=["plain"])
def stuck(request: pytest.FixtureRequest, server: StandIn, launch: Launch, web: Site, browser: None) -> Stuck:
    web.page("/", "<p>home</p>")
    web.routes["/trap"] = web.hangs
    document = spec(web.url, HOME, TRAP, HOME, limits={"step_timeout_ms": 60_000})
    row = server.add("uat.quick-task", spec=document, target=own_grant(document).document())
    process = launch("run", "--once", "--log", request.param)
    server.until(lambda: row.beats and row.beats[-1].get("progress", {}).get("title") == "Check 1")
    assert row.beats[-1]["progress"] == {"done": 1, "total": 3, "title": "Check 1"}
    pids = family(process.popen.pid)
    assert len(pids) > 3
    return Stuck(row, process, pids)


def test_a_cancel_ends_the_browser_and_is_confirmed_with_what_was_found_before(stuck: Stuck) -> None:
    stuck.row.cancel = CANCEL
    assert stuck.process.code() == 1
    assert (stuck.row.status, stuck.row.result.get("verdict")) == ("cancelled", None)
    assert stuck.told() == ["passed", "skipped", "skipped"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_browser_and_is_reported_as_interrupted(stuck: Stuck, signum: signal.Signals) -> None:
    stuck.process.popen.send_signal(signum)
    assert stuck.process.code() == 128 + signum
    assert (stuck.row.status, stuck.row.result["failure_class"]) == ("failed", "interrupted")
    assert stuck.told() == ["passed", "skipped", "skipped"]


def test_a_cancelled_workflow_has_its_report_before_it_is_killed(stuck: Stuck) -> None:
    popen = stuck.process.popen
    for send, seconds in ((signal.SIGINT, AFTER_SIGINT_S), (signal.SIGTERM, AFTER_SIGTERM_S), (signal.SIGKILL, None)):
        popen.send_signal(send)
        try:
            popen.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            continue
    assert popen.returncode == 128 + signal.SIGINT
    assert (stuck.row.status, stuck.row.result["failure_class"]) == ("failed", "interrupted")
    assert stuck.told() == ["passed", "skipped", "skipped"]


@pytest.mark.parametrize("stuck", ["plain", "json", "rich"], indirect=True)
def test_the_log_names_job_check_and_timing_in_each_of_its_forms(stuck: Stuck, request: pytest.FixtureRequest) -> None:
    stuck.row.cancel = CANCEL
    stuck.process.code()
    style = request.node.callspec.params["stuck"]
    lines: list[str] = stuck.process.log.splitlines()
    if style == "json":
        entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
        assert {entry["job"] for entry in entries if "check c0" in entry["message"]} == {stuck.row.id}
        lines = [entry["message"] for entry in entries]
    else:
        assert stuck.row.id in stuck.process.log
    text = " ".join(" ".join(lines).split())
    assert "check c0: passed in " in text
    assert "a cancel was asked for by ada" in text
    assert "ended after " in text
