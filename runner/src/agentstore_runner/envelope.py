"""What the server hands out: a claimed job with its lease, and the reply to a heartbeat."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentstore_runner.client import Answer, UnansweredError
from agentstore_runner.tables import Table

# The work stops this much before its lease ends, so that its last side effect falls inside the lease.
_MARGIN = 1 / 6
_LONGEST_MARGIN_S = 15.0


@dataclass(frozen=True)
class Cancel:
    """A person's wish to end the work, and the seconds it may take to end well."""

    reason: str
    by: str
    grace_s: float


@dataclass(frozen=True)
class Job:
    """A claimed attempt of either table; `fence` and `deadline` are points of the runner's own clock."""

    table: Table
    id: str
    root_id: str
    claim_id: str
    kind: str
    spec: dict[str, Any]
    target: dict[str, Any] | None
    attempt: int
    lease_seconds: float
    fence: float
    deadline: float
    heartbeat_s: float
    cancel: Cancel | None


@dataclass(frozen=True)
class Beat:
    """The reply to a heartbeat."""

    fence: float
    next_in_s: float
    cancel: Cancel | None
    agent_state: str


def job(answer: Answer, claim_id: str, table: Table) -> Job:
    """Read a claimed row; UnansweredError if the body is not an envelope for this claim."""
    body = answer.body
    if body["claim_id"] != claim_id:
        raise UnansweredError("the answer is for another claim")
    try:
        lease_seconds = float(body["lease"]["seconds"])
        return Job(
            table=table,
            id=_text(body["id"]),
            root_id=_text(body["root_id"]),
            claim_id=claim_id,
            kind=_text(body[table.kind]),
            spec=_mapping(body[table.document]),
            target=None if body.get("target") is None else _mapping(body["target"]),
            attempt=int(body["attempt"]),
            lease_seconds=lease_seconds,
            fence=_fence(answer, body["lease"]["expires_at"], lease_seconds),
            deadline=answer.sent_at + _seconds(body["server_time"], body["deadline"]),
            heartbeat_s=float(body["heartbeat_s"]),
            cancel=_cancel(body.get("cancel")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnansweredError(f"the claimed job cannot be read: {type(error).__name__}: {error}") from None


def beat(answer: Answer, lease_seconds: float) -> Beat:
    """Read the reply to a heartbeat; UnansweredError if it is not one."""
    body = answer.body
    try:
        cancel = _cancel(body.get("cancel"))
        if cancel is None and body["desired"] == "cancel":
            cancel = _cancel({})
        return Beat(
            fence=_fence(answer, body["lease_expires_at"], lease_seconds),
            next_in_s=float(body["next_in_s"]),
            cancel=cancel,
            agent_state=str(body.get("agent_state", "active")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnansweredError(f"the reply to the heartbeat cannot be read: {type(error).__name__}: {error}") from None


def _fence(answer: Answer, expires_at: str, lease_seconds: float) -> float:
    """Count from the moment of sending, the earliest at which the server can have read its clock."""
    left = _seconds(answer.body["server_time"], expires_at)
    return answer.sent_at + left - min(_LONGEST_MARGIN_S, lease_seconds * _MARGIN)


def _seconds(start: str, end: str) -> float:
    """Return the seconds between two times of the server's clock; the runner's own clock plays no part."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _cancel(value: Any) -> Cancel | None:
    if value is None:
        return None
    reason, by = str(value.get("reason") or ""), str(value.get("by") or "")
    return Cancel(reason=reason, by=by, grace_s=float(value.get("grace_s", 30)))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object was expected, not {type(value).__name__}")
    return value
