"""What a spec must hold before it is enqueued, and what a result says once it is in."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs
from agentstore_runner.contract import backup_jobs, grants, probe, results, uat, verdict
from agentstore_runner.contract.literal_secrets import literal_secrets
from agentstore_runner.contract.problem import Problem, pointer

from jobs.models import JobKind

from .backups import listing_kind, maintenance_kind
from .documents import storable_problems

MAX_SPEC_BYTES = 512 * 1024
MAX_PROBLEMS = 50  # more do not help whoever has to mend them


@dataclass(frozen=True, kw_only=True)
class KindContract:
    """What code knows of a kind beyond its JSON Schema."""

    title: str
    description: str
    schema: dict[str, Any]
    spec_problems: Callable[[dict[str, Any]], Iterable[Problem]]
    result_problems: Callable[[dict[str, Any], Mapping[str, Any]], Iterable[Problem]]  # results, spec
    judge: Callable[[Mapping[str, Any]], verdict.Judgement]
    max_run_seconds: int
    # A spec that opens an address belongs to the target of that address, and asks for no more than it gives.
    address: Callable[[Mapping[str, Any]], str] | None = None
    address_pointer: str = ""
    grant_problems: Callable[[Mapping[str, Any], grants.Grant], Iterable[Problem]] = lambda _spec, _grant: ()
    is_own: bool = False  # only the product itself makes a spec of this kind


CONTRACTS: dict[str, KindContract] = {
    uat.KIND: KindContract(
        title="UAT check run",
        description="Browser and API checks against a web application, with a verdict: pass, fail or risk.",
        schema=uat.SCHEMA,
        spec_problems=uat.problems,
        # A report that leaves out the check that failed would be a pass.
        result_problems=lambda document, spec: results.problems(document) or results.mismatches(document, spec),
        judge=lambda document: verdict.judge(document["checks"]),
        address=lambda spec: spec["target"]["base_url"],
        address_pointer="/target/base_url",
        grant_problems=grants.problems,
        max_run_seconds=3600 + 300,
    ),
    probe.KIND: KindContract(
        title="HTTP probe",
        description="One request to a web address and what its answer must be, with a verdict.",
        schema=probe.SCHEMA,
        spec_problems=probe.problems,
        result_problems=lambda document, _: results.problems(document) or results.mismatches(document, probe.ASKED),
        judge=lambda document: verdict.judge(document["checks"]),
        address=lambda spec: spec["url"],
        address_pointer="/url",
        grant_problems=probe.grant_problems,
        max_run_seconds=300 + 300,
    ),
    # A person's list of snapshots to forget could name the last good one.
    backup_jobs.MAINTENANCE: KindContract(
        title="Maintenance of a backup repository",
        description="Check, forget, prune and unlock a repository of restic. Only the product makes such jobs.",
        schema=maintenance_kind.SCHEMA,
        spec_problems=maintenance_kind.spec_problems,
        result_problems=lambda document, _: maintenance_kind.result_problems(document),
        judge=maintenance_kind.judge,
        max_run_seconds=24 * 3600,
        is_own=True,
    ),
    # A person's spec could name any repository, and a credential that was not meant for it.
    backup_jobs.LISTING: KindContract(
        title="List of a folder of a snapshot",
        description="Look up what one folder of one snapshot holds. Only the product makes such jobs.",
        schema=listing_kind.SCHEMA,
        spec_problems=listing_kind.spec_problems,
        result_problems=lambda document, _: listing_kind.result_problems(document),
        judge=lambda _: verdict.Judgement("pass", ()),
        max_run_seconds=1800,
        is_own=True,
    ),
}


def _refuse_reference(address: str) -> NoReturn:
    raise ValueError(f"A schema may not refer to {address}.")


@lru_cache(maxsize=128)
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema), validate_formats=True, retriever=_refuse_reference)


def schema_problems(schema: object) -> list[Problem]:
    """What is wrong with a kind's JSON Schema (draft 2020-12); references to other documents are refused."""
    if not isinstance(schema, dict):
        return [Problem("", "A JSON Schema is an object.")]
    try:
        jsonschema_rs.meta.validate(schema)
        _validator(json.dumps(schema, sort_keys=True))
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return [Problem(pointer(*getattr(error, "instance_path", ())), str(getattr(error, "message", error)))]
    return []


def spec_problems(kind: JobKind, spec: object) -> list[Problem]:
    """Everything that is wrong with a spec of this kind, each with a JSON pointer into the spec.

    In this order, each stage only if the one before found nothing: storable characters and size, the kind's schema,
    secrets written out where a `${secret:name}` belongs, and what the kind's own code knows.
    """
    if not isinstance(spec, dict):
        return [Problem("", "A spec is a JSON object.")]
    if found := storable_problems(spec):
        return found[:MAX_PROBLEMS]
    size = len(json.dumps(spec, ensure_ascii=False).encode())
    if size > MAX_SPEC_BYTES:
        return [Problem("", f"The spec has {size:,} bytes; at most {MAX_SPEC_BYTES:,} are accepted.")]
    errors = _validator(json.dumps(kind.schema, sort_keys=True)).iter_errors(spec)
    if found := [Problem(pointer(*error.instance_path), error.message) for error in errors]:
        return found[:MAX_PROBLEMS]
    found = list(literal_secrets(spec))
    if contract := CONTRACTS.get(kind.name):
        known = {problem.pointer for problem in found}
        found += [problem for problem in contract.spec_problems(spec) if problem.pointer not in known]
    return found[:MAX_PROBLEMS]
