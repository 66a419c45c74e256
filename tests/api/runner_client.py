"""A runner's side of HTTP for tests; it judges every answer by the OpenAPI document before a test sees it."""

import json
import re
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema_rs
from django.http import HttpResponse
from django.test import Client
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator

from jobs.models import Agent, AgentJob, AgentTask
from tests.factories import AgentFactory, AgentJobFactory, AgentTaskFactory, TokenFactory

V1 = "/api/v1/"
PROBLEM = "application/problem+json"


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document of this very code."""
    return SchemaGenerator().get_schema(request=None, public=True)


@cache
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    whole = {**json.loads(schema), "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def template(path: str) -> str | None:
    """The address of a call as the document writes it; None for an address that no call has."""
    try:
        route = resolve(path).route
    except Resolver404:
        return None
    return "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route) if route.startswith("api/v1/") else None


def judge(method: str, path: str, answer: HttpResponse) -> None:
    """Fail unless the document allows this answer to this call."""
    assert "no-store" in answer["Cache-Control"]
    is_refusal = answer.status_code >= 400
    if is_refusal:
        assert answer["Content-Type"] == PROBLEM, (path, answer.status_code)
    if method == "HEAD":
        assert answer.content == b""
        return
    if is_refusal:
        assert json.loads(answer.content)["status"] == answer.status_code
    described = document()["paths"].get(template(path.partition("?")[0]), {}).get(method.lower())
    if described is None:
        return
    allowed = described["responses"]
    assert str(answer.status_code) in allowed, f"{method} {path} may not answer {answer.status_code}"
    if answer.status_code in (204, 503):
        assert int(answer["Retry-After"]) > 0
    if answer.status_code == 204:
        assert answer.content == b""
        return
    schema = allowed[str(answer.status_code)]["content"][answer["Content-Type"]]["schema"]
    if answer["Content-Type"] not in (PROBLEM, "application/json"):
        return
    faults = [str(error) for error in _validator(json.dumps(schema)).iter_errors(json.loads(answer.content))]
    assert not faults, faults


class Runner:
    """One agent's bearer and a program that uses it."""

    def __init__(self, agent: Agent | None = None, *, bearer: str = "") -> None:
        self.agent = agent or AgentFactory()
        self.bearer: str = bearer or TokenFactory(agent=self.agent).bearer  # type: ignore[attr-defined]
        self._http = Client(raise_request_exception=False)

    def twin(self) -> "Runner":
        """Another program with the same bearer."""
        return Runner(self.agent, bearer=self.bearer)

    def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **environ: Any
    ) -> HttpResponse:
        """Send raw bytes, or anything else as JSON, to an address below /api/v1/."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        # Named here, since Django's client leaves it out of a request without a body.
        environ = {"HTTP_AUTHORIZATION": f"Bearer {self.bearer}", "CONTENT_TYPE": content_type} | environ
        answer = self._http.generic(method, V1 + path, raw, content_type=content_type, **environ)
        judge(method, V1 + path, answer)
        return answer

    def claim_body(self, queue: "Queue", **members: Any) -> dict[str, Any]:
        """A claim of everything that the queue's tests enqueue."""
        runner = {"name": "agentstore-runner", "version": "1.0.0"}
        return {"claim_id": str(uuid.uuid4()), queue.kinds: [queue.kind], "runner": runner} | members

    def claim(self, queue: "Queue", **members: Any) -> HttpResponse:
        """Claim the next row of a queue."""
        return self.send("POST", f"{queue.path}/claim", self.claim_body(queue, **members))


@dataclass(frozen=True)
class Queue:
    """One leased table as runners see it."""

    path: str
    kinds: str
    kind: str
    row_id: str
    model: Any
    good: str

    def make(self, agent: Agent, **columns: Any) -> Any:
        """A waiting row of an agent."""
        if self.model is AgentJob:
            return AgentJobFactory(agent=agent, kind=self.kind, **columns)
        return AgentTaskFactory(agent=agent, task_type=self.kind, **columns)

    def held(self, runner: Runner, **columns: Any) -> "Held":
        """A row that the runner has claimed."""
        row = self.make(runner.agent, **columns)
        body = runner.claim_body(self, **{self.row_id: str(row.pk)})
        answer = runner.send("POST", f"{self.path}/claim", body)
        assert answer.status_code == 201, answer.content
        return Held(queue=self, runner=runner, row=row, claim=body)

    def result(self, **members: Any) -> dict[str, Any]:
        """A result that ends a row well."""
        snapshot = {} if self.model is AgentJob else {"backup_id_in_repository": "c4d97248"}
        return {"status": self.good} | snapshot | members


@dataclass(frozen=True)
class Held:
    """A row under a claim."""

    queue: Queue
    runner: Runner
    row: Any
    claim: dict[str, Any]

    @property
    def claim_id(self) -> str:
        return str(self.claim["claim_id"])

    @property
    def path(self) -> str:
        return f"{self.queue.path}/{self.row.pk}"

    def repeat_claim(self, **members: Any) -> HttpResponse:
        return self.runner.send("POST", f"{self.queue.path}/claim", self.claim | members)

    def beat(self, **members: Any) -> HttpResponse:
        return self.runner.send("POST", f"{self.path}/heartbeat", {"claim_id": self.claim_id} | members)

    def start(self, **members: Any) -> HttpResponse:
        return self.runner.send("POST", f"{self.path}/start", {"claim_id": self.claim_id} | members)

    def finish(self, **members: Any) -> HttpResponse:
        body = {"claim_id": self.claim_id} | self.queue.result(**members)
        return self.runner.send("PUT", f"{self.path}/result", body)

    def stored(self) -> Any:
        return self.queue.model.objects.get(pk=self.row.pk)


JOBS = Queue("jobs", "kinds", "echo", "job_id", AgentJob, "done")
TASKS = Queue("tasks", "task_types", "backup", "task_id", AgentTask, "succeeded")
