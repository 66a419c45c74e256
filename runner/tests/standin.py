"""A small server that keeps the protocol's promises in memory, and breaks the network on request.

Rows move as the contract says; `faults` are scripted per call and used up in order. `wire.py` puts it on a socket.
"""

import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

TOKEN = "ags_r_standin0standin0standin0standin0"
CODE = "ags_e_standin0standin0standin0standin0"
# Long enough for a busy machine; a test that needs it all has failed.
PATIENCE_S = 30.0

Reply = tuple[int, dict[str, Any] | None, dict[str, str]]


@dataclass
class Row:
    id: str
    kind: str = "test.echo"
    spec: dict[str, Any] = field(default_factory=dict)
    status: str = "queued"
    claim_id: str | None = None
    claim: Any = None
    attempt: int = 1
    lease_seconds: float = 30.0
    heartbeat_s: float = 0.05
    run_seconds: float = 600.0
    seen_at: float = 0.0
    result: Any = None
    result_bytes: bytes = b""
    verdict: str | None = None
    cancel: dict[str, Any] | None = None
    artifacts: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, Any] = field(default_factory=dict)
    beats: list[Any] = field(default_factory=list)
    reaped: bool = False
    claims: int = 0
    target: dict[str, Any] | None = None
    table: str = "jobs"
    started: int = 0


@dataclass(frozen=True)
class Call:
    name: str
    body: Any
    raw: bytes
    headers: dict[str, str]
    row: str | None


@dataclass(frozen=True)
class Fault:
    """What happens to one call: whether the server acts on it, and what of the answer arrives."""

    call: str
    acts: bool
    how: str
    reply: tuple[int, bytes, dict[str, str]] | None = None
    release: threading.Event | None = None


def refusal(status: int, code: str, **more: Any) -> Reply:
    body = {"type": "about:blank", "title": code, "status": status, "code": code, "detail": f"because {code}", **more}
    return status, body, {"Content-Type": "application/problem+json"}


class StandIn:
    """Rows, faults, and everything that was asked."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.rows: dict[str, Row] = {}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.blocked: Reply | None = None
        self.retry_after = "1"
        self.refuse_results: Callable[[dict[str, Any]], Reply | None] = lambda body: None
        self.refuse_artifacts: Callable[[str], Reply | None] = lambda name: None
        self.refuse_uploads: Callable[[str], Reply | None] = lambda name: None
        self.bucket: dict[str, bytes] = {}
        self.skew = timedelta()
        self.enrolled: str | None = None
        self.url = ""

    # What tests do

    def add(self, kind: str = "test.echo", **more: Any) -> Row:
        row = Row(str(uuid.uuid4()), kind, **more)
        with self.changed:
            self.rows[row.id] = row
        return row

    def add_task(self, task_type: str = "backup", **more: Any) -> Row:
        return self.add(task_type, table="tasks", **more)

    def fail_next(
        self, call: str, *, acts: bool, how: str = "reply", status: int = 503, body: bytes = b"", **h: str
    ) -> None:
        headers = {name.replace("_", "-"): value for name, value in h.items()}
        self.faults.append(Fault(call, acts, how, (status, body, headers)))

    def hang_next(self, call: str, release: threading.Event) -> None:
        self.faults.append(Fault(call, True, "hang", release=release))

    def reap(self, row: Row) -> None:
        with self.changed:
            row.status, row.reaped = "failed", True
            self.changed.notify_all()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition over rows and calls; a test that waits for nothing fails."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), f"never happened; calls: {self.names()}"
            return condition()

    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def called(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.name == name]

    # What the protocol says

    def now(self) -> datetime:
        return datetime.now(UTC) + self.skew

    def stamp(self, seconds: float = 0.0) -> str:
        return (self.now() + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")

    def dispatch(
        self, table: str, name: str, row_id: str | None, body: Any, raw: bytes, headers: dict[str, str], query: Any
    ) -> Reply:
        if name == "bucket":
            return self.put(query["key"][0], raw, headers)
        if name == "enrol":
            return self.enrol(body)
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal(401, "unauthenticated")
        if name == "me":
            return 200, self.me(), {}
        if name == "claim":
            return self.claim(table, body)
        row = self.rows.get(row_id or "")
        if row is None or row.table != table:
            return refusal(404, "not_found")
        claim_id = headers.get("agentstore-claim-id") if name == "artifact" else body.get("claim_id")
        if claim_id != row.claim_id or row.reaped:
            return refusal(409, "lease_lost")
        calls = {
            "start": self.start,
            "heartbeat": self.heartbeat,
            "result": self.result,
            "artifact": self.artifact,
            "begin_upload": self.begin_upload,
            "complete_upload": self.complete_upload,
        }
        return calls[name](row, body, raw, query)

    def enrol(self, body: Any) -> Reply:
        """One use of one code; the id that took it may ask again."""
        if body["code"] != CODE or self.enrolled not in (None, body["enrolment_id"]):
            return refusal(403, "enrolment_refused")
        status = 201 if self.enrolled is None else 200
        self.enrolled = body["enrolment_id"]
        return status, {"principal_key": body["name"], "title": "", "state": "active", "token": TOKEN}, {}

    def me(self) -> dict[str, Any]:
        claims: dict[str, list[dict[str, Any]]] = {"jobs": [], "tasks": []}
        for row in self.rows.values():
            if row.status == "running":
                claims[row.table].append(self.held(row))
        return {
            "principal_key": "agent-1",
            "state": "active",
            "server_time": self.stamp(),
            "claims": claims["jobs"],
            "task_claims": claims["tasks"],
        }

    def held(self, row: Row) -> dict[str, Any]:
        return {
            "id": row.id,
            "kind" if row.table == "jobs" else "task_type": row.kind,
            "claim_id": row.claim_id,
            "status": row.status,
            "attempt": row.attempt,
            "lease_expires_at": self.stamp(row.lease_seconds),
            "cancel_requested": row.cancel is not None,
        }

    def claim(self, table: str, body: Any) -> Reply:
        if self.blocked is not None:
            return self.blocked
        for row in self.rows.values():
            if row.claim_id == body["claim_id"]:
                if row.claim != body:
                    return refusal(409, "claim_mismatch")
                if row.reaped:
                    return refusal(409, "lease_lost")
                if row.status != "running":
                    return refusal(410, "ended")
                return 200, self.envelope(row), {}
        asked = body["kinds" if table == "jobs" else "task_types"]
        busy = table == "tasks" and any(row.table == "tasks" and row.status == "running" for row in self.rows.values())
        if busy:
            status, problem, headers = refusal(409, "agent_busy")
            return status, problem, {**headers, "Retry-After": self.retry_after}
        for row in self.rows.values():
            wanted = row.table == table and row.kind in asked and body.get("job_id", row.id) == row.id
            if row.status == "queued" and wanted:
                row.status, row.claim_id, row.claim, row.seen_at = "running", body["claim_id"], body, time.monotonic()
                row.claims += 1
                return 201, self.envelope(row), {}
        return 204, None, {"Retry-After": self.retry_after}

    def envelope(self, row: Row) -> dict[str, Any]:
        job = {"kind": row.kind, "spec": row.spec, "target": row.target, "labels": {}}
        return {
            "id": row.id,
            "root_id": row.id,
            **(job if row.table == "jobs" else {"task_type": row.kind, "payload": row.spec}),
            "attempt": row.attempt,
            "max_attempts": 3,
            "claim_id": row.claim_id,
            "lease": {"seconds": row.lease_seconds, "expires_at": self.stamp(row.lease_seconds)},
            "heartbeat_s": row.heartbeat_s,
            "deadline": self.stamp(row.run_seconds),
            "server_time": self.stamp(),
            "cancel": row.cancel,
        }

    def start(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        if row.status != "running":
            return refusal(410, "ended")
        row.started += 1
        return self.pulse(row)

    def heartbeat(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        if row.status != "running":
            return refusal(410, "ended", verdict=row.verdict)
        row.beats.append(body)
        return self.pulse(row)

    def pulse(self, row: Row) -> Reply:
        row.seen_at = time.monotonic()
        return (
            200,
            {
                "server_time": self.stamp(),
                "lease_expires_at": self.stamp(row.lease_seconds),
                "next_in_s": row.heartbeat_s,
                "desired": "run" if row.cancel is None else "cancel",
                "cancel": row.cancel,
                "agent_state": "active",
            },
            {},
        )

    def result(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        if row.status != "running":
            if raw != row.result_bytes:
                return refusal(409 if row.result_bytes else 410, "result_mismatch" if row.result_bytes else "ended")
            return 200, self.outcome(row), {}
        if (refused := self.refuse_results(body)) is not None:
            return refused
        row.status, row.result, row.result_bytes, row.verdict = body["status"], body, raw, body.get("verdict")
        return 200, self.outcome(row), {}

    def outcome(self, row: Row) -> dict[str, Any]:
        return {"id": row.id, "status": row.status, "verdict": row.verdict, "reasons": [], "attempt": 1, "retry": None}

    def artifact(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        name = query["name"][0]
        if row.status != "running":
            return refusal(410, "ended")
        if (refused := self.refuse_artifacts(name)) is not None:
            return refused
        return self.keep(row, name, raw)

    def keep(self, row: Row, name: str, raw: bytes) -> Reply:
        if name in row.artifacts and row.artifacts[name] != raw:
            return refusal(409, "artifact_mismatch")
        status = 200 if name in row.artifacts else 201
        row.artifacts[name] = raw
        digest = hashlib.sha256(raw).hexdigest()
        return status, {"id": "1", "name": name, "size_bytes": len(raw), "sha256": digest, "content_type": "x/y"}, {}

    def begin_upload(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        if (refused := self.refuse_uploads(body["name"])) is not None:
            return refused
        if (held := row.artifacts.get(body["name"])) is not None:
            return self.keep(row, body["name"], held)
        key = f"key-{len(row.uploads)}"
        row.uploads[key] = body
        permitted = {
            "upload": key,
            "method": "PUT",
            "url": f"{self.url}/bucket?key={key}",
            "headers": {"Content-Length": str(body["size_bytes"]), "X-Signed-Digest": body["sha256"]},
            "expires_in_s": 300,
        }
        return 201, permitted, {}

    def put(self, key: str, raw: bytes, headers: dict[str, str]) -> Reply:
        """What a bucket does with a signed address: it takes the bytes that were signed, and no other credential."""
        if "authorization" in headers or headers.get("x-signed-digest") != hashlib.sha256(raw).hexdigest():
            return 403, None, {}
        self.bucket[key] = raw
        return 200, None, {}

    def complete_upload(self, row: Row, body: Any, raw: bytes, query: Any) -> Reply:
        announced = row.uploads[body["upload"]]
        if body["upload"] not in self.bucket:
            return refusal(400, "incomplete")
        return self.keep(row, announced["name"], self.bucket[body["upload"]])
