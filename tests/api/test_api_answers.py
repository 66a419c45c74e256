"""One answer per state and call: the table of the documentation, cell by cell, for both leased tables."""

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.http import HttpResponse

from jobs.models import Agent, AuditEvent
from jobs.services import governance, maintenance
from tests.api.runner_client import JOBS, TASKS, Held, Queue, Runner

CALLS: dict[str, Callable[[Held], HttpResponse]] = {
    "claim": Held.repeat_claim,
    "heartbeat": Held.beat,
    "start": Held.start,
    "result": Held.finish,
}
FURTHER: dict[str, Callable[[Held], HttpResponse]] = {
    "claim": lambda held: held.repeat_claim(capabilities=["more"]),
    "result": lambda held: held.finish(details={"more": True}),
}


def reap(held: Held) -> None:
    """Let the lease lapse by setting its last sign of life back, then run the reaper."""
    held.queue.model.objects.filter(pk=held.row.pk).update(heartbeat_at=F("heartbeat_at") - timedelta(hours=1))
    maintenance.reap()


def force(held: Held) -> None:
    governance.force_cancel(held.queue.model.objects.all(), held.row.pk, by="ada", reason="gone")


def finish(held: Held) -> None:
    assert held.finish().status_code == 200


STATES: dict[str, Callable[[Held], object]] = {
    "held": lambda held: None,
    "ended by its own result": finish,
    "reaped": reap,
    "forced by a person": force,
}
# state → call → status and code
TABLE: dict[str, dict[str, tuple[int, str]]] = {
    "held": {"claim": (200, ""), "heartbeat": (200, ""), "start": (200, ""), "result": (200, "")},
    "ended by its own result": {
        "claim": (410, "ended"), "heartbeat": (410, "ended"), "start": (410, "ended"), "result": (200, ""),
    },
    "reaped": {
        "claim": (409, "lease_lost"), "heartbeat": (409, "lease_lost"), "start": (409, "lease_lost"),
        "result": (409, "lease_lost"),
    },
    "forced by a person": {
        "claim": (410, "ended"), "heartbeat": (410, "ended"), "start": (410, "ended"), "result": (410, "ended"),
    },
}  # fmt: skip
OTHER_BODY: dict[str, dict[str, tuple[int, str]]] = {
    "held": {"claim": (409, "claim_mismatch"), "result": (200, "")},
    "ended by its own result": {"claim": (409, "claim_mismatch"), "result": (409, "result_mismatch")},
    "reaped": {"claim": (409, "claim_mismatch"), "result": (409, "lease_lost")},
    "forced by a person": {"claim": (409, "claim_mismatch"), "result": (410, "ended")},
}


def cells(table: dict[str, dict[str, tuple[int, str]]]) -> list[object]:
    return [
        pytest.param(queue, state, call, *expected, id=f"{queue.path}: {call} when {state}")
        for queue in (JOBS, TASKS)
        for state, calls in table.items()
        for call, expected in calls.items()
        if call != "start" or queue is TASKS
    ]


def check(answer: HttpResponse, status: int, code: str) -> None:
    assert (answer.status_code, answer.json().get("code", "")) == (status, code), answer.content


@pytest.mark.parametrize(("queue", "state", "call", "status", "code"), cells(TABLE))
def test_each_call_has_one_answer_in_each_state_and_repeats_it(
    runner: Runner, queue: Queue, state: str, call: str, status: int, code: str
) -> None:
    held = queue.held(runner)
    STATES[state](held)
    first, second = CALLS[call](held), CALLS[call](held)
    check(first, status, code)
    check(second, status, code)
    if call in ("claim", "result"):
        clock = {"server_time": None}
        assert first.json() | clock == second.json() | clock


@pytest.mark.parametrize(("queue", "state", "call", "status", "code"), cells(OTHER_BODY))
def test_another_body_under_the_same_claim_is_told_apart(
    runner: Runner, queue: Queue, state: str, call: str, status: int, code: str
) -> None:
    held = queue.held(runner)
    STATES[state](held)
    check(FURTHER[call](held), status, code)


def test_a_foreign_claim_id_is_refused_and_names_nothing(runner: Runner, stranger: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    answer = stranger.send("POST", f"{queue.path}/claim", held.claim)
    check(answer, 409, "claim_foreign")
    assert str(held.row.pk) not in answer.content.decode()


@pytest.mark.parametrize("call", ["heartbeat", "start", "result"])
def test_a_row_of_the_own_agent_under_another_claim_id_is_a_lost_lease(runner: Runner, queue: Queue, call: str) -> None:
    if call == "start" and queue is JOBS:
        call = "heartbeat"
    held = queue.held(runner)
    other = Held(queue=queue, runner=runner, row=held.row, claim={"claim_id": str(uuid.uuid4())})
    check(CALLS[call](other), 409, "lease_lost")
    check(CALLS[call](held), 200, "")


@pytest.mark.parametrize("call", ["heartbeat", "start", "result"])
def test_a_row_that_does_not_exist_is_not_found(runner: Runner, queue: Queue, call: str) -> None:
    if call == "start" and queue is JOBS:
        call = "heartbeat"
    row = queue.model(id=uuid.uuid4())
    check(
        CALLS[call](Held(queue=queue, runner=runner, row=row, claim={"claim_id": str(uuid.uuid4())})), 404, "not_found"
    )


def test_an_empty_queue_says_when_to_come_back_and_uses_up_no_claim_id(runner: Runner, queue: Queue) -> None:
    body = runner.claim_body(queue)
    empty = runner.send("POST", f"{queue.path}/claim", body)
    assert empty.status_code == 204
    assert 5 <= int(empty["Retry-After"]) <= 7
    queue.make(runner.agent)
    assert runner.send("POST", f"{queue.path}/claim", body).status_code == 201


def test_an_agent_does_one_task_at_a_time(runner: Runner) -> None:
    TASKS.held(runner)
    TASKS.make(runner.agent)
    answer = runner.claim(TASKS)
    check(answer, 409, "agent_busy")
    assert int(answer["Retry-After"]) >= 1


def test_an_agent_does_jobs_in_parallel(runner: Runner) -> None:
    assert JOBS.held(runner).row.pk != JOBS.held(runner).row.pk


@pytest.mark.parametrize("state", [Agent.State.PAUSED, Agent.State.DRAINING, Agent.State.DISABLED])
def test_an_agent_that_takes_no_work_is_told_why_and_finishes_what_it_holds(
    runner: Runner, queue: Queue, state: str
) -> None:
    held = queue.held(runner)
    queue.make(runner.agent)
    Agent.objects.filter(pk=runner.agent.pk).update(state=state, state_note="disk swap")
    refused = runner.claim(queue)
    check(refused, 403, f"agent_{state}")
    assert (refused.json()["note"], refused.json()["until"]) == ("disk swap", None)
    check(held.repeat_claim(), 200, "")
    beat = held.beat()
    check(beat, 200, "")
    assert beat.json()["agent_state"] == state
    check(held.finish(), 200, "")


def test_a_pause_with_an_end_says_until_when(runner: Runner) -> None:
    until = runner.agent.created_at + timedelta(days=365 * 50)
    Agent.objects.filter(pk=runner.agent.pk).update(state="paused", state_note="night", state_until=until)
    assert runner.claim(JOBS).json()["until"] == until.isoformat(timespec="microseconds").replace("+00:00", "Z")


def test_a_runner_that_is_too_old_takes_nothing_new_and_finishes_what_it_holds(
    runner: Runner, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = queue.held(runner)
    monkeypatch.setattr("jobs.services.runner_versions.OLDEST", (1, 1))
    check(runner.claim(queue), 426, "runner_too_old")
    check(held.beat(), 200, "")
    check(held.finish(), 200, "")
    queue.make(runner.agent)
    assert runner.claim(queue, runner={"name": "own", "version": "1.1"}).status_code == 201


def test_a_version_that_is_no_number_passes(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.runner_versions.OLDEST", (1, 1))
    assert runner.claim(JOBS, runner={"name": "own", "version": "main"}).status_code == 204


@pytest.mark.parametrize("state", ["reaped", "forced by a person"])
def test_a_late_result_is_kept_as_evidence_once_and_changes_no_row(runner: Runner, queue: Queue, state: str) -> None:
    held = queue.held(runner)
    STATES[state](held)
    before = queue.model.objects.filter(pk=held.row.pk).values().get()
    for _ in range(3):
        assert held.finish(error="late", details={"where": "here"}).status_code in (409, 410)
    assert queue.model.objects.filter(pk=held.row.pk).values().get() == before
    kept = AuditEvent.objects.get(subject_id=held.row.pk, tag=AuditEvent.Tag.LATE_RESULT)
    assert kept.details["body"]["status"] == queue.good
    assert kept.details["body"]["details"] == {"where": "here"}


def test_what_ended_says_how(runner: Runner) -> None:
    held = JOBS.held(runner)
    held.finish(verdict="risk")
    outcome = held.repeat_claim().json()["outcome"]
    assert (outcome["status"], outcome["verdict"]) == ("done", "risk")
    assert held.finish(verdict="pass").json()["outcome"] == outcome


def test_a_cancel_reaches_the_runner_with_the_next_answer(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    assert held.beat().json()["desired"] == "run"
    governance.cancel(queue.model.objects.all(), held.row.pk, by="ada", reason="wrong branch")
    for answer in (held.beat(), held.repeat_claim()):
        assert (answer.json()["cancel"]["by"], answer.json()["cancel"]["reason"]) == ("ada", "wrong branch")
    assert held.beat().json()["desired"] == "cancel"
    assert held.finish(status="cancelled").json()["status"] == "cancelled"


def test_cancelled_without_a_request_is_an_interrupted_failure_with_a_retry(runner: Runner, queue: Queue) -> None:
    answer = queue.held(runner).finish(status="cancelled").json()
    assert answer["status"] == "failed"
    retry = queue.model.objects.get(pk=answer["retry"]["id"])
    assert (retry.attempt, str(retry.retry_of_id)) == (2, answer["id"])


def test_a_restarted_runner_finds_what_it_holds(runner: Runner, stranger: Runner) -> None:
    job, task = JOBS.held(runner), TASKS.held(runner)
    JOBS.held(stranger)
    JOBS.make(runner.agent)
    JOBS.make(runner.agent, status="running")  # leased by plain SQL: nobody's claim
    me = runner.send("GET", "agents/me").json()
    assert me["principal_key"] == runner.agent.principal_key
    assert [(claim["id"], claim["claim_id"]) for claim in me["claims"]] == [(str(job.row.pk), job.claim_id)]
    assert [(claim["id"], claim["claim_id"]) for claim in me["task_claims"]] == [(str(task.row.pk), task.claim_id)]
