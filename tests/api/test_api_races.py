"""Requests at the same moment, over HTTP and real connections. Each race runs 5 times, 200 under the marker soak."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from django.db import connections
from django.http import HttpResponse

from jobs.services import identities
from tests.api.runner_client import JOBS, TASKS, Held, Queue, Runner, document

pytestmark = pytest.mark.django_db(transaction=True)
Call = Callable[[Runner], HttpResponse]


@pytest.fixture(params=[5, pytest.param(200, marks=pytest.mark.soak)], ids=["5 times", "200 times"])
def times(request: pytest.FixtureRequest) -> range:
    """How often a race is run."""
    return range(request.param)


@pytest.fixture
def runner(transactional_db: None) -> Runner:
    document()  # drf-spectacular loads its parts at the first use and minds no other thread
    return Runner()


def at_once(runner: Runner, *calls: Call) -> list[HttpResponse]:
    """The answers to calls that start together, each in a program and over a connection of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Call) -> HttpResponse:
        twin = runner.twin()
        try:
            barrier.wait(timeout=30)
            return call(twin)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def claim(queue: Queue, **members: object) -> Call:
    return lambda runner: runner.claim(queue, **members)


def finish(held: Held, **members: object) -> Call:
    return lambda runner: replace(held, runner=runner).finish(**members)


def test_simultaneous_claims_with_one_id_are_twins(runner: Runner, queue: Queue, times: range) -> None:
    for _ in times:
        row, body = queue.make(runner.agent), runner.claim_body(queue)
        answers = at_once(runner, *[claim(queue, **body)] * 4)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        assert {answer.json()["id"] for answer in answers} == {str(row.pk)}
        assert Held(queue=queue, runner=runner, row=row, claim=body).finish().status_code == 200


def test_simultaneous_claims_of_one_job_give_it_once(runner: Runner, times: range) -> None:
    for _ in times:
        JOBS.make(runner.agent)
        answers = at_once(runner, *[claim(JOBS)] * 4)
        assert sorted(answer.status_code for answer in answers) == [201, 204, 204, 204]


def test_an_agent_gets_one_of_two_tasks_however_it_asks(runner: Runner, times: range) -> None:
    for _ in times:
        TASKS.model.objects.all().delete()
        TASKS.make(runner.agent)
        TASKS.make(runner.agent)
        codes = sorted(answer.status_code for answer in at_once(runner, *[claim(TASKS)] * 4))
        assert codes[0] == 201
        assert set(codes[1:]) <= {204, 409}


def test_two_different_results_at_once_leave_one_and_name_it(runner: Runner, queue: Queue, times: range) -> None:
    for _ in times:
        held = queue.held(runner)
        answers = at_once(runner, *[finish(held, details={"word": word}) for word in ("one", "two")])
        stored, refused = sorted(answers, key=lambda answer: answer.status_code)
        assert (stored.status_code, refused.status_code) == (200, 409)
        assert refused.json()["outcome"]["status"] == queue.good


def test_one_result_posted_three_times_at_once_is_acknowledged_each_time(
    runner: Runner, queue: Queue, times: range
) -> None:
    for _ in times:
        held = queue.held(runner)
        answers = at_once(runner, *[finish(held, status="failed")] * 3)
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["retry"]["id"] for answer in answers}) == 1
        queue.model.objects.filter(retry_of=held.row.pk).delete()


def test_a_heartbeat_is_heard_or_refused_while_its_token_is_revoked_and_refused_ever_after(
    runner: Runner, queue: Queue, times: range
) -> None:
    held = queue.held(runner)
    for _ in times:
        issued = identities.issue_token(agent_id=runner.agent.pk, by="ada", note="race")
        other = Runner(runner.agent, bearer=issued.bearer)

        def revoke(_: Runner, token_id: UUID = issued.token_id) -> HttpResponse:
            assert identities.revoke_token(token_id=token_id, by="ada", reason="race")
            return HttpResponse()

        beaten = replace(held, runner=other)
        answers = at_once(other, lambda twin, beaten=beaten: replace(beaten, runner=twin).beat(), revoke)
        assert answers[0].status_code in (200, 401)
        assert beaten.beat().status_code == 401
        assert held.beat().status_code == 200
