import pytest

from tests.engine.queues import JOBS, TASKS, Queue


@pytest.fixture(params=[JOBS, TASKS], ids=["agent_jobs", "agent_tasks"])
def queue(request: pytest.FixtureRequest) -> Queue:
    """Each test runs once per leased table."""
    return request.param
