"""Another agent's row is 404 on every endpoint of the address map; a new endpoint fails until it is placed."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tests.api.runner_client import JOBS, TASKS, Held, Runner

PREFIX = "api/v1/"
UNKNOWN = "6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f"

# address → method → body of a call that its owner may make, headers included
OWNED: dict[str, dict[str, Any]] = {
    "jobs/{id}/heartbeat": {"POST": {}},
    "jobs/{id}/result": {"PUT": {"status": "done"}},
    "jobs/{id}/artifacts": {"GET": None, "PUT": b"bytes"},
    "jobs/{id}/results": {"GET": None},
    "jobs/{id}/artifacts/uploads": {"POST": {"name": "a.bin", "size_bytes": 2**24, "sha256": "0" * 64}},
    "jobs/{id}/artifacts/uploads/complete": {"POST": {"upload": "x"}},
    "tasks/{id}/start": {"POST": {}},
    "tasks/{id}/heartbeat": {"POST": {}},
    "tasks/{id}/result": {"PUT": {"status": "succeeded", "backup_id_in_repository": "c4d9"}},
}
# These name no row in their address; other tests say whose rows they see.
OF_THE_CALLER = {
    "jobs/claim": {"POST"}, "tasks/claim": {"POST"}, "agents/me": {"GET"}, "enrol": {"POST"}, "token/github": {"POST"},
}  # fmt: skip


def endpoints(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every address below /api/v1/ with the methods that its view knows."""
    for pattern in patterns:
        address = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from endpoints(pattern.url_patterns, address)
        elif address.startswith(PREFIX):
            view = pattern.callback.view_class  # type: ignore[attr-defined]  # each is a class
            methods = {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)}
            yield re.sub(r"<\w+:\w+>", "{id}", address.removeprefix(PREFIX)), methods


def test_every_endpoint_is_placed() -> None:
    placed = {address: set(methods) for address, methods in OWNED.items()} | OF_THE_CALLER
    assert dict(endpoints(get_resolver().url_patterns)) == placed


def call(runner: Runner, address: str, method: str, held: Held, row_id: str) -> Any:
    members, more, query = OWNED[address][method], {}, ""
    if isinstance(members, dict):
        members = {"claim_id": held.claim_id} | members
    elif members is not None:
        digest = base64.b64encode(hashlib.sha256(members).digest()).decode()
        more = {"HTTP_AGENTSTORE_CLAIM_ID": held.claim_id, "HTTP_CONTENT_DIGEST": f"sha-256=:{digest}:"}
        query = "?name=log.txt"
    return runner.send(method, address.replace("{id}", row_id) + query, members, **more)


MATRIX = [(address, method) for address, methods in OWNED.items() for method in methods]


@pytest.mark.parametrize(("address", "method"), MATRIX)
def test_another_agents_row_is_not_found_and_does_not_change(
    runner: Runner, stranger: Runner, address: str, method: str
) -> None:
    held = (JOBS if address.startswith("jobs/") else TASKS).held(runner)
    rows = held.queue.model.objects.filter(pk=held.row.pk)
    before = rows.values().get()
    refused = call(stranger, address, method, held, str(held.row.pk))
    unknown = call(stranger, address, method, held, UNKNOWN)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert refused.content == unknown.content  # nothing tells that the row exists
    assert rows.values().get() == before


@pytest.mark.parametrize(("address", "method"), MATRIX)
def test_the_owner_passes_where_the_stranger_is_refused(runner: Runner, address: str, method: str) -> None:
    held = (JOBS if address.startswith("jobs/") else TASKS).held(runner)
    answer = call(runner, address, method, held, str(held.row.pk))
    # A folder takes no direct uploads, and therefore none can be completed.
    passed = {"uploads": (409,), "complete": (400,)}.get(address.rpartition("/")[2], (200, 201))
    assert answer.status_code in passed or answer.json()["code"] == "no_results"


@pytest.mark.parametrize(("address", "method"), MATRIX)
@pytest.mark.parametrize("trick", ["head", "slash", "override", "identity"])
def test_no_trick_reaches_another_agents_row(
    runner: Runner, stranger: Runner, address: str, method: str, trick: str
) -> None:
    held = (JOBS if address.startswith("jobs/") else TASKS).held(runner)
    rows = held.queue.model.objects.filter(pk=held.row.pk)
    before = rows.values().get()
    path = address.replace("{id}", str(held.row.pk))
    body = {"claim_id": held.claim_id, "status": held.queue.good, "principal_key": runner.agent.principal_key}
    body |= {"agent_id": str(runner.agent.pk)}
    match trick:
        case "head":
            answer = stranger.send("HEAD", path)
            assert (answer.status_code, answer.content) in [(404, b""), (405, b"")]
        case "slash":
            assert stranger.send(method, f"{path}/", body).status_code == 404
        case "override":
            answer = stranger.send("GET", f"{path}?_method={method}", None, HTTP_X_HTTP_METHOD_OVERRIDE=method)
            assert answer.status_code in (404, 405)
        case "identity":
            query = f"?principal_key={runner.agent.principal_key}&agent_id={runner.agent.pk}&name=a.txt"
            answer = stranger.send(method, path + query, json.dumps(body).encode(), HTTP_X_AGENT=str(runner.agent.pk))
            assert 400 <= answer.status_code < 500
    assert rows.values().get() == before


@pytest.mark.parametrize("queue", [JOBS, TASKS])
def test_a_claim_by_id_of_another_agents_row_finds_nothing(runner: Runner, stranger: Runner, queue: Any) -> None:
    row = queue.make(runner.agent)
    asked = {queue.row_id: str(row.pk), "principal_key": runner.agent.principal_key, "agent_id": str(runner.agent.pk)}
    assert stranger.claim(queue, **asked).status_code == 204
    assert runner.claim(queue, **asked).status_code == 201


@pytest.mark.parametrize(("address", "method"), MATRIX)
def test_a_row_id_without_a_bearer_opens_nothing(runner: Runner, address: str, method: str) -> None:
    held = (JOBS if address.startswith("jobs/") else TASKS).held(runner)
    path = address.replace("{id}", str(held.row.pk))
    answer = runner.send(method, path, {"claim_id": held.claim_id}, HTTP_AUTHORIZATION="")
    assert answer.status_code == 401
