"""The document `agentstore.results/1`: what a run of checks may tell, and nothing more."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from agentstore_runner.contract.problem import Problem, pointer

SCHEMA_NAME: Final = "agentstore.results/1"
MAX_BYTES: Final = 1024 * 1024
MAX_CHECKS: Final = 200
MAX_MESSAGE: Final = 500
MAX_DETAIL: Final = 200

STATUSES: Final = ("passed", "failed", "error", "skipped")
SEVERITIES: Final = ("critical", "major", "minor", "info")
VERDICTS: Final = ("pass", "risk", "fail")
_FAILURES = "assertion http_status json header body unreachable timeout off_target console_errors action"
FAILURE_CODES: Final = tuple(_FAILURES.split())
ERROR_CODES: Final = ("runner_error", "job_timeout")
CODES: Final = (*FAILURE_CODES, *ERROR_CODES)

Rule = Callable[[Any], str | None]
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NUL = "\x00"


def cut(text: str, limit: int) -> str:
    """Return the text with at most `limit` characters; what was cut is shown by an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def milliseconds(moment: datetime) -> str:
    """Return a UTC time the way the document spells it: ISO 8601 with milliseconds and Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def check_result(check: Mapping[str, Any], status: str, **known: Any) -> dict[str, Any]:
    """Build the result of one check of a spec; `known` overrides the fields that are empty at first."""
    result: dict[str, Any] = {
        "id": check["id"],
        "title": check["title"],
        "severity": check.get("severity", "major"),
        "status": status,
        "duration_ms": 0,
        "assertions": 0,
        "code": None,
        "message": None,
        "step": None,
        "detail": {},
        "attempts": [],
        "flaky": False,
        "warnings": [],
        "notes": [],
        "artifacts": [],
    }
    result.update(known)
    if result["message"] is not None:
        result["message"] = cut(result["message"], MAX_MESSAGE)
    result["detail"] = {
        cut(key, 60): cut(value, MAX_DETAIL) if isinstance(value, str) else value
        for key, value in list(result["detail"].items())[:20]
    }
    for name in ("warnings", "notes"):
        result[name] = [cut(text, MAX_DETAIL) for text in result[name][:20]]
    return result


def document(
    *,
    kind: str,
    started_at: datetime,
    finished_at: datetime,
    runner: Mapping[str, str | None],
    target: Mapping[str, str | None],
    test_marker: str | None,
    verdict: str | None,
    reasons: list[str],
    checks: list[dict[str, Any]],
    redaction: Mapping[str, int],
) -> dict[str, Any]:
    """Build the document, shedding notes, details and attempts in this order where it would exceed MAX_BYTES."""
    built: dict[str, Any] = {
        "schema": SCHEMA_NAME,
        "kind": kind,
        "started_at": milliseconds(started_at),
        "finished_at": milliseconds(finished_at),
        "runner": dict(runner),
        "target": dict(target),
        "test_marker": test_marker,
        "verdict": verdict,
        "reasons": reasons,
        "checks": checks,
        "redaction": dict(redaction),
    }
    for name, empty in (
        ("notes", ["notes were dropped: the results were too large"]),
        ("detail", {}),
        ("attempts", []),
    ):
        if _size(built) <= MAX_BYTES:
            break
        built["checks"] = [{**check, name: empty} for check in built["checks"]]
    return built


def problems(document: Any) -> list[Problem]:
    """Find what is wrong with a results document: missing, unknown or oversized fields, words that it does not know."""
    if not isinstance(document, dict):
        return [Problem("", "the results must be an object")]
    if _size(document) > MAX_BYTES:
        return [Problem("", f"the results have more than {MAX_BYTES} bytes")]
    found = list(_fields(document, _DOCUMENT, ()))
    for name, shape in (("runner", _RUNNER), ("target", _TARGET), ("redaction", _REDACTION)):
        if isinstance(document.get(name), dict):
            found += _fields(document[name], shape, (name,))
    checks = document.get("checks")
    if isinstance(checks, list):
        for index, check in enumerate(checks):
            found += _check(check, index, checks[:index])
    return found


def mismatches(document: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Problem]:
    """Find where a valid results document does not answer its spec: checks that are missing, foreign or re-graded.

    The spec may be anything: a row that plain SQL wrote was never validated, and nothing can answer it.
    """
    checks = spec.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) and "id" in check for check in checks):
        return [Problem("/checks", "the spec asks for no checks")]
    asked = {str(check["id"]): check for check in checks}
    found = []
    for index, check in enumerate(document["checks"]):
        if check["id"] not in asked:
            found.append(Problem(pointer("checks", index, "id"), f"the spec has no check “{check['id']}”"))
        elif check["severity"] != asked[check["id"]].get("severity", "major"):
            found.append(Problem(pointer("checks", index, "severity"), "the severity differs from the spec"))
    told = {check["id"] for check in document["checks"]}
    return found + [Problem("/checks", f"the check “{name}” is missing") for name in asked if name not in told]


# --- rules ------------------------------------------------------------------------------------------------------
def _text(limit: int, *, empty: bool = True) -> Rule:
    def rule(value: Any) -> str | None:
        if not isinstance(value, str):
            return "must be text"
        if len(value) > limit:
            return f"has {len(value)} characters; {limit} are allowed"
        if _NUL in value:
            return "contains a NUL character"
        return None if value or empty else "must not be empty"

    return rule


def _count(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**31 - 1
    return None if good else "must be a whole number from 0"


def _optional(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def _one_of(words: tuple[str, ...]) -> Rule:
    return lambda value: None if isinstance(value, str) and value in words else f"must be one of {', '.join(words)}"


def _list(rule: Rule, limit: int) -> Rule:
    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return "must be a list"
        if len(value) > limit:
            return f"has {len(value)} items; {limit} are allowed"
        return next((f"item {n}: {problem}" for n, item in enumerate(value) if (problem := rule(item))), None)

    return check


def _object(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _slug(value: Any) -> str | None:
    return None if isinstance(value, str) and _SLUG.fullmatch(value) else "must be the id of a check"


def _moment(value: Any) -> str | None:
    try:
        if isinstance(value, str) and len(value) <= 40 and datetime.fromisoformat(value).tzinfo is not None:
            return None
    except ValueError:
        pass
    return "must be a time with its zone (ISO 8601)"


def _detail(value: Any) -> str | None:
    if not isinstance(value, dict) or len(value) > 20:
        return "must be an object of at most 20 fields"
    for key, item in value.items():
        if len(key) > 60:
            return "a name has more than 60 characters"
        if isinstance(item, str):
            if problem := _text(MAX_DETAIL)(item):
                return f"“{key}” {problem}"
        elif item is not None and not isinstance(item, int | float):
            return f"“{key}” must be text, a number, true, false or null"
    return None


_CODE = _optional(_one_of(CODES))
_MESSAGE = _optional(_text(MAX_MESSAGE))
_ATTEMPT: dict[str, Rule] = {"status": _one_of(STATUSES), "duration_ms": _count, "code": _CODE, "message": _MESSAGE}
_CHECK: dict[str, Rule] = {
    "id": _slug,
    "title": _text(200, empty=False),
    "severity": _one_of(SEVERITIES),
    "status": _one_of(STATUSES),
    "duration_ms": _count,
    "assertions": _count,
    "code": _CODE,
    "message": _MESSAGE,
    "step": _optional(_count),
    "detail": _detail,
    "attempts": _list(_object, 4),
    "flaky": _flag,
    "warnings": _list(_text(MAX_DETAIL), 20),
    "notes": _list(_text(MAX_DETAIL), 20),
    "artifacts": _list(_text(200, empty=False), 200),
}
_RUNNER: dict[str, Rule] = {"name": _text(200), "version": _text(60), "browser": _optional(_text(200))}
_TARGET: dict[str, Rule] = {"base_url": _text(500), "environment": _optional(_text(60))}
_REDACTION: dict[str, Rule] = {"version": _count, "count": _count}
_DOCUMENT: dict[str, Rule] = {
    "schema": _one_of((SCHEMA_NAME,)),
    "kind": _text(100, empty=False),
    "started_at": _moment,
    "finished_at": _moment,
    "runner": _object,
    "target": _object,
    "test_marker": _optional(_text(64)),
    "verdict": _optional(_one_of(VERDICTS)),
    "reasons": _list(_text(MAX_DETAIL), MAX_CHECKS * 3 + 1),
    "checks": _list(_object, MAX_CHECKS),
    "redaction": _object,
}


def _fields(value: Mapping[str, Any], rules: Mapping[str, Rule], path: tuple[str | int, ...]) -> Iterator[Problem]:
    for name, rule in rules.items():
        if name not in value:
            yield Problem(pointer(*path, name), "is missing")
        elif problem := rule(value[name]):
            yield Problem(pointer(*path, name), problem)
    for name in value:
        if name not in rules:
            yield Problem(pointer(*path, name), "is not a field of this document")


def _check(check: Any, index: int, earlier: list[Any]) -> Iterator[Problem]:
    path = ("checks", index)
    if not isinstance(check, dict):
        return  # the rule of the list has said so
    yield from _fields(check, _CHECK, path)
    if any(isinstance(other, dict) and other.get("id") == check.get("id") for other in earlier):
        yield Problem(pointer(*path, "id"), "is used by an earlier check")
    for number, attempt in enumerate(check["attempts"] if isinstance(check.get("attempts"), list) else ()):
        if isinstance(attempt, dict):
            yield from _fields(attempt, _ATTEMPT, (*path, "attempts", number))
    expected = {"failed": FAILURE_CODES, "error": ERROR_CODES}.get(str(check.get("status")))
    if expected and check.get("code") not in expected:
        yield Problem(
            pointer(*path, "code"), f"of a check with status {check['status']} must be one of {', '.join(expected)}"
        )


def _size(value: Any) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        return MAX_BYTES + 1
