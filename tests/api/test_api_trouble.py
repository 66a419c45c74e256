"""Trouble of the server's own: a database that cannot answer, and faults that nobody foresaw."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import Client

from jobs.api import problem, unrouted
from jobs.engine import errors as engine
from jobs.services import errors as services
from jobs.services import execution
from tests.api.runner_client import JOBS, Queue, Runner

TROUBLE: dict[str, type[psycopg.Error]] = {
    "statement timeout": psycopg.errors.QueryCanceled,
    "lock timeout": psycopg.errors.LockNotAvailable,
    "disk full": psycopg.errors.DiskFull,
    "out of memory": psycopg.errors.OutOfMemory,
    "too many connections": psycopg.errors.TooManyConnections,
    "shutdown": psycopg.errors.AdminShutdown,
    "starting up": psycopg.errors.CannotConnectNow,
    "deadlock": psycopg.errors.DeadlockDetected,
    "serialisation": psycopg.errors.SerializationFailure,
    "standby": psycopg.errors.ReadOnlySqlTransaction,
    "idle in transaction": psycopg.errors.IdleInTransactionSessionTimeout,
    "damaged index": psycopg.errors.IndexCorrupted,
    "connection lost": psycopg.OperationalError,
    "connection closed": psycopg.InterfaceError,
}


def raising(error: Exception) -> Callable[..., Any]:
    def execute(*args: Any) -> Any:
        with connection.wrap_database_errors:
            raise error

    return execute


@pytest.mark.parametrize("error", TROUBLE.values(), ids=TROUBLE.keys())
def test_database_trouble_is_unavailable_and_says_when_to_ask_again(runner: Runner, error: type[psycopg.Error]) -> None:
    with connection.execute_wrapper(raising(error("secret detail"))):
        answer = runner.send("GET", "agents/me")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "secret" not in answer.content.decode()


def test_every_call_survives_a_database_that_cannot_answer(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    with connection.execute_wrapper(raising(psycopg.OperationalError("gone"))):
        for answer in (held.repeat_claim(), held.beat(), held.finish()):
            assert answer.status_code == 503
    assert held.finish().status_code == 200


def test_a_cancelled_statement_of_the_real_server_is_unavailable(runner: Runner) -> None:
    def slow(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        return execute("SELECT 1 / 1 FROM pg_sleep(60)", None, many, context)

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 1")
    try:
        with connection.execute_wrapper(slow):
            answer = runner.send("GET", "agents/me")
    finally:
        connection.needs_rollback = False
        connection.connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute("RESET statement_timeout")
    assert answer.status_code == 503


def test_an_unforeseen_fault_is_logged_and_tells_nothing(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError(f"secret of {runner.bearer}")

    monkeypatch.setattr(execution, "standing", broken)
    answer = runner.send("GET", "agents/me")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.content.decode()
    logged = [record for record in caplog.records if record.name == "jobs.api.problem"]
    assert [record.exc_info is not None for record in logged] == [True]


def test_a_fault_outside_of_any_endpoint_is_a_problem_below_api_and_a_page_elsewhere(rf: Any) -> None:
    assert unrouted.server_error(rf.get("/api/v1/x"))["Content-Type"] == "application/problem+json"
    assert unrouted.server_error(rf.get("/admin/"))["Content-Type"].startswith("text/html")
    assert unrouted.bad_request(rf.get("/admin/"), ValueError())["Content-Type"].startswith("text/html")


def subclasses(kind: type[Exception]) -> set[type[Exception]]:
    return {kind} | {deeper for below in kind.__subclasses__() for deeper in subclasses(below)}


# What only people's doors can raise.
OF_PEOPLE = {
    services.Refusal, services.Duplicate, services.AlreadyEnded, services.AlreadyRetried, services.AlreadyHeld,
    services.NotHeld, services.NotFound, services.RunActive, engine.EngineRefusal, engine.KeyHeld,
}  # fmt: skip


def test_every_refusal_has_its_answer() -> None:
    refusals = {
        kind
        for kind in subclasses(services.Refusal) | subclasses(engine.EngineRefusal)
        if kind.__module__ in (services.__name__, engine.__name__)
    }
    assert refusals - OF_PEOPLE == set(problem.ANSWERS) & refusals


@pytest.mark.parametrize("refusal", [engine.Ended(), engine.ResultMismatch(), engine.LeaseLost(), engine.AgentBusy()])
def test_a_refusal_without_its_row_is_answered_too(refusal: engine.EngineRefusal) -> None:
    body = json.loads(problem.response(problem.problem_of(refusal)).content)
    assert body["code"] in ("ended", "result_mismatch", "lease_lost", "agent_busy")


def test_a_problem_is_the_same_in_every_language(runner: Runner) -> None:
    for path in ("jobs/claim", "nowhere"):
        german = runner.send("DELETE", path, HTTP_ACCEPT_LANGUAGE="de")
        assert german.content == runner.send("DELETE", path, HTTP_ACCEPT_LANGUAGE="en").content


@pytest.mark.django_db
def test_liveness_needs_no_database_and_readiness_does() -> None:
    client = Client()
    with connection.execute_wrapper(raising(psycopg.OperationalError("gone"))):
        assert (client.get("/healthz").status_code, client.get("/healthz").content) == (200, b"ok")
        assert client.get("/readyz").status_code == 503
    assert client.get("/readyz").status_code == 200


def test_pool_exhaustion_is_database_trouble() -> None:
    with pytest.raises(OperationalError) as raised:
        raising(psycopg.OperationalError("couldn't get a connection after 30 sec"))()
    assert problem.problem_of(raised.value).status == 503


def test_one_call_costs_few_statements(runner: Runner, django_assert_max_num_queries: Any) -> None:
    held = JOBS.held(runner)
    with django_assert_max_num_queries(2):
        held.beat()
    with django_assert_max_num_queries(6):  # two are a savepoint inside the test's transaction
        held.repeat_claim()
