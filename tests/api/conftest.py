"""What the API's tests share: a runner, another agent's runner, and both leased tables."""

import pytest

from tests.api.runner_client import JOBS, TASKS, Queue, Runner


@pytest.fixture
def runner(db: None) -> Runner:
    return Runner()


@pytest.fixture
def stranger(db: None) -> Runner:
    return Runner()


@pytest.fixture(params=[JOBS, TASKS], ids=["jobs", "tasks"])
def queue(request: pytest.FixtureRequest) -> Queue:
    chosen: Queue = request.param
    return chosen
