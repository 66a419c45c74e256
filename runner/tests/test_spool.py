"""The runner's memory: durable, private, and never the reason why a runner does not start or a result is lost."""

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from agentstore_runner.claiming import Exit
from agentstore_runner.spool import KEPT_REFUSALS, Held, InUseError, Letter, Spool
from agentstore_runner.tables import JOBS
from harness import Process, Runner, release, running
from standin import StandIn

Launch = Callable[..., Process]
URL = "https://jobs.example.org:8443"


def test_what_was_kept_is_there_for_the_next_process(tmp_path: Path) -> None:
    letter = Letter("job-1", "claim-1", '{"umlaut": "ü"}')
    with Spool.opened(tmp_path, URL, "a") as spool:
        spool.hold(Held("claim-2", "{}"))
        spool.keep(letter)
    with Spool.opened(tmp_path, URL, "a") as spool:
        assert (spool.held(JOBS), spool.letters()) == (Held("claim-2", "{}"), [letter])
        spool.release(JOBS)
        spool.delivered(letter)
    with Spool.opened(tmp_path, URL, "a") as spool:
        assert (spool.held(JOBS), spool.letters()) == (None, [])


def test_each_server_and_each_name_has_its_own_memory(tmp_path: Path) -> None:
    with Spool.opened(tmp_path, URL, "a") as spool:
        spool.hold(Held("claim", "{}"))
        for url, name in [(URL, "b"), ("https://other.example.org", "a"), ("https://jobs.example.org:9443", "a")]:
            with Spool.opened(tmp_path, url, name) as other:
                assert other.held(JOBS) is None


def test_a_second_process_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    with Spool.opened(tmp_path, URL, "a"), pytest.raises(InUseError, match="--name"), Spool.opened(tmp_path, URL, "a"):
        pass
    with Spool.opened(tmp_path, URL, "a"):
        pass


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a/b", "ü\n", "", "x" * 500])
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    with Spool.opened(state, URL, name) as spool:
        spool.keep(Letter("../../../escape", "c", "{}"))
        assert state in spool.folder.resolve().parents
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "7", '{"foreign": 1}', '{"claim_id": '])
def test_a_broken_file_does_not_stop_the_runner(server: StandIn, runner: Runner, content: str) -> None:
    row = server.add()
    with Spool.opened(runner.state, server.url, runner.name) as spool:
        (spool.folder / "claim-jobs.json").write_text(content)
        (spool.folder / "reports" / "x.json").write_text(content)

    assert runner.run() == Exit.OK

    assert row.status == "done"
    assert len(list(spool.folder.rglob("*.broken"))) == 2


def test_refused_reports_are_kept_with_the_reason_and_only_so_many(tmp_path: Path) -> None:
    with Spool.opened(tmp_path, URL, "a") as spool:
        for number in range(KEPT_REFUSALS + 4):
            spool.set_aside(Letter(f"job-{number}", "c", "{}"), "409 lease_lost")
        kept = spool.set_aside(Letter("job-last", "c", "{}"), "409 lease_lost")
        assert json.loads(kept.read_text())["why"] == "409 lease_lost"
        assert len(list(kept.parent.iterdir())) == KEPT_REFUSALS
        assert spool.letters() == []


def test_what_a_killed_process_left_of_its_work_is_removed(tmp_path: Path) -> None:
    with Spool.opened(tmp_path, URL, "a") as spool:
        left = spool.new_scratch()
        (left / "half").write_text("a screenshot")
    with Spool.opened(tmp_path, URL, "a"):
        assert not left.exists()


def test_a_full_disk_does_not_lose_the_result_of_finished_work(server: StandIn, launch: Launch, fifo: Path) -> None:
    row = server.add("test.meet", spec={"fifo": str(fifo)})
    process = launch("run", "--forever")
    running(server, row)
    unlimited = resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
    release(fifo)
    server.until(lambda: row.status == "done")

    # The log needs its disk back before the process can end well.
    resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, unlimited)
    process.popen.send_signal(signal.SIGTERM)
    process.code()
    assert row.claims == 1


def test_work_is_not_begun_when_it_could_not_be_remembered(
    server: StandIn, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = server.add()

    def full(self: Spool) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "new_scratch", full)

    assert runner.run() == Exit.NOT_DONE
    assert (row.status, row.result["failure_class"]) == ("failed", "resource")


def test_a_report_of_an_earlier_process_does_not_keep_a_runner_from_ending(server: StandIn, launch: Launch) -> None:
    server.add()
    server.refuse_results = lambda body: (503, {}, {"Retry-After": "3000"})
    first = launch("run", "--once")
    server.until(lambda: server.called("result"))
    first.popen.kill()
    first.code()
    second = launch("run", "--forever")
    server.until(lambda: len(server.called("result")) == 2)

    second.popen.send_signal(signal.SIGTERM)

    assert second.code() == 0
