"""The kind `backup.maintenance`: what its spec must hold, and what its results say."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentstore_runner.contract import backup, backup_jobs
from agentstore_runner.contract.problem import Problem
from agentstore_runner.contract.verdict import Judgement

ID: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
REPOSITORY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "engine": {"const": "restic"},
        "path": {"type": "string", "maxLength": 500},
        "credential_ref": {"type": "string", "pattern": f"^{backup.CREDENTIAL_REF}$"},
        "expected_id": {"anyOf": [ID, {"type": "null"}]},
        "init_if_missing": {"type": "boolean"},
    },
    "required": ["path", "credential_ref"],
}
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:agentstore:spec:backup.maintenance:1",
    "title": "Maintenance of a backup repository",
    "description": "Check it, forget snapshots by their ids, prune, remove stale locks.",
    "type": "object",
    "properties": {
        "version": {"const": backup.VERSION},
        "repository": REPOSITORY,
        "forget": {"type": "array", "items": ID, "uniqueItems": True, "maxItems": backup_jobs.MOST_FORGOTTEN},
        "prune": {"type": "boolean"},
        "check": {"enum": list(backup_jobs.CHECKS)},
        "read_data_subset": {"type": "string"},
        "unlock": {"type": "boolean"},
        "lock_wait_s": {"type": "integer", "minimum": 0},
    },
    "required": ["version", "repository"],
    "additionalProperties": False,
}


def spec_problems(spec: Mapping[str, Any]) -> Iterable[Problem]:
    """What a runner would refuse of a spec that fits the schema."""
    try:
        backup_jobs.maintenance(spec)
    except backup.UnsupportedError as error:
        yield Problem("", str(error))


def result_problems(results: Mapping[str, Any]) -> Iterable[Problem]:
    """What keeps results from saying which snapshots are gone."""
    for name in ("forgotten", "kept", "absent"):
        said = results.get(name, [])
        if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
            yield Problem(f"/{name}", "A list of snapshot ids.")


def judge(results: Mapping[str, Any]) -> Judgement:
    """A fail where a check found damage, a risk where snapshots could not be removed, else a pass."""
    match results.get("check"):
        case {"ok": False}:
            return Judgement("fail", ("the repository is damaged",))
    kept = results.get("kept") or ()
    return Judgement("risk", (f"{len(kept)} snapshots were not removed",)) if kept else Judgement("pass", ())
