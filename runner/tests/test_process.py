"""Real processes: signals, kills, restarts, and where the token must not be."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Process, release, running
from standin import TOKEN, StandIn, refusal

CANCEL = {"reason": "stop", "by": "ada", "requested_at": "2026-01-01T00:00:00Z", "grace_s": 0.2}
Launch = Callable[..., Process]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_work_is_reported_as_interrupted_and_never_exits_with_zero(
    server: StandIn, launch: Launch, signum: signal.Signals
) -> None:
    row = server.add("test.obey")
    process = launch("run", "--once")
    running(server, row)

    process.popen.send_signal(signum)

    assert process.code() == 128 + signum
    assert (row.status, row.result["failure_class"]) == ("failed", "interrupted")
    assert row.result["results"] == {"reason": "shutdown"}


def test_heartbeats_go_on_after_a_signal_until_the_result_is_acknowledged(
    server: StandIn, launch: Launch, fifo: Path
) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)})
    process = launch("run", "--forever")
    running(server, row)
    process.popen.send_signal(signal.SIGTERM)
    before = len(row.beats)
    server.until(lambda: len(row.beats) >= before + 8)
    release(fifo)

    assert process.code() == 143
    assert (row.status, row.result["results"], row.reaped) == ("done", {"stopped": "shutdown"}, False)


def test_a_second_signal_interrupts_a_handler_that_does_not_listen_and_still_tells_the_truth(
    server: StandIn, launch: Launch, fifo: Path
) -> None:
    row = server.add("test.stubborn", spec={"fifo": str(fifo)})
    process = launch("run", "--once")
    running(server, row)
    process.popen.send_signal(signal.SIGINT)
    before = len(row.beats)
    server.until(lambda: len(row.beats) >= before + 3)
    process.popen.send_signal(signal.SIGTERM)

    assert process.code() == 130
    assert (row.status, row.result["failure_class"]) == ("failed", "interrupted")


def test_a_handler_that_ignores_a_cancel_is_interrupted_after_its_grace(
    server: StandIn, launch: Launch, fifo: Path
) -> None:
    row = server.add("test.stubborn", spec={"fifo": str(fifo)})
    process = launch("run", "--once")
    running(server, row)
    row.cancel = CANCEL

    assert process.code() == 1
    assert row.status == "cancelled"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_runner_ends_at_once_and_well(server: StandIn, launch: Launch, signum: signal.Signals) -> None:
    server.retry_after = "3000"
    process = launch("run", "--forever")
    server.until(lambda: server.called("claim"))

    process.popen.send_signal(signum)

    assert process.code() == 0


def test_a_runner_that_waits_for_an_unreachable_server_ends_at_once(server: StandIn, launch: Launch) -> None:
    server.blocked = (503, {}, {"Retry-After": "300"})
    process = launch("run", "--once")
    server.until(lambda: server.called("claim"))

    process.popen.send_signal(signal.SIGTERM)

    assert process.code() == 143


def test_a_single_run_does_not_wait_for_a_server_that_is_away_for_long(server: StandIn, launch: Launch) -> None:
    row = server.add()
    server.fail_next("claim", acts=True, status=503, Retry_After="3000")

    assert launch("run", "--once").code() == 75

    assert row.status == "running"
    assert launch("run", "--once").code() == 0
    assert (row.status, row.claims) == ("done", 1)


def test_a_report_survives_a_kill_and_is_posted_by_the_next_process(server: StandIn, launch: Launch) -> None:
    row = server.add(spec={"n": 1})
    server.refuse_results = lambda body: (503, {}, {"Retry-After": "3000"})
    first = launch("run", "--once")
    server.until(lambda: server.called("result"))
    first.popen.kill()
    first.code()

    server.refuse_results = lambda body: None
    assert launch("run", "--once").code() == 0

    assert (row.status, row.claims, row.result["results"]) == ("done", 1, {"spec": {"n": 1}})
    assert len({call.raw for call in server.called("result")}) == 1


@pytest.mark.parametrize(("cancel", "status"), [(None, "failed"), (CANCEL, "cancelled")])
def test_work_that_a_kill_ended_is_reported_by_the_next_process_and_not_started_again(
    server: StandIn, launch: Launch, fifo: Path, cancel: object, status: str
) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)})
    foreign = server.add("test.obey", status="running", claim_id="11111111-1111-4111-8111-111111111111")
    first = launch("run", "--once")
    running(server, row)
    first.popen.kill()
    first.code()
    row.cancel = cancel  # type: ignore[assignment] # parametrised

    assert launch("run", "--once").code() == 0

    assert (row.status, row.claims, row.result.get("failure_class")) == (
        status,
        1,
        "interrupted" if cancel is None else None,
    )
    assert foreign.status == "running"
    assert not [call for call in server.calls if call.row == foreign.id]


def test_work_that_has_ended_for_the_server_meanwhile_is_not_reported(
    server: StandIn, launch: Launch, fifo: Path
) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)})
    first = launch("run", "--once")
    running(server, row)
    first.popen.kill()
    first.code()
    server.reap(row)

    assert launch("run", "--once").code() == 0

    assert not server.called("result")


def test_a_restarted_runner_whose_token_is_refused_says_so(server: StandIn, launch: Launch, fifo: Path) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)})
    first = launch("run", "--once")
    running(server, row)
    first.popen.kill()
    first.code()
    server.fail_next(
        "me", acts=False, status=401, body=b'{"code": "unauthenticated"}', Content_Type="application/problem+json"
    )

    second = launch("run", "--forever")

    assert second.code() == 3
    assert "unauthenticated" in second.log


@pytest.mark.parametrize("source", ["file", "environment"])
@pytest.mark.parametrize("style", ["plain", "json", "rich"])
def test_the_token_is_in_no_argument_no_child_and_no_log(
    server: StandIn, launch: Launch, source: str, style: str
) -> None:
    shows, crashes = server.add("test.child"), server.add("test.crash", spec={"text": f"boom {TOKEN}"})
    process = launch("run", "--forever", "--verbose", "--log", style, token=source)
    server.until(lambda: crashes.status == "failed")
    process.popen.send_signal(signal.SIGTERM)
    process.code()

    seen = shows.result["results"]
    assert "PATH" in seen["child"]
    assert b"[REDACTED" not in shows.result_bytes, "the token was there, and only redaction hid it"
    assert TOKEN not in json.dumps(seen)
    assert "RuntimeError" in process.log
    assert TOKEN not in process.log
    assert TOKEN not in crashes.result_bytes.decode()


def test_two_processes_cannot_share_one_memory(server: StandIn, launch: Launch) -> None:
    row = server.add("test.obey")
    launch("run", "--once")
    running(server, row)

    second = launch("run", "--once")

    assert second.code() == 2
    assert "--name" in second.log


def test_two_runners_with_different_names_work_side_by_side(server: StandIn, launch: Launch) -> None:
    row, other = server.add("test.obey"), server.add()
    launch("run", "--once", "--name", "a")
    running(server, row)

    assert launch("run", "--once", "--name", "b").code() == 0
    assert other.status == "done"


@pytest.mark.parametrize(("code", "status"), [("agent_paused", 403), ("runner_too_old", 426)])
def test_a_refused_single_run_ends_with_three(server: StandIn, launch: Launch, code: str, status: int) -> None:
    server.blocked = refusal(status, code)
    process = launch("run", "--once")
    assert process.code() == 3
    assert code in process.log


def test_the_log_is_one_json_object_per_line_and_cannot_be_forged(server: StandIn, launch: Launch) -> None:
    row = server.add("test.crash", spec={"text": 'one\n{"level": "forged"}\x1b[31m'})
    process = launch("run", "--once", "--log", "json")

    assert process.code() == 1
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning", "error"}
    assert any(line.get("job") == row.id for line in lines)


def test_a_plain_log_keeps_a_text_on_its_line_and_shows_control_characters(server: StandIn, launch: Launch) -> None:
    server.blocked = refusal(422, "invalid", detail="first\nsecond\x1b[31m\u2028third")
    process = launch("run", "--once", "--log", "plain")

    assert process.code() == 3
    assert "first\\nsecond\\x1b[31m\\u2028third" in process.log


def test_the_state_of_a_runner_can_be_read_by_its_owner_only(server: StandIn, launch: Launch, tmp_path: Path) -> None:
    server.add()
    launch("run", "--once").code()
    folders = [path for path in (tmp_path / "state").rglob("*") if path.is_dir()]
    assert folders
    assert {oct(path.stat().st_mode & 0o077) for path in folders if path.parent != tmp_path / "state"} == {"0o0"}
    assert (tmp_path / "state").stat().st_mode & 0o022 == 0
