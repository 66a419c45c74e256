"""Guessing bearers is slowed down, by all web processes together; who has a right one notices nothing."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from jobs.models import RefusedBearers
from jobs.services import throttle, token_format
from tests.api.runner_client import JOBS, Runner
from tests.api.wire import listening
from tests.engine.queues import race

LIMIT = 5


@pytest.fixture(autouse=True)
def limit(settings: Settings) -> None:
    settings.REFUSED_BEARERS_PER_MINUTE = LIMIT


def guess(runner: Runner, **environ: Any) -> Any:
    return runner.send("GET", "agents/me", **{"HTTP_AUTHORIZATION": f"Bearer {token_format.mint()}"} | environ)


def test_too_many_refused_bearers_of_one_address_are_told_to_wait(runner: Runner) -> None:
    assert [guess(runner).status_code for _ in range(LIMIT)] == [401] * LIMIT
    for _ in range(2):
        answer = guess(runner)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_refusals")
        assert int(answer["Retry-After"]) == throttle.WINDOW_SECONDS
        assert "WWW-Authenticate" not in answer


def test_a_right_bearer_of_that_address_works_on_and_costs_no_statement_more(runner: Runner) -> None:
    runner.claim(JOBS)
    with listening() as before:
        assert runner.send("GET", "agents/me").status_code == 200
    for _ in range(LIMIT + 3):
        guess(runner)
    with listening() as after:
        assert runner.send("GET", "agents/me").status_code == 200
    assert after.statements == before.statements
    assert not [text for text in after.texts("Query") + after.texts("Parse") if "refused_bearers" in text]


def test_other_addresses_are_judged_by_themselves(runner: Runner, settings: Settings) -> None:
    for _ in range(LIMIT + 1):
        guess(runner, REMOTE_ADDR="192.0.2.1")
    assert guess(runner, REMOTE_ADDR="192.0.2.1").status_code == 429
    assert guess(runner, REMOTE_ADDR="192.0.2.2").status_code == 401
    settings.TRUSTED_PROXIES = 1
    assert guess(runner, REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR="192.0.2.3").status_code == 401


def test_the_addresses_of_one_ipv6_network_count_together(runner: Runner) -> None:
    answers = [guess(runner, REMOTE_ADDR=f"2001:db8::{number:x}").status_code for number in range(LIMIT + 1)]
    assert answers[-1] == 429
    assert guess(runner, REMOTE_ADDR="2001:db8:0:1::1").status_code == 401


def test_after_a_minute_counting_begins_again(runner: Runner) -> None:
    for _ in range(LIMIT + 1):
        guess(runner)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE refused_bearers SET since = now() - interval '61 s'")
    assert [guess(runner).status_code for _ in range(LIMIT + 1)] == [401] * LIMIT + [429]


@pytest.mark.parametrize("authorization", ["Bearer x", "Bearer caf\u00e9", "Basic YTpi", "", "Bearer " + "x" * 9000])
def test_whatever_is_presented_counts(authorization: str, runner: Runner) -> None:
    answers = [guess(runner, HTTP_AUTHORIZATION=authorization).status_code for _ in range(LIMIT + 1)]
    assert answers == [401] * LIMIT + [429]


def test_a_request_without_a_bearer_is_no_guess(runner: Runner) -> None:
    for _ in range(LIMIT + 2):
        assert Client().get("/api/v1/agents/me").status_code == 401
    assert not RefusedBearers.objects.exists()


def test_what_is_no_address_is_counted_and_nothing_of_an_address_is_stored(runner: Runner) -> None:
    for address in ("", "x\x00", "192.0.2.1", "unix:", "::ffff:192.0.2.1", "fe80::1%eth0"):
        assert guess(runner, REMOTE_ADDR=address).status_code == 401
    for row in RefusedBearers.objects.values():
        assert set(row) == {"slot", "since", "refusals"}
        assert 0 <= row["slot"] < throttle.SLOTS


@pytest.mark.django_db(transaction=True)
def test_many_at_once_get_exactly_as_many_tries_as_one(settings: Settings) -> None:
    settings.REFUSED_BEARERS_PER_MINUTE = 20
    runner = Runner()
    good = [lambda: [runner.twin().send("GET", "agents/me").status_code for _ in range(5)]]
    bad = [lambda: [guess(runner.twin()).status_code for _ in range(10)]] * 7
    answers = race(*bad, *good)
    told = sorted(status for answer in answers[:7] for status in answer)
    assert told == [401] * 20 + [429] * 50
    assert answers[7] == [200] * 5


def test_the_table_never_outgrows_its_slots_and_costs_no_wal(db: None) -> None:
    for number in range(300):
        throttle.count_refusal(address=f"10.0.{number // 256}.{number % 256}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT relpersistence FROM pg_class WHERE relname = 'refused_bearers'")
        assert cursor.fetchone() == ("u",)
        cursor.execute("SELECT max(slot) FROM refused_bearers")
        assert cursor.fetchone()[0] < throttle.SLOTS
