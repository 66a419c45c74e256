"""The checker of histories on histories written by hand: a sound one passes, each fault is named."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.outages.history import Call, Event, History, Row

ENDED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
JSON = "application/json"


def job(name: str = "a", **columns: Any) -> Row:
    given = {"table": "agent_jobs", "id": name, "root_id": name, "agent": "ci", "status": "done", "claim_id": "c",
             "attempt": 1, "max_attempts": 3, "said": {"n": 1}, "finished_at": ENDED_AT, "heartbeat_at": ENDED_AT,
             "ended_by": "runner"}  # fmt: skip
    return Row(**{**given, **columns})


def call(what: str, **members: Any) -> Call:
    answers = {
        "claim": {"id": "a"},
        "heartbeat": {"desired": "run"},
        "result": {"status": "done"},
    }
    given = {"what": what, "claim_id": "c", "row_id": "" if what == "claim" else "a", "body": {}, "status": 200,
             "answer": answers[what], "content_type": JSON}  # fmt: skip
    return Call(**{**given, **members})


def events(
    *statuses: str, row: str = "a", claim_id: str = "c", table: str = "agent_jobs", first: int = 1
) -> list[Event]:
    return [
        Event(table, first + at, row, "ci", status, None if status in ("queued", "pending") else claim_id)
        for at, status in enumerate(statuses)
    ]


def sound() -> History:
    return History(
        calls=[call("claim", status=201), call("claim", told=False), call("heartbeat"),
               call("result", body={"results": {"n": 1}})],
        enqueued=["a"],
        rows=[job()],
        events=events("queued", "running", "done"),
    )  # fmt: skip


def found(history: History) -> set[str]:
    return {violation.split()[0] for violation in history.violations()}


def test_a_sound_history_has_nothing_to_say() -> None:
    assert sound().violations() == []


@pytest.mark.parametrize("status", [500, 502, 403])
def test_an_answer_that_no_runner_may_get_is_named(status: int) -> None:
    history = sound()
    history.calls.append(call("heartbeat", status=status))
    assert found(history) == {"I0"}


def test_a_page_made_for_people_is_named() -> None:
    history = sound()
    history.calls.append(call("heartbeat", status=503, content_type="text/html"))
    assert found(history) == {"I0"}


def test_acknowledged_work_that_is_gone_or_never_ends_is_named() -> None:
    gone, open_ = sound(), sound()
    gone.enqueued.append("b")
    open_.rows.append(job("b", status="queued", claim_id=None, finished_at=None, ended_by=None))
    open_.events += events("queued", row="b", first=10)
    assert found(gone) == found(open_) == {"I1"}


def test_a_second_end_is_named() -> None:
    history = sound()
    history.events = events("queued", "running", "failed", "done")
    assert found(history) == {"I2"}


def test_a_write_under_another_claim_is_named_also_when_nobody_saw_its_answer() -> None:
    for what in ("heartbeat", "result"):
        history = sound()
        history.calls.append(call(what, claim_id="old", told=False))
        assert found(history) == {"I3"}


def test_a_heartbeat_after_the_end_is_named() -> None:
    history = sound()
    history.rows = [job(heartbeat_at=ENDED_AT + timedelta(seconds=1))]
    assert found(history) == {"I3"}


def test_a_lease_that_went_to_two_claims_is_named() -> None:
    history = sound()
    history.events = [*events("queued", "running", claim_id="old"), *events("running", "done", first=3)]
    assert found(history) == {"I4"}


def test_two_active_tasks_of_an_agent_are_named() -> None:
    history = sound()
    history.rows = [job(name, table="agent_tasks", claim_id=name, status="succeeded") for name in "ab"]
    history.calls, history.enqueued = [], []
    apart = [*events("pending", "claimed", row="a", claim_id="a", table="agent_tasks"),
             *events("succeeded", row="a", claim_id="a", table="agent_tasks", first=5)]  # fmt: skip
    other = events("pending", "claimed", "succeeded", row="b", claim_id="b", table="agent_tasks", first=10)
    history.events = [*apart, *other]
    assert found(history) == set()
    history.events = [*apart[:2], *other, apart[2]]
    assert found(history) == {"I4"}


@pytest.mark.parametrize("stored", [{"status": "failed"}, {"said": {"n": 2}}])
def test_an_acknowledged_result_that_is_not_the_stored_one_is_named(stored: dict[str, Any]) -> None:
    history = sound()
    history.rows = [replace(history.rows[0], **stored)]
    history.events = events("queued", "running", history.rows[0].status)
    assert found(history) == {"I5"}


def test_a_final_cancel_that_did_not_stay_is_named() -> None:
    history = sound()
    history.cancelled.append("a")
    assert found(history) == {"I6"}


def test_a_claim_id_with_two_rows_is_named_also_when_one_reply_was_lost() -> None:
    history = sound()
    history.calls.append(call("claim", answer={"id": "b"}, told=False))
    assert found(history) == {"I7"}


@pytest.mark.parametrize("second", [{"attempt": 3}, {"attempt": 1}, {"attempt": 2, "max_attempts": 1}])
def test_attempts_with_a_gap_a_repetition_or_beyond_the_budget_are_named(second: dict[str, Any]) -> None:
    history = sound()
    history.rows = [replace(history.rows[0], max_attempts=second.get("max_attempts", 3))]
    history.rows.append(job("b", root_id="a", claim_id="d", **second))
    history.events += events("queued", "running", "done", row="b", claim_id="d", first=10)
    assert found(history) == {"I8"}


def test_a_change_that_the_history_does_not_tell_is_named() -> None:
    silent, headless = sound(), sound()
    silent.events.pop()
    headless.events.pop(0)
    assert found(silent) == found(headless) == {"I9"}
