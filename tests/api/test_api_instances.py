"""Two processes that alternate under one name are a copied host; a restart, a fleet and a slow end are none."""

import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse

from jobs.metrics import exposition
from jobs.models import Agent, AgentInstance, Event
from jobs.models.agent_instances import is_cloned
from jobs.services.notices.conditions import standing_conditions
from tests.api.runner_client import JOBS, TASKS, Runner
from tests.factories import AgentFactory


@pytest.fixture
def runner(db: None) -> Runner:
    return Runner(AgentFactory(principal_key="fw", presence="resident"))


class Process:
    """A runner process that calls now and then; `later` lets the database's times grow older instead of waiting."""

    def __init__(self, runner: Runner, name: str = "fw-1") -> None:
        self.runner, self.said = runner, f"{uuid.uuid4()} {quote(name, safe='')}"

    def call(self) -> None:
        headers = {"HTTP_AGENTSTORE_INSTANCE": self.said}
        assert self.runner.send("POST", "jobs/claim", self.runner.claim_body(JOBS), **headers).status_code == 204


def later(minutes: float) -> None:
    past = timedelta(minutes=minutes)
    Agent.objects.update(last_seen_at=F("last_seen_at") - past)
    AgentInstance.objects.update(first_seen_at=F("first_seen_at") - past, last_seen_at=F("last_seen_at") - past)


def alternate(*processes: Process, minutes: int) -> None:
    for minute in range(minutes):
        processes[minute % len(processes)].call()
        later(1.1)


def cloned() -> list[str]:
    return list(Agent.objects.filter(is_cloned()).values_list("principal_key", flat=True))


def test_two_processes_of_one_name_that_alternate_raise_the_alarm_until_one_has_ended(runner: Runner) -> None:
    first, copy = Process(runner), Process(runner)
    alternate(first, copy, minutes=8)
    assert cloned() == ["fw"]
    assert "agentstore_cloned_agents 1.0" in exposition().decode()
    (condition,) = standing_conditions([Event.AGENT_CLONED])
    assert (condition.key, "Two runners of one name" in condition.title) == ("fw", True)
    alternate(copy, minutes=10)
    assert cloned() == []


def test_a_heartbeat_is_a_sign_of_a_process_too(runner: Runner) -> None:
    held, process = TASKS.held(runner), Process(runner)
    later(2)
    assert held.runner.send("POST", f"{held.path}/heartbeat", {"claim_id": held.claim_id},
                            HTTP_AGENTSTORE_INSTANCE=process.said).status_code == 200  # fmt: skip
    assert AgentInstance.objects.get().name == "fw-1"


@pytest.mark.parametrize("restarts", [1, 5])
def test_a_restart_never_raises_it(runner: Runner, restarts: int) -> None:
    for _ in range(restarts + 1):
        alternate(Process(runner), minutes=7)
        assert cloned() == []


def test_a_process_that_drains_while_its_successor_begins_does_not_raise_it(runner: Runner) -> None:
    old, new = Process(runner), Process(runner)
    alternate(old, minutes=10)
    alternate(old, new, minutes=4)
    assert cloned() == []
    alternate(new, minutes=10)
    assert cloned() == []


def test_processes_of_different_names_are_a_fleet(runner: Runner) -> None:
    alternate(Process(runner, "fw-1"), Process(runner, "fw-2"), Process(runner, "fw-3"), minutes=12)
    assert AgentInstance.objects.count() == 3
    assert cloned() == []


@pytest.mark.parametrize("changed", [{"presence": "on-demand"}, {"state": "disabled", "state_note": "gone"}])
def test_agents_that_are_started_per_job_and_retired_ones_raise_none(runner: Runner, changed: dict[str, Any]) -> None:
    alternate(Process(runner), Process(runner), minutes=8)
    Agent.objects.update(**changed)
    assert cloned() == []


def test_a_machine_that_slept_while_its_copy_worked_is_no_copy_at_once(runner: Runner) -> None:
    slept, copy = Process(runner), Process(runner)
    alternate(slept, minutes=6)
    alternate(copy, minutes=14)
    alternate(slept, minutes=4)
    assert cloned() == []


@pytest.mark.parametrize(
    "said",
    ["x", "", "8c1f6a52-0c3f-4f0e-9d55-6a0d1f5f6b7a", "8c1f6a52-0c3f-4f0e-9d55-6a0d1f5f6b7a a b", "x" * 9000,
     "8c1f6a52-0c3f-4f0e-9d55-6a0d1f5f6b7a %00", "8c1f6a52-0c3f-4f0e-9d55-6a0d1f5f6b7a " + "x" * 2001, "é" * 40],
)  # fmt: skip
def test_what_cannot_be_read_says_nothing_and_stops_no_work(runner: Runner, said: str) -> None:
    answer = runner.send("GET", "agents/me", HTTP_AGENTSTORE_INSTANCE=said)
    assert (answer.status_code, AgentInstance.objects.exists()) == (200, False)


def test_a_name_of_any_letters_is_kept_and_what_ended_an_hour_ago_is_not(runner: Runner) -> None:
    Process(runner, "Büro / 1 é\N{PERSONAL COMPUTER}").call()
    assert AgentInstance.objects.get().name == "Büro / 1 é\N{PERSONAL COMPUTER}"
    later(61)
    Process(runner).call()
    assert AgentInstance.objects.get().name == "fw-1"


def test_the_admin_says_so_where_people_look(runner: Runner, admin_client: Client) -> None:
    page = reverse("admin:jobs_agent_change", args=[runner.agent.pk])
    Process(runner, "lonely").call()
    quiet = admin_client.get(page).content.decode()
    assert ("lonely" in quiet, "Two runner processes" in quiet) == (True, False)
    later(2)
    alternate(Process(runner, "web-7"), Process(runner, "web-7"), minutes=8)
    assert "Two runner processes" in admin_client.get(page).content.decode()
    listed = admin_client.get(reverse("admin:jobs_agent_changelist") + "?attention=cloned").content.decode()
    assert "cloned" in listed
    tiles = admin_client.get(reverse("admin:index")).context["worries"]
    assert [tile.value for tile in tiles if "attention=cloned" in tile.url] == [1]
