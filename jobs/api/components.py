"""The bodies of the API as JSON Schema 2020-12, for the OpenAPI document; tests judge real answers by them."""

from typing import Any

from agentstore_runner.contract.grants import REQUESTS

from jobs.engine.failure_classes import FailureClass
from jobs.models import Agent, AgentJob, AgentTask
from jobs.services.github.tokens import MAX_TOKEN
from jobs.services.reports import COUNTERS

from .limits import MAX_COUNT, MAX_NAME, MAX_RUN_REF, MAX_WORDS

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(members: Schema, *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object whose members are all required but the `optional` ones; more members may come with later versions."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, **({"required": required} if required else {}), **more}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


def _text(longest: int) -> Schema:
    # Neither blank nor with a NUL character.
    return {"type": "string", "minLength": 1, "maxLength": longest, "pattern": r"^[^\u0000]*[^\u0000\s][^\u0000]*$"}


def _texts(least: int) -> Schema:
    return {"type": "array", "items": _text(MAX_NAME), "minItems": least, "maxItems": MAX_WORDS}


def _words(words: Any) -> Schema:
    return {"type": "string", "enum": [str(word) for word in words]}


ID: Schema = {"type": "string", "format": "uuid"}
MOMENT: Schema = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
    "description": "UTC with microseconds, by the database's clock.",
}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_COUNT}
FREE: Schema = {"type": "object", "additionalProperties": True}
CLAIM_ID: Schema = {
    **ID,
    "description": "Made by the client: the claim's idempotency key, and the fencing token of everything after it.",
}
_RUNNER = obj({"name": _text(MAX_NAME), "version": _text(MAX_NAME)})


def _claim_request(kinds: str, row_id: str, **more: Schema) -> Schema:
    members = {"claim_id": CLAIM_ID, kinds: _texts(1), row_id: _or_null(ID), "capabilities": _or_null(_texts(0))}
    return obj({**members, "runner": _RUNNER, **more}, optional=(row_id, "capabilities", *more))


def _envelope(**work: Schema) -> Schema:
    return obj(
        {
            "id": ID,
            "root_id": {**ID, "description": "Shared by all attempts of this work."},
            **work,
            "attempt": POSITIVE,
            "max_attempts": POSITIVE,
            "claim_id": CLAIM_ID,
            "lease": obj({"seconds": POSITIVE, "expires_at": MOMENT}),
            "heartbeat_s": POSITIVE,
            "deadline": {**MOMENT, "description": "When the work must have ended: claim time plus maximum run time."},
            "server_time": MOMENT,
            "cancel": _or_null(ref("Cancel")),
        }
    )


def _outcome(table: type[AgentJob] | type[AgentTask], **judged: Schema) -> Schema:
    retry = obj({"id": ID, "not_before": _or_null(MOMENT)}, description="The attempt that follows by itself.")
    status = _words(table.lifecycle.finished)
    return obj({"id": ID, "status": status, **judged, "attempt": POSITIVE, "retry": _or_null(retry)})


def _held(table: type[AgentJob] | type[AgentTask], kind: str) -> Schema:
    return obj(
        {
            kind: TEXT,
            "id": ID,
            "claim_id": ID,
            "status": _words(table.lifecycle.leased),
            "attempt": POSITIVE,
            "lease_expires_at": _or_null(MOMENT),
            "cancel_requested": FLAG,
        }
    )


_VERDICT = _or_null(_words(AgentJob.Verdict.values))
_REPORT = {
    "error": _or_null(TEXT),
    "failure_class": _or_null({**TEXT, "examples": [str(word) for word in FailureClass]}),
    "details": _or_null(FREE),
}
_STATE = _words(Agent.State.values)

COMPONENTS: dict[str, Schema] = {
    "Problem": obj(
        {
            "type": {"type": "string", "const": "about:blank"},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "code": {"type": "string", "pattern": "^[a-z_]+$", "description": "Stable; decide by this member."},
            "detail": TEXT,
            "errors": {"type": "array", "items": obj({"pointer": TEXT, "detail": TEXT})},
            "outcome": _or_null(ref("Ending")),
            "note": TEXT,
            "until": _or_null(MOMENT),
            "limit": COUNT,
        },
        optional=("errors", "outcome", "note", "until", "limit"),
        description="RFC 9457. `errors` name faults of the request, `outcome` says how the attempt ended, `note` and "
        "`until` why and how long the agent takes no work, `limit` is in bytes.",
    ),
    "Ending": obj(
        {
            "status": _words(dict.fromkeys(AgentJob.lifecycle.finished + AgentTask.lifecycle.finished)),
            "verdict": _VERDICT,
            "finished_at": _or_null(MOMENT),
        }
    ),
    "Cancel": obj(
        {"reason": _or_null(TEXT), "by": TEXT, "requested_at": MOMENT, "grace_s": POSITIVE},
        description="Stop within the grace and report `cancelled`, or what really happened.",
    ),
    "Enrolment": obj(
        {
            "code": {**_text(MAX_NAME), "description": "Made by a governor in the admin: `ags_e_…`."},
            "enrolment_id": {
                **ID,
                "description": "Made by the client, once for each host: repeat it after a lost answer.",
            },
            "name": {
                **_text(MAX_NAME),
                "description": "The key of a new agent; for a bound code only the host's name.",
            },
            "runner": _RUNNER,
        }
    ),
    "Enrolled": obj(
        {
            "principal_key": TEXT,
            "title": TEXT,
            "state": _STATE,
            "token": {"type": "string", "pattern": "^ags_r_", "description": "The agent's bearer, shown only here."},
            "token_prefix": TEXT,
        }
    ),
    "JobClaim": _claim_request("kinds", "job_id", run_ref=_or_null(_text(MAX_RUN_REF))),
    "TaskClaim": _claim_request(
        "task_types",
        "task_id",
        engine=_or_null({**_text(MAX_NAME), "description": "Name and version of the backup program, for people."}),
    ),
    "Job": _envelope(
        kind=TEXT,
        spec={"description": "As enqueued."},
        target=_or_null(ref("Target")),
        labels={"description": "As enqueued."},
    ),
    "Target": obj(
        {
            "name": TEXT,
            **{name: {"type": "array", "items": TEXT} for name in ("origins", "hosts", "secrets")},
            "environment": TEXT,
            "restricted": {"type": "array", "items": _words(REQUESTS)},
            "allow_local": FLAG,
            "allow_traces": FLAG,
        },
        description="What the target of the spec's address lets the job do, as it is at the claim. Without one, a job "
        "of a kind that opens addresses opens nothing.",
    ),
    "Task": _envelope(task_type=_words(AgentTask.Type.values), payload={"description": "As enqueued."}),
    "GithubToken": obj({"token": _text(MAX_TOKEN)}, description="As GitHub's OIDC provider issued it; good once."),
    "IssuedToken": obj(
        {
            "token": TEXT,
            "agent": TEXT,
            "expires_at": _or_null(MOMENT),
            "expires_in": POSITIVE,
            "run_ref": _or_null(TEXT),
        },
        description="`token` is the bearer of `agent` for `expires_in` seconds; what it claims is done by `run_ref`.",
    ),
    "Start": obj({"claim_id": CLAIM_ID}),
    "JobHeartbeat": obj({"claim_id": CLAIM_ID, "progress": _or_null(FREE)}, optional=("progress",)),
    "TaskHeartbeat": obj(
        {"claim_id": CLAIM_ID, "progress": _or_null(FREE), "counters": _or_null(ref("Counters"))},
        optional=("progress", "counters"),
    ),
    "Counters": obj(
        {name: _or_null(COUNT) for name in COUNTERS},
        optional=COUNTERS,
        description="In a heartbeat they never shrink what is stored; in a result they replace it.",
    ),
    "Beat": obj(
        {
            "server_time": MOMENT,
            "lease_expires_at": MOMENT,
            "next_in_s": POSITIVE,
            "desired": _words(("run", "cancel")),
            "cancel": _or_null(ref("Cancel")),
            "agent_state": _STATE,
        }
    ),
    "JobResult": obj(
        {
            "claim_id": CLAIM_ID,
            "status": _words(AgentJob.lifecycle.finished),
            "verdict": _VERDICT,
            "results": _or_null(FREE),
            **_REPORT,
        },
        optional=("verdict", "results", *_REPORT),
    ),
    "TaskResult": obj(
        {
            "claim_id": CLAIM_ID,
            "status": _words(AgentTask.lifecycle.finished),
            "counters": _or_null(ref("Counters")),
            "backup_id_in_repository": _or_null(TEXT),
            "error_code": _or_null(TEXT),
            **_REPORT,
        },
        optional=("counters", "backup_id_in_repository", "error_code", *_REPORT),
    ),
    "JobOutcome": _outcome(AgentJob, verdict=_VERDICT, reasons={"type": "array", "items": TEXT}),
    "TaskOutcome": _outcome(AgentTask),
    "Agent": obj(
        {
            "principal_key": TEXT,
            "title": TEXT,
            "state": _STATE,
            "note": TEXT,
            "until": _or_null(MOMENT),
            "lease_seconds": POSITIVE,
            "server_time": MOMENT,
            "claims": {"type": "array", "items": _held(AgentJob, "kind")},
            "task_claims": {"type": "array", "items": _held(AgentTask, "task_type")},
        }
    ),
}
