"""What runners say they can do: what they get, and what the admin says of work that nobody can do."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Agent
from tests.api.runner_client import JOBS, TASKS, Runner
from tests.api.wire import listening
from tests.factories import AgentFactory

NEEDED = {"requires": ["restore.overwrite.if_changed"]}


def claim(runner: Runner, **members: Any) -> int:
    return runner.claim(TASKS, **members).status_code


def test_only_a_runner_that_reports_what_a_task_requires_gets_it(runner: Runner) -> None:
    TASKS.make(runner.agent, task_payload=NEEDED)
    assert claim(runner) == 204
    assert claim(runner, capabilities=[]) == 204
    assert claim(runner, capabilities=["backup.hooks"]) == 204
    assert claim(runner, capabilities=["backup.hooks", *NEEDED["requires"]]) == 201


def test_what_was_said_last_is_kept_and_costs_no_statement_while_it_stays_the_same(runner: Runner) -> None:
    said = {"capabilities": ["b", "a", "b"], "engine": "restic 0.17.3"}
    assert claim(runner, **said) == 204
    agent = Agent.objects.get(pk=runner.agent.pk)
    assert (agent.capabilities, agent.engine) == (["a", "b"], "restic 0.17.3")
    with listening() as sent:
        assert claim(runner, **said) == 204
    assert not [text for text in sent.texts("Query") + sent.texts("Parse") if 'UPDATE "agents"' in text]
    runner.claim(JOBS)
    assert Agent.objects.get(pk=runner.agent.pk).capabilities == ["a", "b"]
    claim(runner)
    assert Agent.objects.get(pk=runner.agent.pk).capabilities == []


@pytest.mark.parametrize(("member", "value"), [("engine", 7), ("engine", "x" * 201), ("capabilities", ["\0"])])
def test_what_cannot_be_said_is_named(runner: Runner, member: str, value: Any) -> None:
    answer = runner.claim(TASKS, **{member: value})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"].startswith(f"/{member}")


def test_the_admin_says_why_nobody_gets_a_task(runner: Runner, admin_client: Client) -> None:
    task = TASKS.make(runner.agent, task_payload=NEEDED)
    pages = [
        reverse("admin:jobs_agenttask_change", args=[task.pk]),
        reverse("admin:jobs_backupjobrun_change", args=[task.job_run_id]),
    ]

    def said(words: str) -> bool:
        return all(words in admin_client.get(page).content.decode() for page in pages)

    assert said("none has said so yet")
    assert claim(runner, capabilities=["backup.hooks"]) == 204
    assert said("No agent can restore.overwrite.if_changed")
    AgentFactory(capabilities=["restore.overwrite.if_changed"], state="disabled", state_note="gone")
    assert said("No agent can")
    AgentFactory(capabilities=["restore.overwrite.if_changed", "backup.hooks"])
    assert said("though others can")
    assert claim(runner, capabilities=NEEDED["requires"]) == 201
    assert not any("overwrite.if_changed:" in admin_client.get(page).content.decode() for page in pages)


@pytest.mark.parametrize("payload", [{"requires": "x"}, {"requires": [7]}, {"requires": {}}, {}, [], 7])
def test_pages_open_whatever_a_sql_client_requires(payload: Any, runner: Runner, admin_client: Client) -> None:
    task = TASKS.make(runner.agent, task_payload=payload)
    for page in (
        reverse("admin:jobs_agenttask_change", args=[task.pk]),
        reverse("admin:jobs_backupjobrun_change", args=[task.job_run_id]),
    ):
        assert admin_client.get(page).status_code == 200


def test_an_agents_page_says_what_it_can_and_with_which_restic(runner: Runner, admin_client: Client) -> None:
    url = reverse("admin:jobs_agent_change", args=[runner.agent.pk])
    assert "by what its runner said last" not in admin_client.get(url).content.decode()
    claim(runner, capabilities=["backup.hooks"], engine="restic 0.17.3")
    page = admin_client.get(url).content.decode()
    assert "restic 0.17.3" in page
    assert "<code>backup.hooks</code>" in page
    claim(runner)
    assert "nothing beyond plain backups" in admin_client.get(url).content.decode()
