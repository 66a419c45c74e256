"""What runners are told, as plain dictionaries."""

from datetime import timedelta
from typing import Any

from agentstore_runner.contract.grants import Grant

from jobs.engine.answers import Pulse
from jobs.engine.leased import Leased
from jobs.engine.run_time import GRACE_SECONDS
from jobs.models import AgentJob, AgentTask
from jobs.services import enrolling, execution
from jobs.services.identities import Issued

from .answer import moment


def envelope(claimed: execution.Claimed[Any]) -> dict[str, Any]:
    """A leased row with all that its runner must know."""
    row = claimed.row
    return {
        "id": str(row.pk),
        "root_id": str(row.chain_id),
        **_work(row, claimed.grant),
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "claim_id": str(row.claim_id),
        "lease": {"seconds": row.lease_seconds, "expires_at": moment(claimed.lease_expires_at)},
        "heartbeat_s": claimed.heartbeat_seconds,
        "deadline": moment(claimed.deadline),
        "server_time": moment(claimed.now),
        "cancel": cancel(row),
    }


def beat(found: execution.Beat) -> dict[str, Any]:
    """The reply to a sign of life: until when the lease holds, and whether to go on."""
    pulse = found.pulse
    return {
        "server_time": moment(pulse.server_time),
        "lease_expires_at": moment(pulse.lease_expires_at),
        "next_in_s": found.heartbeat_seconds,
        "desired": "cancel" if pulse.cancel_requested_at else "run",
        "cancel": cancel(pulse),
        "agent_state": found.agent_state,
    }


def outcome(finished: execution.Finished[Any]) -> dict[str, Any]:
    """What was stored of a result, and the attempt that follows."""
    row, retry = finished.row, finished.retry
    judged = {"verdict": row.verdict, "reasons": list(finished.reasons)} if isinstance(row, AgentJob) else {}
    return {
        "id": str(row.pk),
        "status": row.status,
        **judged,
        "attempt": row.attempt,
        "retry": {"id": str(retry.pk), "not_before": moment(retry.not_before)} if retry else None,
    }


def enrolled(found: enrolling.Enrolled) -> dict[str, Any]:
    """A host's agent and its token, which is shown nowhere else."""
    agent, issued = found.agent, found.issued
    return {
        "principal_key": agent.principal_key,
        "title": agent.title,
        "state": agent.state,
        "token": issued.bearer,
        "token_prefix": issued.prefix,
    }


def issued(token: Issued, *, lives: timedelta) -> dict[str, Any]:
    """A fresh bearer, said once, and the seconds that it lives."""
    return {
        "token": token.bearer,
        "agent": token.agent,
        "expires_at": moment(token.expires_at),
        "expires_in": int(lives.total_seconds()),
        "run_ref": token.run_ref,
    }


def standing(found: execution.Standing) -> dict[str, Any]:
    """An agent's state and what it holds."""
    agent = found.agent
    return {
        "principal_key": agent.principal_key,
        "title": agent.title,
        "state": found.state,
        "note": agent.state_note,
        "until": moment(agent.state_until),
        "lease_seconds": agent.lease_seconds,
        "server_time": moment(found.now),
        "claims": [{"kind": job.kind, **_held(job)} for job in found.jobs],
        "task_claims": [{"task_type": task.task_type, **_held(task)} for task in found.tasks],
    }


def cancel(asked: Leased | Pulse) -> dict[str, Any] | None:
    """A person's wish to end the work, or None."""
    if asked.cancel_requested_at is None:
        return None
    return {
        "reason": asked.cancel_reason,
        "by": asked.cancel_requested_by,
        "requested_at": moment(asked.cancel_requested_at),
        "grace_s": GRACE_SECONDS,
    }


def _work(row: AgentJob | AgentTask, grant: Grant | None) -> dict[str, Any]:
    if isinstance(row, AgentJob):
        target = grant.document() if grant else None
        return {"kind": row.kind, "spec": row.spec, "target": target, "labels": row.labels}
    return {"task_type": row.task_type, "payload": row.task_payload}


def _held(row: Leased) -> dict[str, Any]:
    return {
        "id": str(row.pk),
        "claim_id": str(row.claim_id),
        "status": row.status,
        "attempt": row.attempt,
        "lease_expires_at": moment(execution.lease_end(row)),
        "cancel_requested": row.cancel_requested_at is not None,
    }
