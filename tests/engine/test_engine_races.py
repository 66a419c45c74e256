"""Real connections that start together. Each race runs 20 times, 200 under the marker soak."""

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
from django.db import IntegrityError
from django.utils import timezone

from jobs.engine.answers import Cancel
from jobs.engine.errors import AgentBusy, Ended, LeaseLost
from jobs.services import governance
from jobs.services.errors import AlreadyEnded, AlreadyRetried, Invalid
from tests.engine.queues import JOBS, TASKS, Queue, close_racers, race, unexpected
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db(transaction=True)

WHY = {"by": "ada", "reason": "race"}


@pytest.fixture(autouse=True)
def _racers(transactional_db: None) -> Iterator[None]:
    yield
    close_racers()


@pytest.fixture(params=[20, pytest.param(200, marks=pytest.mark.soak)], ids=["20 times", "200 times"])
def times(request: pytest.FixtureRequest) -> range:
    """How often a race is run."""
    return range(request.param)


def shuffled(*calls: Callable[[], Any]) -> list[Any]:
    """The answers in the given order; the threads start in a random one."""
    order = random.sample(range(len(calls)), len(calls))
    answers = dict(zip(order, race(*(calls[place] for place in order)), strict=True))
    return [answers[place] for place in range(len(calls))]


def history(queue: Queue, row: Any) -> list[str]:
    events = queue.model.pgh_event_model.objects.filter(pgh_obj_id=row.pk).order_by("pgh_id")
    return [event.status for event in events]


def test_result_against_reaper_ends_the_row_once_as_who_came_first_says(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        queue.fall_silent(pk=row.pk)
        result, reaped = shuffled(partial(queue.finish, holder), queue.model.objects.reap)
        stored = queue.stored(row)
        if isinstance(result, LeaseLost):
            assert ([gone.pk for gone in reaped], stored.failure_class) == ([row.pk], "lost")
            queue.model.objects.request_cancel(queue.rows.get(retry_of=row).pk, **WHY)
        else:
            assert (result[1], reaped, stored.status) == (True, [], queue.good), (result, reaped)
            assert not queue.rows.filter(retry_of=row).exists()
        assert sum(status in queue.life.finished for status in history(queue, row)) == 1


def test_cancel_against_result_keeps_the_result_and_never_loses_an_answer(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        cancel, result = shuffled(partial(governance.cancel, queue.rows, row.pk, **WHY), partial(queue.finish, holder))
        stored = queue.stored(row)
        assert (result[1], stored.status) == (True, queue.good), result
        if isinstance(cancel, AlreadyEnded):
            assert stored.cancel_requested_at is None
        else:
            assert (cancel.outcome, stored.cancel_requested_by) == (Cancel.ASKED, "ada"), cancel


def test_force_against_result_leaves_one_end(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        forced, result = shuffled(
            partial(governance.force_cancel, queue.rows, row.pk, **WHY), partial(queue.finish, holder)
        )
        if isinstance(forced, AlreadyEnded):
            assert (result[1], queue.stored(row).status) == (True, queue.good)
        else:
            assert isinstance(result, Ended), result
            assert queue.stored(row).status == queue.life.cancelled


def test_cancel_against_a_failing_result_stops_the_chain(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        cancel, result = shuffled(
            partial(governance.cancel, queue.rows, row.pk, **WHY), partial(queue.fail, holder, "transient")
        )
        assert unexpected([cancel, result]) == []
        assert not queue.rows.chain(row.pk).filter(status__in=queue.life.unfinished).exists()


def test_a_cancelled_row_is_never_delivered_after_the_cancel_was_answered(queue: Queue, times: range) -> None:
    for _ in times:
        row = queue.make()
        cancel, leasing = shuffled(
            partial(queue.model.objects.request_cancel, row.pk, **WHY), partial(queue.claim, row.agent)
        )
        stored = queue.stored(row)
        if cancel is Cancel.CLOSED:
            assert (leasing, stored.status, stored.claim_id) == (None, queue.life.cancelled, None)
        else:
            assert cancel is Cancel.ASKED, cancel
            assert (leasing.row.pk, stored.cancel_requested_by) == (row.pk, "ada")


def test_a_heartbeat_that_commits_first_saves_the_lease(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        queue.fall_silent(pk=row.pk)
        pulse, reaped = shuffled(partial(queue.model.objects.heartbeat, holder), queue.model.objects.reap)
        if isinstance(pulse, LeaseLost):
            assert [gone.pk for gone in reaped] == [row.pk]
        else:
            assert unexpected([pulse, reaped]) == []
            assert (reaped, queue.stored(row).status) == ([], queue.life.leased[0])
            queue.finish(holder)


def test_two_people_pressing_retry_get_one_retry(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        queue.fail(holder, "configuration")
        answers = race(*[partial(governance.retry, queue.rows, row.pk, **WHY)] * 3)
        made = [answer for answer in answers if isinstance(answer, uuid.UUID)]
        assert len(made) == 1, answers
        assert unexpected(answers, AlreadyRetried) == []
        assert {answer.row_id for answer in answers if isinstance(answer, AlreadyRetried)} == set(made)
        assert queue.rows.filter(retry_of=row).count() == 1


def test_twin_claims_get_the_one_row_that_waits_and_exactly_one_is_new(queue: Queue, times: range) -> None:
    for _ in times:
        row, claim_id = queue.make(), uuid.uuid4()
        answers = race(*[partial(queue.claim, row.agent, claim_id)] * 4)
        assert [getattr(getattr(answer, "row", None), "pk", answer) for answer in answers] == [row.pk] * 4
        assert sum(answer.is_new for answer in answers) == 1


def test_twin_results_are_stored_once(queue: Queue, times: range) -> None:
    for _ in times:
        row, holder = queue.hold()
        answers = race(*[partial(queue.finish, holder, queue.life.failed, failure_class="transient")] * 3)
        assert sorted(is_new for _, is_new in answers) == [False, False, True], answers
        assert queue.rows.filter(retry_of=row).count() == 1


@pytest.mark.parametrize("rounds", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_five_reapers_over_a_hundred_lapsed_leases_make_a_hundred_retries(queue: Queue, rounds: int) -> None:
    ends = queue.model.pgh_event_model.objects.filter(status=queue.life.failed)
    for _ in range(rounds):
        queue.rows.waiting().update(status=queue.life.cancelled, **{queue.life.finished_at: timezone.now()})
        held = queue.insert_silent(100)
        answers = race(*[queue.model.objects.reap] * 5)
        assert unexpected(answers) == []
        closed = Counter(row.pk for answer in answers for row in answer)
        assert set(closed) == held
        assert set(closed.values()) == {1}
        assert set(queue.rows.waiting().values_list("retry_of", flat=True)) == held
        assert queue.rows.waiting().count() == 100
        assert Counter(ends.filter(pgh_obj_id__in=held).values_list("pgh_obj_id", flat=True)) == Counter(held)


@pytest.mark.parametrize(("rounds", "tasks"), [(1, 40), pytest.param(200, 200, marks=pytest.mark.soak)])
def test_sixteen_runners_of_four_agents_do_every_task_once_and_one_at_a_time(rounds: int, tasks: int) -> None:
    agents = [AgentFactory() for _ in range(4)]
    done: list[uuid.UUID] = []

    def runner(agent: Any) -> None:
        busy = 0
        while TASKS.rows.waiting().filter(agent=agent).exists() and busy < 50_000:
            try:
                leasing = TASKS.claim(agent)
            except AgentBusy:
                busy += 1
                continue
            if leasing is not None:
                assert TASKS.rows.leased().filter(agent=agent).count() == 1
                TASKS.finish(TASKS.holder(leasing.row))
                done.append(leasing.row.pk)

    for number in range(1, rounds + 1):
        for agent in agents:
            TASKS.insert(agent, tasks // 4)
        answers = race(*(partial(runner, agent) for agent in agents * 4))
        assert unexpected(answers) == []
        assert len(done) == len(set(done)) == number * tasks
        assert TASKS.rows.filter(status="succeeded").count() == number * tasks


def test_simultaneous_claims_of_one_agent_never_share_a_job_and_miss_none() -> None:
    agent = AgentFactory()
    JOBS.insert(agent, 64)
    answers = race(*[lambda: [JOBS.claim(agent) for _ in range(8)]] * 8)
    assert unexpected(answers) == []
    taken = [leasing.row.pk for answer in answers for leasing in answer]
    assert len(taken) == len(set(taken)) == 64


def test_a_concurrency_key_is_held_once_and_the_losers_take_other_work(times: range) -> None:
    for _ in times:
        agents = [AgentFactory() for _ in range(4)]
        for agent in agents:
            JOBS.make(agent, concurrency_key="staging", priority=1)
            JOBS.make(agent)
        answers = race(*(partial(JOBS.claim, agent) for agent in agents))
        assert [leasing.is_new for leasing in answers] == [True] * 4, answers
        assert sum(leasing.row.concurrency_key == "staging" for leasing in answers) == 1
        JOBS.fall_silent()
        JOBS.rows.update(max_attempts=1)
        JOBS.model.objects.reap()
        for row in JOBS.rows.waiting():
            JOBS.model.objects.request_cancel(row.pk, **WHY)


def test_a_dedupe_key_is_given_once(times: range) -> None:
    agent = AgentFactory()
    for number in times:
        answers = race(*[partial(JOBS.make, agent, dedupe_key=f"nightly {number}")] * 3)
        assert sum(isinstance(answer, IntegrityError) for answer in answers) == 2, answers


def beat_and_end(queue: Queue, agent: Any, dice: random.Random) -> None:
    for held in queue.rows.leased().filter(agent=agent)[:1]:
        queue.model.objects.heartbeat(queue.holder(held))
        if dice.random() < 0.5:
            queue.finish(queue.holder(held))
        else:
            queue.fail(queue.holder(held), dice.choice(["interrupted", "transient"]))


def one_act(queue: Queue, agent: Any, dice: random.Random) -> None:
    """Anything that runners, people and the clock do, by the odds of a busy day."""
    some = queue.rows.filter(agent=agent).order_by("?").first()
    match dice.randrange(7):
        case 0 | 1:
            queue.claim(agent)
        case 2 | 3:
            beat_and_end(queue, agent, dice)
        case 4:
            governance.cancel(queue.rows, some.pk, **WHY)
        case 5:
            queue.fall_silent(agent=agent)
            queue.model.objects.reap()
        case _:
            governance.retry(queue.rows, some.pk, **WHY)


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_a_random_mix_of_everything_ends_without_deadlock_and_with_every_chain_whole(
    seconds: int, queue: Queue
) -> None:
    agents = [AgentFactory() for _ in range(4)]
    for agent in agents:
        queue.insert(agent, 12)
    seed = random.randrange(2**32)

    def worker(number: int) -> None:
        dice = random.Random(seed + number)
        until = monotonic() + seconds
        while monotonic() < until:
            with suppress(AgentBusy, Ended, LeaseLost, AlreadyEnded, AlreadyRetried, Invalid):
                one_act(queue, dice.choice(agents), dice)

    answers = race(*(partial(worker, number) for number in range(6)), patience=seconds + 60)
    assert unexpected(answers) == [], f"seed {seed}"
    for root in queue.rows.values_list("root_id", flat=True).distinct():
        chain = list(queue.rows.chain(root))
        assert [row.attempt for row in chain] == list(range(1, len(chain) + 1))
        assert all(row.status in queue.life.finished for row in chain[:-1])
        for row in chain:
            walked = history(queue, row)
            assert walked[-1] == row.status
            assert {move for move in pairwise(walked) if move[0] != move[1]} <= set(queue.life.moves)
