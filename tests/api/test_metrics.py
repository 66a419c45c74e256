"""`/metrics`: who may read it, and that its numbers are the database's."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from jobs.models import AgentJob, MaintenanceDuty, Uptime
from tests.engine.queues import JOBS, TASKS
from tests.factories import AgentFactory

TOKEN = "a-token-of-the-tests-1234"


@pytest.fixture(autouse=True)
def _token(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN


def scrape(client: Client, bearer: str = f"Bearer {TOKEN}", method: str = "GET") -> Any:
    return client.generic(method, "/metrics", headers={"Authorization": bearer})


def numbers(client: Client) -> dict[str, float]:
    """Each sample by its name and the values of its labels, in the order of their names."""
    answer = scrape(client)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=")
    return {
        sample.name + json.dumps(list(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize(
    "bearer", ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", "Bearer \u00e9", "Bearer x"]
)
def test_without_the_token_nothing_is_told(bearer: str, client: Client) -> None:
    answer = scrape(client, bearer)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert b"agentstore" not in answer.content


def test_where_no_token_is_set_there_is_no_page_and_no_bearer_opens_one(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    for bearer in ("", "Bearer ", "Bearer"):
        assert scrape(client, bearer).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_only_read(method: str) -> None:
    answer = scrape(Client(enforce_csrf_checks=True), method=method)
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")


def test_while_the_database_is_away_it_says_when_to_come_back(client: Client, db: None) -> None:
    def away(*_: Any) -> Any:
        raise OperationalError("secret detail of the connection")

    with connection.execute_wrapper(away):
        answer = scrape(client)
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert b"secret" not in answer.content


def test_its_numbers_are_those_of_the_database(client: Client, db: None) -> None:
    agent = AgentFactory(presence="resident", last_seen_at=Now())
    AgentFactory(presence="resident")
    JOBS.make(agent, queued_at=Now() - timedelta(seconds=500), not_before=Now() + timedelta(hours=1))
    claimable = JOBS.make(agent, queued_at=Now() - timedelta(seconds=100))
    JOBS.hold(agent)
    TASKS.hold(agent)
    MaintenanceDuty.objects.create(name="reap", failures=2, every_seconds=5, last_seconds=0.25)
    Uptime.objects.create(fault="refused")

    told = numbers(client)

    assert told['agentstore_rows["queued", "agent_jobs"]'] == 2
    assert told['agentstore_rows["running", "agent_jobs"]'] == 1
    assert told['agentstore_rows["claimed", "agent_tasks"]'] == 1
    assert told['agentstore_rows["pending", "agent_tasks"]'] == 0
    oldest = 'agentstore_oldest_waiting_timestamp_seconds["{}"]'
    assert told[oldest.format("agent_jobs")] == pytest.approx(claimable.queued_at.timestamp())
    assert oldest.format("agent_tasks") not in told
    assert told["agentstore_silent_agents[]"] == 1
    assert told["agentstore_agents_heard[]"] == 0
    assert told['agentstore_duty_failures["reap"]'] == 2
    assert told['agentstore_duty_last_duration_seconds["reap"]'] == 0.25
    assert told['agentstore_duty_interval_seconds["reap"]'] == 5
    assert 'agentstore_duty_last_success_timestamp_seconds["reap"]' not in told


def test_it_asks_as_many_questions_whatever_there_is_and_bears_any_text_of_a_client(client: Client, db: None) -> None:
    with CaptureQueriesContext(connection) as asked:
        numbers(client)
    assert len(asked) == 9
    agent = AgentFactory()
    AgentJob.objects.bulk_create(AgentJob(agent=agent, kind=f'"}}\n{n}', labels=[n]) for n in range(50))
    with CaptureQueriesContext(connection) as again:
        assert numbers(client)['agentstore_rows["queued", "agent_jobs"]'] == 50
    assert len(again) == 9
