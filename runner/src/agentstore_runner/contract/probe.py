"""The spec of `http.probe`: one URL and what its answer must be. It is run and judged as a UAT spec of one check."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from agentstore_runner.contract import grants, uat
from agentstore_runner.contract.addresses import OffTargetError
from agentstore_runner.contract.grants import Grant
from agentstore_runner.contract.problem import Problem

KIND: Final = "http.probe"
ASKED: Final = {"checks": [{"id": "probe", "severity": "critical"}]}
"""What the results of every probe must answer."""

_REQUEST: Final = ("method", "headers", "json", "form", "follow_redirects", "expect")
_STEP: Final = "/checks/0/steps/0/request"


def _schema() -> dict[str, Any]:
    """Return the schema, built from the parts of a UAT spec that mean the same here."""
    whole, request = uat.SCHEMA, uat.SCHEMA["$defs"]["request"]
    parts = {name: request["properties"][name] for name in _REQUEST}
    url = {
        "title": "URL",
        "description": "What is asked for (http or https); templates are filled in, but not in the host.",
        "type": "string",
        "maxLength": 2000,
        "pattern": r"^https?://[^\s/?#@\\$]+([/?][^\s#\\]*)?$",
        "not": {"$ref": "#/$defs/control"},
    }
    return deepcopy(
        {
            "$schema": whole["$schema"],
            "$id": "urn:agentstore:spec:http.probe:1",
            "title": "HTTP probe",
            "description": "One request and what its answer must be.",
            "type": "object",
            "properties": {
                "version": whole["properties"]["version"],
                "title": whole["properties"]["title"],
                "url": url,
                **parts,
                "method": {**parts["method"], "default": "GET"},
                "secrets": whole["properties"]["secrets"],
                "ignore_https_errors": whole["properties"]["flags"]["properties"]["ignore_https_errors"],
                "timeout_ms": whole["properties"]["limits"]["properties"]["step_timeout_ms"],
            },
            "required": ["version", "url", "expect"],
            "additionalProperties": False,
            "not": request["not"],
            "$defs": whole["$defs"],
        }
    )


SCHEMA: Final[dict[str, Any]] = _schema()
"""JSON Schema 2020-12 of a spec."""


def as_checks(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a valid spec as a UAT spec of one critical check; raises OffTargetError if its URL has no origin."""
    request = {"method": "GET", "path": spec["url"], **{name: spec[name] for name in _REQUEST if name in spec}}
    title = spec.get("title") or f"{request['method']} {spec['url']}"[:200]
    checks = {
        "version": 1,
        "title": title,
        "target": {"base_url": grants.origin(spec["url"])},
        "flags": {"ignore_https_errors": spec.get("ignore_https_errors", False)},
        "secrets": spec.get("secrets", {}),
        "checks": [{**ASKED["checks"][0], "title": title, "steps": [{"request": request}]}],
    }
    return {**checks, "limits": {"step_timeout_ms": spec["timeout_ms"]}} if "timeout_ms" in spec else checks


def problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Find what the schema accepts and no runner should execute; the caller has validated the schema before."""
    try:
        checks = as_checks(spec)
    except OffTargetError as error:
        return [Problem("/url", str(error))]
    return list(_here(uat.problems(checks)))


def grant_problems(spec: Mapping[str, Any], grant: Grant) -> list[Problem]:
    """Find what a valid spec asks for and its target does not give."""
    return list(_here(grants.problems(as_checks(spec), grant)))


def _here(found: Any) -> Iterator[Problem]:
    """Point each problem of the checks at the place of the probe's own spec, each place once."""
    told = set()
    for problem in found:
        pointer = problem.pointer.removeprefix(_STEP)
        if pointer in ("/path", "/target/base_url"):
            pointer = "/url"
        elif pointer.startswith("/checks"):
            pointer = "/title"
        if pointer not in told:
            told.add(pointer)
            yield Problem(pointer, problem.message)
