"""Who gets which row, and what a claim id means the second time."""

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from jobs.engine.errors import AgentBusy, ClaimMismatch, Ended, ForeignClaim, LeaseLost
from jobs.models import Agent
from tests.engine.queues import JOBS, TASKS, Queue
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def agent() -> Agent:
    return AgentFactory()


def claimed(queue: Queue, agent: Agent, **arguments: object) -> object:
    """The id of the row that a claim leases; the row is closed again, so that the agent is free."""
    leasing = queue.claim(agent, **arguments)
    if leasing is None:
        return None
    queue.end(leasing.row, queue.life.cancelled)
    return leasing.row.pk


def test_a_claim_takes_the_highest_priority_then_the_oldest_then_the_lowest_id(queue: Queue, agent: Agent) -> None:
    moment = timezone.now() - HOUR
    twins = sorted(queue.make(agent, **{queue.life.queued_at: moment}).pk for _ in range(2))
    older = queue.make(agent, **{queue.life.queued_at: moment - HOUR}).pk
    urgent = queue.make(agent, priority=5).pk
    least = queue.make(agent, priority=-5, **{queue.life.queued_at: moment - 2 * HOUR}).pk
    assert [claimed(queue, agent) for _ in range(6)] == [urgent, older, *twins, least, None]


def test_a_claim_writes_lease_claimant_and_nothing_else(queue: Queue, agent: Agent) -> None:
    row = queue.make(agent, lease_seconds=45)
    claim_id = uuid.uuid4()
    leasing = queue.claim(agent, claim_id, claimed_by="runner 1")
    stored = queue.stored(row)
    assert leasing is not None
    assert leasing.is_new
    assert (stored.status, stored.claim_id, stored.claimed_by) == (queue.life.leased[0], claim_id, "runner 1")
    assert stored.heartbeat_at == getattr(stored, queue.life.claimed_at) == leasing.read_at
    written = {"status", "claim_id", "claimed_by", "claim_digest", "heartbeat_at", "updated_at", queue.life.claimed_at}
    for column in {field.attname for field in queue.model._meta.concrete_fields} - written:
        assert getattr(stored, column) == getattr(row, column), column


def test_a_claim_that_names_no_run_keeps_the_one_that_the_row_has(agent: Agent) -> None:
    JOBS.make(agent, run_ref="run 7")
    leasing = JOBS.claim(agent, run_ref=None)
    assert leasing is not None
    assert leasing.row.run_ref == "run 7"


def test_the_same_claim_gives_the_same_row_with_its_lease_untouched(queue: Queue, agent: Agent) -> None:
    queue.make(agent), queue.make(agent)
    claim_id = uuid.uuid4()
    first, second = queue.claim(agent, claim_id), queue.claim(agent, claim_id)
    assert first is not None
    assert second is not None
    assert (second.row.pk, second.is_new) == (first.row.pk, False)
    assert second.row.heartbeat_at == first.row.heartbeat_at
    assert queue.rows.leased().count() == 1


def test_a_replay_is_answered_while_the_agent_is_paused(queue: Queue, agent: Agent) -> None:
    row, holder = queue.hold(agent)
    Agent.objects.filter(pk=agent.pk).update(state="paused")
    again = queue.claim(agent, holder.claim_id)
    assert again is not None
    assert (again.row.pk, again.is_new) == (row.pk, False)


def test_a_claim_id_that_found_nothing_is_not_used_up(queue: Queue, agent: Agent) -> None:
    claim_id = uuid.uuid4()
    assert queue.claim(agent, claim_id) is None
    row = queue.make(agent)
    leasing = queue.claim(agent, claim_id, digest="another request")
    assert leasing is not None
    assert leasing.row.pk == row.pk


def test_a_claim_id_with_another_request_is_a_mismatch(queue: Queue, agent: Agent) -> None:
    row, holder = queue.hold(agent)
    with pytest.raises(ClaimMismatch) as refusal:
        queue.claim(agent, holder.claim_id, digest="another request")
    assert refusal.value.row.pk == row.pk


def test_a_claim_id_of_another_agent_is_foreign_and_shows_nothing(queue: Queue, agent: Agent) -> None:
    _, holder = queue.hold(agent)
    other = AgentFactory()
    queue.make(other)
    with pytest.raises(ForeignClaim) as refusal:
        queue.claim(other, holder.claim_id)
    assert refusal.value.row is None
    assert queue.rows.waiting().count() == 1


def test_a_claim_whose_attempt_ended_is_told_so_and_takes_nothing_else(queue: Queue, agent: Agent) -> None:
    for end in queue.life.finished:
        _, holder = queue.hold(agent)
        waiting = queue.make(agent)
        queue.rows.filter(pk=holder.row_id).update(cancel_requested_at=timezone.now(), cancel_requested_by="ada")
        queue.finish(holder, end)
        with pytest.raises(Ended) as refusal:
            queue.claim(agent, holder.claim_id)
        assert (refusal.value.row.pk, refusal.value.row.status) == (holder.row_id, end)
        assert queue.stored(waiting).status == queue.life.waiting


def test_a_claim_that_was_reaped_has_lost_its_lease(queue: Queue, agent: Agent) -> None:
    _, holder = queue.hold(agent)
    queue.fall_silent()
    queue.model.objects.reap()
    with pytest.raises(LeaseLost):
        queue.claim(agent, holder.claim_id)


def test_an_agent_gets_only_its_own_rows(queue: Queue, agent: Agent) -> None:
    theirs = queue.make()
    assert queue.claim(agent) is None
    assert queue.claim(agent, row_id=theirs.pk) is None


def test_only_the_kinds_asked_for_are_given(queue: Queue, agent: Agent) -> None:
    row = queue.make(agent)
    assert queue.claim(agent, kinds=[queue.other_kind]) is None
    assert queue.claim(agent, kinds=[]) is None
    assert queue.claim(agent, row_id=row.pk, kinds=[queue.other_kind]) is None
    assert claimed(queue, agent, kinds=[queue.other_kind, queue.kind, queue.kind]) == row.pk


def test_kinds_share_one_order(queue: Queue, agent: Agent) -> None:
    column = queue.life.kind
    made = [queue.make(agent, **{column: kind}).pk for kind in (queue.kind, queue.other_kind, queue.kind)]
    both = [queue.other_kind, queue.kind]
    assert [claimed(queue, agent, kinds=both) for _ in made] == made


def test_a_kind_that_floods_the_queue_does_not_hide_another(queue: Queue, agent: Agent) -> None:
    queue.insert(agent, 50)
    wanted = queue.make(agent, **{queue.life.kind: queue.other_kind, queue.life.queued_at: timezone.now() + HOUR})
    assert claimed(queue, agent, kinds=[queue.other_kind]) == wanted.pk


def test_one_row_can_be_claimed_by_its_id_past_the_queue(queue: Queue, agent: Agent) -> None:
    queue.make(agent, priority=9)
    wanted = queue.make(agent)
    assert claimed(queue, agent, row_id=wanted.pk) == wanted.pk
    assert claimed(queue, agent, row_id=wanted.pk) is None
    assert claimed(queue, agent, row_id=uuid.uuid4()) is None


@pytest.mark.parametrize("by_id", [False, True], ids=["next", "by id"])
def test_a_row_whose_time_has_not_come_is_passed_over(queue: Queue, agent: Agent, by_id: bool) -> None:
    early = queue.make(agent, not_before=timezone.now() + HOUR, priority=9)
    asked = {"row_id": early.pk} if by_id else {}
    assert claimed(queue, agent, **asked) is None
    queue.rows.filter(pk=early.pk).update(not_before=timezone.now() - HOUR)
    assert claimed(queue, agent, **asked) == early.pk


@pytest.mark.parametrize("by_id", [False, True], ids=["next", "by id"])
def test_an_expired_row_is_not_given_although_the_clock_has_not_closed_it(
    queue: Queue, agent: Agent, by_id: bool
) -> None:
    late = queue.make(agent, expires_at=timezone.now() - HOUR)
    assert claimed(queue, agent, **({"row_id": late.pk} if by_id else {})) is None
    in_time = queue.make(agent, expires_at=timezone.now() + HOUR)
    assert claimed(queue, agent) == in_time.pk


@pytest.mark.parametrize("state", ["paused", "draining", "disabled"])
def test_an_agent_that_is_not_active_gets_nothing_until_that_has_ended(queue: Queue, agent: Agent, state: str) -> None:
    row = queue.make(agent)
    for until in (None, timezone.now() + HOUR):
        Agent.objects.filter(pk=agent.pk).update(state=state, state_until=until)
        assert claimed(queue, agent) is None
        assert claimed(queue, agent, row_id=row.pk) is None
    Agent.objects.filter(pk=agent.pk).update(state_until=timezone.now() - HOUR)
    assert claimed(queue, agent) == row.pk


def test_an_agent_with_an_active_task_is_busy_whatever_it_asks_for() -> None:
    agent = AgentFactory()
    held, _ = TASKS.hold(agent)
    waiting = TASKS.make(agent)
    for arguments in ({}, {"row_id": waiting.pk}, {"kinds": ["restore"]}):
        with pytest.raises(AgentBusy) as refusal:
            TASKS.claim(agent, **arguments)
        assert refusal.value.row.pk == held.pk
    assert TASKS.stored(waiting).status == "pending"


def test_an_agent_runs_several_jobs_at_once(agent: Agent) -> None:
    JOBS.insert(agent, 3)
    assert len({JOBS.claim(agent).row.pk for _ in range(3)}) == 3


@pytest.mark.parametrize("by_id", [False, True], ids=["next", "by id"])
def test_a_row_whose_concurrency_key_is_held_is_passed_over(agent: Agent, by_id: bool) -> None:
    JOBS.hold(AgentFactory(), concurrency_key="staging")
    blocked = JOBS.make(agent, concurrency_key="staging", priority=9)
    free = JOBS.make(agent, concurrency_key="production")
    assert claimed(JOBS, agent, row_id=blocked.pk) is None
    assert claimed(JOBS, agent) == free.pk
    JOBS.fall_silent()
    JOBS.model.objects.reap()
    assert claimed(JOBS, agent) == blocked.pk


@pytest.mark.parametrize(
    "document",
    [
        f'{{"n": 1{"0" * 5000}}}',
        "[" * 2000 + "]" * 2000,
        "null",
        '"text"',
        '{"n": 0.1000000000000000055511151231257827}',
    ],
    ids=["too many digits", "too deep", "null", "text", "more digits than a float"],
)
def test_a_document_of_a_sql_client_stops_no_queue_and_reaches_the_retry_whole(
    queue: Queue, agent: Agent, document: str
) -> None:
    table, column = queue.model._meta.db_table, "spec" if queue is JOBS else "task_payload"
    row = queue.make(agent)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s::jsonb WHERE id = %s", [document, row.pk])
    leasing = queue.claim(agent)
    assert leasing is not None
    assert leasing.row.pk == row.pk
    queue.fall_silent()
    assert [closed.pk for closed in queue.model.objects.reap()] == [row.pk]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} = %s::jsonb FROM {table} WHERE retry_of = %s", [document, row.pk])
        assert cursor.fetchone() == (True,)
