"""While a job runs: the lease is kept, people are obeyed, and nothing is done without a lease."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.claiming import Exit
from agentstore_runner.handlers import Desk, Report, Work
from harness import Runner, release, running
from standin import TOKEN, Row, StandIn, refusal

CANCEL = {"reason": "wrong branch", "by": "ada", "requested_at": "2026-01-01T00:00:00Z", "grace_s": 30}


class Given:
    """A handler that is given as a function."""

    kinds: tuple[str, ...] = ("test.echo",)

    def __init__(self, work: Any) -> None:
        self._work = work

    def run(self, work: Work, desk: Desk) -> Report:
        return self._work(work, desk)  # type: ignore[no-any-return] # some tests return nonsense


def use(runner: Runner, work: Any) -> None:
    runner.handlers["test.echo"] = Given(work)


def test_heartbeats_carry_the_claim_and_the_latest_progress(server: StandIn, runner: Runner, fifo: Path) -> None:
    row = server.add()

    def work(work: Work, desk: Desk) -> Report:
        desk.progress(2, 5, "sign in")
        server.until(lambda: row.beats and row.beats[-1].get("progress"))
        return Report("done", verdict="pass")

    use(runner, work)

    assert runner.run() == Exit.OK
    assert row.beats[-1] == {"claim_id": row.claim_id, "progress": {"done": 2, "total": 5, "title": "sign in"}}


@pytest.mark.parametrize(
    "fault",
    [
        {"acts": True, "how": "drop"},
        {"acts": False, "status": 503, "Retry_After": "0"},
        {"acts": True, "status": 200, "body": b"<html>"},
        {"acts": True, "how": "cut"},
        {"acts": False, "status": 404, "body": b"<html>", "Content_Type": "text/html"},
        {
            "acts": False,
            "status": 401,
            "body": b'{"code": "unauthenticated"}',
            "Content_Type": "application/problem+json",
        },
    ],
)
def test_trouble_with_a_heartbeat_is_no_reason_to_stop_the_work(
    server: StandIn, runner: Runner, fault: dict[str, Any]
) -> None:
    row = server.add()
    server.fail_next("heartbeat", **fault)

    def work(work: Work, desk: Desk) -> Report:
        server.until(lambda: len(server.called("heartbeat")) >= 3)
        return Report("done", verdict="pass", results={"stopped": desk.stopped()})

    use(runner, work)

    assert runner.run() == Exit.OK
    assert row.result["results"] == {"stopped": None}


def test_a_cancel_reaches_the_handler_and_is_confirmed_with_partial_results(server: StandIn, runner: Runner) -> None:
    row = server.add("test.obey")
    ended = runner.start()
    running(server, row)
    row.cancel = CANCEL

    assert ended() == Exit.NOT_DONE
    assert (row.status, row.result["results"]) == ("cancelled", {"reason": "cancel"})


def test_work_that_was_finished_in_spite_of_a_cancel_is_reported_as_what_it_is(
    server: StandIn, runner: Runner, fifo: Path
) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)}, cancel=None)
    ended = runner.start()
    running(server, row)
    row.cancel = CANCEL
    count = len(row.beats)
    server.until(lambda: len(row.beats) > count + 1)
    release(fifo)

    assert ended() == Exit.OK
    assert (row.status, row.result["results"]) == ("done", {"stopped": "cancel"})


def test_a_job_that_comes_with_a_cancel_is_not_started(server: StandIn, runner: Runner) -> None:
    row = server.add("test.crash", cancel=CANCEL)

    assert runner.run() == Exit.NOT_DONE
    assert row.status == "cancelled"


@pytest.mark.parametrize(
    "loss",
    [refusal(409, "lease_lost"), refusal(410, "ended", verdict=None), refusal(404, "not_found")],
    ids=["reaped", "ended by a person", "unknown to the server"],
)
def test_a_lost_lease_stops_the_work_uploads_nothing_keeps_the_report_and_claims_anew(
    server: StandIn, runner: Runner, tmp_path: Path, loss: Any
) -> None:
    row, after = server.add(), server.add("test.meet")
    file = tmp_path / "evidence.bin"
    file.write_bytes(b"evidence")
    reasons: list[str | None] = []

    def work(work: Work, desk: Desk) -> Report:
        status, body, _ = loss
        code = b'{"code": "%s"}' % body["code"].encode()
        server.fail_next("heartbeat", acts=False, status=status, body=code, Content_Type="application/problem+json")
        reasons.append(desk.wait(30))
        desk.attach(file, name="evidence.bin", content_type="application/octet-stream")
        return Report("done", verdict="pass", results={"late": True})

    use(runner, work)
    runner.handlers["test.meet"] = Given(lambda work, desk: Report("done"))
    ended = runner.start(once=False)
    server.until(lambda: after.status == "done")
    runner.shutdown.request(15)
    ended()

    assert reasons == ["lease"]
    assert not [call for call in server.calls if call.row == row.id and call.name in ("artifact", "result")]
    [kept] = runner.state.rglob("refused/*.json")
    assert '\\"late\\": true' in kept.read_text()
    assert after.claim_id != row.claim_id
    last = server.calls[-1]
    assert last.name != "heartbeat" or last.row != row.id


def test_a_single_run_says_by_its_exit_code_that_the_job_was_taken_away(server: StandIn, runner: Runner) -> None:
    row = server.add("test.obey")
    ended = runner.start()
    running(server, row)
    server.reap(row)

    assert ended() == Exit.LOST


def test_the_work_stops_before_its_lease_ends_when_no_heartbeat_comes_through(server: StandIn, runner: Runner) -> None:
    row = server.add("test.obey", lease_seconds=1.2, heartbeat_s=0.05)
    silence = threading.Event()
    for _ in range(50):
        server.hang_next("heartbeat", silence)

    ended = runner.start()
    server.until(lambda: server.called("result"))
    silence.set()

    assert ended() == Exit.NOT_DONE
    # The stand-in took it: late, but before the reaper.
    assert (row.status, row.result["results"]) == ("failed", {"reason": "lease"})
    assert row.result["failure_class"] == "interrupted"


def test_the_runner_never_reads_its_own_wall_clock_for_a_lease(server: StandIn, runner: Runner) -> None:
    server.skew = timedelta(days=3650)
    row = server.add()

    def work(work: Work, desk: Desk) -> Report:
        server.until(lambda: len(row.beats) >= 2)
        return Report("done", results={"stopped": desk.stopped(), "enough": 500 < work.seconds_left <= 600})

    use(runner, work)
    runner.run()

    assert row.result["results"] == {"stopped": None, "enough": True}


def test_work_past_its_run_time_is_told_so_and_reported_as_a_timeout(server: StandIn, runner: Runner) -> None:
    row = server.add("test.obey", run_seconds=0.3)

    assert runner.run() == Exit.NOT_DONE

    assert (row.status, row.result["failure_class"]) == ("failed", "timeout")
    assert row.result["results"] == {"reason": "deadline"}


def test_a_shutdown_is_reported_as_interrupted_and_never_as_cancelled(server: StandIn, runner: Runner) -> None:
    row = server.add("test.obey")
    ended = runner.start()
    running(server, row)
    runner.shutdown.request(2)

    assert ended() == 130
    assert (row.status, row.result["failure_class"]) == ("failed", "interrupted")
    assert row.result["results"] == {"reason": "shutdown"}


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda work, desk: 1 / 0, "ZeroDivisionError"),
        (lambda work, desk: None, "NoneType"),
        (lambda work, desk: exit(0), "SystemExit"),
        (lambda work, desk: Report("failed"), "without saying which"),
    ],
)
def test_a_handler_that_breaks_is_an_honest_internal_failure(
    server: StandIn, runner: Runner, work: Any, error: str
) -> None:
    row = server.add()
    use(runner, work)

    assert runner.run() == Exit.NOT_DONE

    assert (row.status, row.result["failure_class"]) == ("failed", "internal")
    assert error in row.result["error"]


def test_the_token_is_redacted_from_everything_that_leaves(
    server: StandIn, runner: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = server.add()
    text = tmp_path / "page.html"
    text.write_text(f"<p>{TOKEN}</p>")

    def work(work: Work, desk: Desk) -> Report:
        desk.progress(1, 1, f"using {TOKEN}")
        desk.attach(text, name="page.html", content_type="text/html")
        server.until(lambda: row.beats and row.beats[-1].get("progress"))
        return Report("failed", error=f"401 for {TOKEN}", results={"note": TOKEN}, details={"seen": [TOKEN]})

    use(runner, work)
    runner.run()

    sent = b"".join(call.raw for call in server.calls)
    assert TOKEN.encode() not in sent
    assert b"[REDACTED" in row.artifacts["page.html"]
    assert "[REDACTED" in row.result["error"]


@pytest.mark.parametrize(
    "value",
    ["a\0b", "\ud800", float("nan"), float("-inf"), {1: {2, 3}}, Path("/x"), b"bytes"],
)
def test_a_result_that_json_or_postgresql_cannot_hold_still_arrives(
    server: StandIn, runner: Runner, value: object
) -> None:
    row = server.add()
    use(runner, lambda work, desk: Report("done", verdict="pass", results={"value": value}))

    assert runner.run() == Exit.OK

    assert row.status == "done"
    assert b"\\u0000" not in row.result_bytes
    assert b"\\ud800" not in row.result_bytes


def test_a_bottomless_result_still_arrives(server: StandIn, runner: Runner) -> None:
    row = server.add()
    bottomless: dict[str, Any] = {}
    bottomless["again"] = bottomless
    use(runner, lambda work, desk: Report("done", verdict="pass", results=bottomless))

    assert runner.run() == Exit.OK
    assert row.status == "done"


@pytest.mark.parametrize(
    ("report", "status", "verdict"),
    [
        (Report("done", verdict="pass"), Exit.OK, Exit.OK),
        (Report("done", verdict="risk"), Exit.OK, Exit.NOT_DONE),
        (Report("done", verdict="fail"), Exit.OK, Exit.NOT_DONE),
        (Report("failed", error="no browser"), Exit.NOT_DONE, Exit.NOT_DONE),
    ],
)
def test_the_exit_code_judges_the_status_or_the_verdict(
    server: StandIn, runner: Runner, report: Report, status: Exit, verdict: Exit
) -> None:
    use(runner, lambda work, desk: report)
    server.add()
    assert runner.run() == status
    server.add()
    assert runner.run(judge_by_verdict=True) == verdict


def test_every_job_gets_an_empty_folder_that_is_gone_afterwards(server: StandIn, runner: Runner) -> None:
    seen: list[Path] = []

    def work(work: Work, desk: Desk) -> Report:
        assert not list(work.scratch.iterdir())
        (work.scratch / "left").write_text("over")
        seen.append(work.scratch)
        return Report("done")

    use(runner, work)
    rows: list[Row] = [server.add(), server.add()]
    runner.run()
    runner.run()

    assert [row.status for row in rows] == ["done", "done"]
    assert len(set(seen)) == 2
    assert not any(folder.exists() for folder in seen)


def test_a_report_that_cannot_be_written_down_is_an_internal_failure(server: StandIn, runner: Runner) -> None:
    row, after = server.add(), server.add()
    broken: Any = 7
    use(runner, lambda work, desk: Report("done", verdict="pass", details=broken))

    assert runner.run() == Exit.NOT_DONE
    assert (row.status, row.result["failure_class"]) == ("failed", "internal")

    use(runner, lambda work, desk: Report("done"))
    assert runner.run() == Exit.OK
    assert after.status == "done"
