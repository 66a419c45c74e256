"""Claiming: one id until there is an answer that counts, and what each answer means."""

import random
import threading

import pytest
from agentstore_runner.backoff import LONGEST_S, Backoff, spread
from agentstore_runner.claiming import Exit
from agentstore_runner.client import INSTANCE
from harness import Runner
from standin import StandIn, refusal


def claim_ids(server: StandIn) -> list[str]:
    return [call.body["claim_id"] for call in server.called("claim")]


def test_a_job_is_claimed_done_and_acknowledged(server: StandIn, runner: Runner) -> None:
    row = server.add(spec={"n": 1})

    assert runner.run() == Exit.OK

    assert (row.status, row.verdict, row.result["results"]) == ("done", "pass", {"spec": {"n": 1}})
    assert not list(runner.state.rglob("*.json"))


def test_nothing_to_do_ends_a_single_run_well_and_starts_nothing(server: StandIn, runner: Runner) -> None:
    assert runner.run() == Exit.OK
    assert server.names() == ["claim"]


@pytest.mark.parametrize(
    ("acts", "how", "reply"),
    [
        pytest.param(True, "drop", {}, id="the reply is lost after the commit"),
        pytest.param(False, "drop", {}, id="the request is lost"),
        pytest.param(True, "cut", {}, id="the body is cut"),
        pytest.param(True, "reply", {"status": 502, "body": b"<html>"}, id="a bad gateway hides the answer"),
        pytest.param(True, "reply", {"status": 200, "body": b"<html>welcome"}, id="a captive portal answers"),
        pytest.param(True, "reply", {"status": 200, "body": b'{"hello": 1}'}, id="somebody else's JSON"),
        pytest.param(True, "reply", {"status": 200, "body": b"[" * 100_000}, id="a body that no parser survives"),
        pytest.param(False, "reply", {"status": 404, "body": b"<html>", "Content_Type": "text/html"}, id="a bare 404"),
        pytest.param(False, "reply", {"status": 403, "body": b"<html>", "Content_Type": "text/html"}, id="a bare 403"),
        pytest.param(
            False, "reply", {"status": 401, "body": b"{}", "Content_Type": "application/json"}, id="a bare 401"
        ),
        pytest.param(
            False,
            "reply",
            {"status": 403, "body": b'{"code": "forbidden"}', "Content_Type": "application/json"},
            id="a gateway that speaks JSON of its own",
        ),
        pytest.param(
            False,
            "reply",
            {"status": 404, "body": b'{"detail": "no"}', "Content_Type": "application/problem+json"},
            id="a problem without a code",
        ),
        pytest.param(
            False,
            "reply",
            {"status": 429, "body": b'{"code": "slow"}', "Content_Type": "application/problem+json"},
            id="a rate limit",
        ),
        pytest.param(False, "reply", {"status": 302, "Location": "http://127.0.0.1:1/"}, id="a redirect"),
    ],
)
def test_what_is_no_answer_is_asked_again_with_the_same_id_and_gives_the_same_row(
    server: StandIn, runner: Runner, acts: bool, how: str, reply: dict[str, object]
) -> None:
    row = server.add()
    server.fail_next("claim", acts=acts, how=how, **reply)  # type: ignore[arg-type] # mixed keywords

    assert runner.run() == Exit.OK

    assert len(claim_ids(server)) == 2
    assert len(set(claim_ids(server))) == 1
    assert (row.status, row.claims) == ("done", 1)


def test_a_claim_that_hangs_is_one_claim_when_the_runner_is_asked_to_stop_meanwhile(
    server: StandIn, runner: Runner
) -> None:
    row, hanging = server.add(), threading.Event()
    server.hang_next("claim", hanging)
    ended = runner.start()
    server.until(lambda: server.called("claim"))
    runner.shutdown.request(15)
    hanging.set()

    assert ended() == 143

    assert row.status == "running"
    again = Runner(server, runner.state)
    assert again.run() == Exit.OK
    assert (row.status, row.claims) == ("done", 1)
    assert len(set(claim_ids(server))) == 1


def test_a_claim_is_repeated_word_for_word_even_when_the_next_process_wants_something_else(
    server: StandIn, runner: Runner
) -> None:
    row, hanging = server.add(), threading.Event()
    server.hang_next("claim", hanging)
    ended = runner.start()
    server.until(lambda: server.called("claim"))
    runner.shutdown.request(15)
    hanging.set()
    ended()

    assert Runner(server, runner.state).run(kinds=["test.obey"], run_ref="elsewhere") == Exit.OK

    first, second, own = server.called("claim")
    assert first.raw == second.raw
    assert row.status == "done"
    assert own.body["run_ref"] == "elsewhere"


def test_a_process_for_one_job_first_settles_an_unanswered_claim_and_then_does_its_own(
    server: StandIn, runner: Runner
) -> None:
    row, hanging = server.add(), threading.Event()
    server.hang_next("claim", hanging)
    ended = runner.start()
    server.until(lambda: server.called("claim"))
    runner.shutdown.request(15)
    hanging.set()
    ended()
    wanted = server.add()

    assert Runner(server, runner.state).run(job_id=wanted.id) == Exit.OK

    assert (row.status, wanted.status) == ("done", "done")


def test_an_id_that_found_nothing_does_not_claim_for_a_process_that_wants_one_job(
    server: StandIn, runner: Runner
) -> None:
    assert runner.run() == Exit.OK
    unwanted, wanted = server.add(), server.add()

    assert Runner(server, runner.state).run(job_id=wanted.id) == Exit.OK

    assert (unwanted.status, wanted.status) == ("queued", "done")


def test_an_idle_runner_that_was_stopped_leaves_no_claim_behind(server: StandIn, runner: Runner) -> None:
    server.retry_after = "3000"
    ended = runner.start(once=False)
    server.until(lambda: server.called("claim"))
    runner.shutdown.request(15)

    assert ended() == Exit.OK
    unwanted, wanted = server.add(), server.add()
    assert Runner(server, runner.state).run(job_id=wanted.id) == Exit.OK
    assert (unwanted.status, wanted.status) == ("queued", "done")


def test_an_id_that_found_nothing_is_kept_so_that_a_delayed_twin_of_it_cannot_strand_a_job(
    server: StandIn, runner: Runner
) -> None:
    server.retry_after = "0"
    ended = runner.start(once=False)
    server.until(lambda: len(server.called("claim")) >= 2)
    row = server.add()
    server.until(lambda: row.status == "done" and server.names()[-1] == "claim")
    runner.shutdown.request(15)

    assert ended() == Exit.OK
    *during, after = claim_ids(server)
    assert set(during) == {row.claim_id}
    assert after != row.claim_id


@pytest.mark.parametrize(
    "answer", [("lease_lost", 409), ("ended", 410), ("claim_foreign", 409), ("claim_mismatch", 409)]
)
def test_a_void_claim_id_is_replaced_by_a_new_one(server: StandIn, runner: Runner, answer: tuple[str, int]) -> None:
    code, status = answer
    row = server.add()
    body = b'{"code": "%s"}' % code.encode()
    server.fail_next("claim", acts=False, status=status, body=body, Content_Type="application/problem+json")

    assert runner.run() == Exit.OK

    assert row.status == "done"
    assert len(set(claim_ids(server))) == 2


def test_a_server_that_voids_every_claim_ends_a_single_run(server: StandIn, runner: Runner) -> None:
    server.blocked = refusal(409, "claim_foreign")
    assert runner.run() == Exit.REFUSED


@pytest.mark.parametrize("code", ["agent_paused", "agent_draining", "agent_disabled"])
def test_a_blocked_agent_ends_a_single_run_with_the_reason_in_the_log(
    server: StandIn, runner: Runner, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.add()
    server.blocked = refusal(403, code, note="cable work", until="2030-01-01T00:00:00Z")

    assert runner.run() == Exit.REFUSED

    assert code in caplog.text
    assert "cable work" in caplog.text


@pytest.mark.parametrize(("status", "code"), [(401, "unauthenticated"), (426, "runner_too_old"), (422, "invalid")])
def test_a_refusal_for_good_ends_the_process_and_not_only_a_single_run(
    server: StandIn, runner: Runner, status: int, code: str
) -> None:
    server.blocked = refusal(status, code)
    assert runner.run(once=False) == Exit.REFUSED
    assert server.names() == ["claim"]


def test_only_the_job_that_was_named_is_claimed(server: StandIn, runner: Runner) -> None:
    other, wanted = server.add(), server.add()

    assert runner.run(job_id=wanted.id) == Exit.OK

    assert (other.status, wanted.status) == ("queued", "done")


def test_a_kind_without_a_handler_fails_as_a_fault_of_configuration(server: StandIn, runner: Runner) -> None:
    row = server.add("test.unheard")

    assert runner.run(kinds=["test.unheard"]) == Exit.NOT_DONE

    assert (row.status, row.result["failure_class"]) == ("failed", "configuration")
    assert "test.unheard" in row.result["error"]


class Recorder(threading.Event):
    """Remembers how long it was asked to wait, and does not."""

    def __init__(self, stop_after: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._stop_after = stop_after

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if len(self.waits) >= self._stop_after:
            self.set()
        return self.is_set()


def pauses(server: StandIn, runner: Runner, count: int, seed: int) -> list[float]:
    recorder = Recorder(count)
    runner.shutdown.asked = recorder
    runner.rng = random.Random(seed)
    runner.run(once=False)
    return recorder.waits[:count]


def test_a_fleet_that_was_told_to_come_back_later_does_not_come_back_together(server: StandIn, runner: Runner) -> None:
    server.blocked = (503, {}, {"Retry-After": "5"})

    first = [pauses(server, Runner(server, runner.state, f"r{n}"), 1, seed=n)[0] for n in range(50)]

    assert min(first) >= 5
    buckets = [sum(1 for pause in first if start <= pause * 5 < start + 1) for start in range(25, 60)]
    assert sum(buckets) == 50
    assert max(buckets) <= 10


def test_idle_runners_obey_retry_after_and_spread(server: StandIn, runner: Runner) -> None:
    server.retry_after = "7"

    waits = [pauses(server, Runner(server, runner.state, f"r{n}"), 1, seed=n)[0] for n in range(20)]

    assert min(waits) >= 7
    assert len({round(wait, 1) for wait in waits}) > 10


def test_an_outage_without_retry_after_is_asked_about_ever_more_rarely(server: StandIn, runner: Runner) -> None:
    server.blocked = (500, {}, {})

    waits = pauses(server, runner, 14, seed=1)

    assert all(0.05 <= wait <= LONGEST_S for wait in waits)
    assert waits[-1] >= LONGEST_S / 2
    # Once it has lasted, at most three questions fall into the ten seconds after it ends.
    assert sum(waits[8:11]) > 10


@pytest.mark.parametrize("failures", [0, 1, 10, 5000])
def test_the_back_off_stays_between_its_bounds_however_long_it_lasts(failures: int) -> None:
    backoff = Backoff(random.Random(3))
    for _ in range(failures):
        backoff.next(None)
    assert 0.05 <= backoff.next(None) <= LONGEST_S


@pytest.mark.parametrize("asked", [0.0, 1.0, 30.0, 1e12])
def test_a_pause_that_was_asked_for_is_never_undercut_and_never_endless(asked: float) -> None:
    wait = spread(asked, random.Random(5))
    assert min(asked, 3600) <= wait <= 3600 * 1.5


def test_every_call_says_which_process_makes_it_and_no_body_does(server: StandIn, runner: Runner) -> None:
    server.add()
    assert runner.run() == 0
    said = {call.headers["agentstore-instance"] for call in server.calls}
    assert said == {f"{INSTANCE} tester"}
    assert all(str(INSTANCE) not in call.raw.decode() for call in server.calls)
