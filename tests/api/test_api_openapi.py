"""The committed OpenAPI document is the one of this code, and says enough to be judged by."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from django.core.management import call_command
from django.urls import get_resolver

from jobs.api.components import COMPONENTS
from tests.api.runner_client import document
from tests.api.test_api_foreign_rows import endpoints

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"


def test_the_committed_document_is_the_one_of_this_code(tmp_path: Path) -> None:
    fresh = tmp_path / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(fresh))
    assert COMMITTED.read_text() == fresh.read_text(), "run `make openapi` and commit docs/openapi.yaml"


def test_every_endpoint_and_method_is_described() -> None:
    described = {
        (path.removeprefix("/api/v1/").replace("{row_id}", "{id}").replace("{job_id}", "{id}"), method.upper())
        for path, methods in document()["paths"].items()
        for method in methods
    }
    known = {(address, method) for address, methods in endpoints(get_resolver().url_patterns) for method in methods}
    assert described == known


def test_every_call_needs_the_bearer_and_names_its_common_answers() -> None:
    for path, methods in document()["paths"].items():
        for method, described in methods.items():
            # Whoever trades a code or a token for a bearer has none yet.
            is_stranger = path.endswith(("/enrol", "/token/github"))
            assert described.get("security") == (None if is_stranger else [{"agent": []}]), path
            assert {"400", "401", "405", "500", "503"} <= set(described["responses"]), (path, method)


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_is_a_valid_schema_that_refuses_something(name: str) -> None:
    whole = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": COMPONENTS}}
    jsonschema_rs.meta.validate(COMPONENTS[name])
    assert not jsonschema_rs.Draft202012Validator(whole).is_valid([])


def test_all_references_lead_somewhere() -> None:
    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*(references(value) for value in part.values()))
        return set().union(*(references(value) for value in part)) if isinstance(part, list) else set()

    committed = yaml.safe_load(COMMITTED.read_text())
    known = {f"#/components/schemas/{name}" for name in committed["components"]["schemas"]}
    assert references(committed) <= known
    assert known == {f"#/components/schemas/{name}" for name in COMPONENTS}
