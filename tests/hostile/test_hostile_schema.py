"""Requests that schemathesis draws from the committed OpenAPI document, against the application in this process."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from agentstore.wsgi import application
from tests.api.runner_client import JOBS, TASKS, Runner

SEED = 20260701
COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
SCHEMA = schemathesis.openapi.from_path(COMMITTED)
SCHEMA.app = application
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
# Which request is right is judged member by member elsewhere: rules between members, the digest of a body and the
# state of a row are in no schema, and a bearer is put in place of whatever was drawn.
LEFT_TO_OTHERS = [negative_data_rejection, positive_data_acceptance]
MODES = list(schemathesis.GenerationMode)


def hammer(label: str, runner: Runner, examples: int) -> None:
    """Draw `examples` requests of one operation, of both modes, about a row that the runner holds or about any."""
    operation = OPERATIONS[label]
    held = (JOBS if "/jobs/" in label else TASKS).held(runner)
    print(f"seed {SEED}, {examples} examples of {label}")
    for mode in MODES:

        @seed(SEED)
        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate], print_blob=True,
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode), ours=st.booleans())
        def one(case: Any, ours: bool) -> None:
            if ours and case.path_parameters:
                case.path_parameters = dict.fromkeys(case.path_parameters, str(held.row.pk))
            case.call_and_validate(headers={"Authorization": f"Bearer {runner.bearer}"}, excluded_checks=LEFT_TO_OTHERS)

        one()


@pytest.fixture
def runner(transactional_db: None, store: Any) -> Runner:
    """A runner whose files go to a folder of the test; each request ends its own transaction, as in production."""
    return Runner()


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_request_drawn_from_the_document_gets_an_answer_of_the_document(label: str, runner: Runner) -> None:
    hammer(label, runner, 8)


@pytest.mark.soak
@pytest.mark.parametrize("label", OPERATIONS)
def test_many_requests_drawn_from_the_document_get_answers_of_the_document(label: str, runner: Runner) -> None:
    hammer(label, runner, 1_000)
