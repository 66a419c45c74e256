"""A claim hands out only what its runner can do; whatever a SQL client wrote as its requirement, nothing breaks."""

import json
from typing import Any

import pytest
from django.db import connection

from jobs.models import Agent
from jobs.services.capabilities import required
from tests.engine.queues import JOBS, TASKS
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db
ABLE = ["backup.hooks", "restore.verify.content"]


@pytest.fixture
def agent() -> Agent:
    return AgentFactory()


def test_a_task_goes_to_a_runner_that_can_all_it_requires(agent: Agent) -> None:
    task = TASKS.make(agent, task_payload={"requires": ["restore.verify.content", "backup.hooks", "backup.hooks"]})
    for able in ([], ["backup.hooks"], ["backup"], ["*"]):
        assert TASKS.claim(agent, capabilities=able) is None
        assert TASKS.claim(agent, row_id=task.pk, capabilities=able) is None
    leasing = TASKS.claim(agent, capabilities=[*ABLE, "more"])
    assert leasing is not None
    assert leasing.row.pk == task.pk


def test_what_cannot_be_done_hides_nothing_behind_it(agent: Agent) -> None:
    for _ in range(40):
        TASKS.make(agent, task_payload={"requires": ["later.version"]}, priority=5)
    free = TASKS.make(agent)
    leasing = TASKS.claim(agent, capabilities=ABLE)
    assert leasing is not None
    assert leasing.row.pk == free.pk


# Whatever is no list of texts: nobody could report it, so its runner gets it and says what is wrong.
FOR_ALL: list[Any] = [
    {}, {"requires": []}, {"requires": None}, {"requires": "backup.hooks"}, {"requires": 7}, {"requires": True},
    {"requires": {"backup.hooks": True}}, {"requires": [7]}, {"requires": ["x", None]}, {"requires": [["x"]]},
    {"requires": [{"a": 1e300}]}, [], ["requires"], "requires", 7, None, [{"requires": ["x"]}],
]  # fmt: skip


@pytest.mark.parametrize("payload", FOR_ALL, ids=json.dumps)
def test_a_payload_without_a_readable_requirement_is_for_all(payload: Any, agent: Agent) -> None:
    task = TASKS.make(agent)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agent_tasks SET task_payload = %s::jsonb WHERE id = %s", [json.dumps(payload), task.pk])
    assert required(payload) == []
    leasing = TASKS.claim(agent)
    assert leasing is not None
    assert leasing.row.pk == task.pk


@pytest.mark.parametrize(
    "name", ["", "*", "%", "%s", "\\", '"', "'", "{}", "a,b", "$[*]", "é\N{PERSONAL COMPUTER}", "x" * 10_000]
)
def test_a_requirement_is_a_text_like_any_other(name: str, agent: Agent) -> None:
    task = TASKS.make(agent, task_payload={"requires": [name]})
    assert required(task.task_payload) == [name]
    assert TASKS.claim(agent, capabilities=["other"]) is None
    assert TASKS.claim(agent, capabilities=[name]) is not None


def test_a_repeated_claim_is_answered_whatever_its_runner_can_do_by_now(agent: Agent) -> None:
    TASKS.make(agent, task_payload={"requires": ABLE})
    leasing = TASKS.claim(agent, capabilities=ABLE)
    assert leasing is not None
    again = TASKS.claim(agent, leasing.row.claim_id)
    assert again is not None
    assert not again.is_new


def test_jobs_require_nothing(agent: Agent) -> None:
    JOBS.make(agent, spec={"requires": ["x"]})
    assert JOBS.claim(agent) is not None
