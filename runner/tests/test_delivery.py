"""Results and files: on disk before they leave, posted until the server has them, and honest about the rest."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner import desk as desk_module
from agentstore_runner.claiming import Exit
from agentstore_runner.handlers import Desk, Report, Work
from harness import Runner
from standin import Fault, StandIn, refusal
from test_work import use


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"acts": True, "how": "drop"}, id="the reply is lost after the commit"),
        pytest.param({"acts": True, "how": "cut"}, id="the body is cut"),
        pytest.param({"acts": False, "how": "drop"}, id="the request is lost"),
        pytest.param({"acts": False, "status": 503, "Retry_After": "0"}, id="the database is away"),
        pytest.param({"acts": False, "status": 200, "body": b"<html>"}, id="a portal says 200"),
        pytest.param({"acts": False, "status": 200, "body": b'{"ok": true}'}, id="somebody else's 200"),
        pytest.param({"acts": False, "status": 200, "body": b'{"id": "other", "status": "done"}'}, id="another job's"),
        pytest.param({"acts": False, "status": 204}, id="an empty 204"),
        pytest.param({"acts": False, "status": 413, "body": b"<html>"}, id="a proxy's 413"),
        pytest.param({"acts": False, "status": 404, "body": b"<html>"}, id="a proxy's 404"),
        pytest.param(
            {
                "acts": False,
                "status": 400,
                "body": b'{"code": "incomplete"}',
                "Content_Type": "application/problem+json",
            },
            id="the request was cut on its way",
        ),
    ],
)
def test_a_result_is_posted_word_for_word_until_it_is_acknowledged(
    server: StandIn, runner: Runner, fault: dict[str, Any]
) -> None:
    row = server.add()
    server.fail_next("result", **fault)

    assert runner.run() == Exit.OK

    first, second = server.called("result")
    assert first.raw == second.raw == row.result_bytes
    assert row.status == "done"
    assert not list(runner.state.rglob("*.json"))


def test_the_report_is_on_disk_while_it_is_posted(server: StandIn, runner: Runner) -> None:
    row, posting = server.add(), threading.Event()
    server.hang_next("result", posting)
    ended = runner.start()
    server.until(lambda: server.called("result"))

    [letter] = runner.state.rglob("reports/*.json")
    assert json.loads(letter.read_text())["body"].encode() == server.called("result")[0].raw
    posting.set()

    assert ended() == Exit.OK
    assert row.status == "done"
    assert not letter.exists()


def test_heartbeats_go_on_until_the_result_is_acknowledged(server: StandIn, runner: Runner) -> None:
    row, posting = server.add(), threading.Event()
    for _ in range(2):
        server.faults.append(Fault("result", False, "hang", release=posting))
    ended = runner.start()
    server.until(lambda: server.called("result"))
    before = len(row.beats)
    server.until(lambda: len(row.beats) >= before + 3)
    posting.set()

    assert ended() == Exit.OK
    assert row.status == "done"


@pytest.mark.parametrize(("status", "code"), [(413, "too_large"), (422, "invalid")])
def test_a_result_that_the_server_cannot_store_becomes_an_internal_failure_with_the_report_as_a_file(
    server: StandIn, runner: Runner, status: int, code: str
) -> None:
    row = server.add(spec={"n": 1})
    errors = [{"pointer": "/results", "detail": "unknown field"}]
    server.refuse_results = lambda body: refusal(status, code, errors=errors) if "results" in body else None

    runner.run()

    assert (row.status, row.result["failure_class"]) == ("failed", "internal")
    assert row.result["details"]["errors"] == errors
    assert json.loads(row.artifacts["report.json"])["results"] == {"spec": {"n": 1}}
    assert not list(runner.state.rglob("*.json"))


def test_a_server_that_takes_no_result_at_all_leaves_the_report_as_a_file(server: StandIn, runner: Runner) -> None:
    row = server.add()
    server.refuse_results = lambda body: refusal(422, "invalid")

    assert runner.run() == Exit.LOST

    assert row.status == "running"
    [kept] = runner.state.rglob("refused/*.json")
    assert "422 invalid" in kept.read_text()


@pytest.mark.parametrize(
    ("status", "code"), [(409, "lease_lost"), (409, "result_mismatch"), (410, "ended"), (404, "x")]
)
def test_a_result_that_is_refused_for_good_is_kept_and_not_posted_again(
    server: StandIn, runner: Runner, status: int, code: str
) -> None:
    server.add()
    server.refuse_results = lambda body: refusal(status, code)

    assert runner.run() == Exit.LOST

    assert server.names().count("result") == 1
    assert len(list(runner.state.rglob("refused/*.json"))) == 1
    assert not list(runner.state.rglob("reports/*.json"))


def test_a_report_that_meets_a_revoked_token_waits_for_the_next_start(server: StandIn, runner: Runner) -> None:
    row = server.add()
    server.refuse_results = lambda body: refusal(401, "unauthenticated")
    assert runner.run() == Exit.LOST

    server.refuse_results = lambda body: None
    assert Runner(server, runner.state).run() == Exit.OK

    assert row.status == "done"


def test_a_second_signal_ends_the_posting_and_the_next_process_posts_the_report(
    server: StandIn, runner: Runner
) -> None:
    row = server.add()
    server.refuse_results = lambda body: (503, {}, {"Retry-After": "3000"})
    ended = runner.start()
    server.until(lambda: server.called("result"))
    runner.shutdown.request(15)
    runner.shutdown.request(15)
    assert ended() == 143
    assert row.status == "running"

    server.refuse_results = lambda body: None
    Runner(server, runner.state).run()

    assert (row.status, row.claims) == ("done", 1)


def attach(runner: Runner, path: Path, name: str = "shot.png", content_type: str = "image/png") -> None:
    def work(work: Work, desk: Desk) -> Report:
        desk.attach(path, name=name, content_type=content_type)
        return Report("done", verdict="pass")

    use(runner, work)


def test_a_file_is_streamed_with_its_length_and_digest(server: StandIn, runner: Runner, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    path = tmp_path / "shot.png"
    path.write_bytes(content)
    row = server.add()
    attach(runner, path, name="über & shot.png")

    runner.run()

    assert row.artifacts == {"über & shot.png": content}
    [call] = server.called("artifact")
    assert call.headers["content-length"] == str(len(content))
    assert call.headers["content-digest"].startswith("sha-256=:")
    assert "transfer-encoding" not in call.headers
    assert call.headers["agentstore-claim-id"] == row.claim_id


@pytest.mark.parametrize(
    "fault",
    [
        {"acts": True, "how": "drop"},
        {"acts": True, "how": "cut"},
        {"acts": False, "status": 503, "Retry_After": "0"},
        {"acts": False, "status": 200, "body": b'{"sha256": "0000"}'},
        {"acts": False, "status": 413, "body": b"<html>"},
        {
            "acts": False,
            "status": 422,
            "body": b'{"code": "digest_mismatch"}',
            "Content_Type": "application/problem+json",
        },
    ],
)
def test_an_upload_is_repeated_until_the_server_has_the_bytes(
    server: StandIn, runner: Runner, tmp_path: Path, fault: dict[str, Any]
) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(b"png")
    row = server.add()
    server.fail_next("artifact", **fault)
    attach(runner, path)

    assert runner.run() == Exit.OK

    assert row.artifacts == {"shot.png": b"png"}
    assert "details" not in row.result


@pytest.mark.parametrize(
    ("status", "code"), [(409, "artifact_mismatch"), (413, "too_large"), (415, "type"), (400, "name")]
)
def test_a_file_that_is_refused_becomes_a_note_and_the_job_goes_on(
    server: StandIn, runner: Runner, tmp_path: Path, status: int, code: str
) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(b"png")
    row = server.add()
    server.refuse_artifacts = lambda name: refusal(status, code)
    attach(runner, path)

    assert runner.run() == Exit.OK

    [note] = row.result["details"]["artifact_notes"]
    assert note["artifact"] == "shot.png"
    assert code in note["problem"]


def test_a_file_that_is_missing_or_too_much_text_becomes_a_note(
    server: StandIn, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "LARGEST_TEXT", 10)
    large = tmp_path / "large.txt"
    large.write_text("x" * 11)
    row = server.add()

    def work(work: Work, desk: Desk) -> Report:
        desk.attach(tmp_path / "missing", name="missing", content_type="image/png")
        desk.attach(large, name="large", content_type="text/plain")
        return Report("done")

    use(runner, work)
    runner.run()

    assert [note["artifact"] for note in row.result["details"]["artifact_notes"]] == ["missing", "large"]
    assert not row.artifacts


def test_a_report_that_had_to_wait_is_posted_between_later_jobs(server: StandIn, runner: Runner) -> None:
    first, second = server.add(), server.add()
    answers = [refusal(401, "unauthenticated")]
    server.refuse_results = lambda body: answers.pop() if answers else None
    ended = runner.start(once=False)
    server.until(lambda: (first.status, second.status) == ("done", "done"))
    runner.shutdown.request(15)
    ended()

    assert (first.claims, second.claims) == (1, 1)
    assert not list(runner.state.rglob("reports/*.json"))
