"""Comparisons that both kinds of assertions use: statuses, JSON values, pointers, regular expressions."""

import re
import signal
from typing import Any, Final

from agentstore_runner.uat.outcomes import StepFailedError

MAX_SEARCHED: Final = 10_000
_SEARCH_SECONDS: Final = 1.0
_MISSING: Final = object()
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


class _TooSlowError(Exception):
    pass


def search(expression: str, text: str) -> bool:
    """Say whether a regular expression occurs in a text; raises StepFailedError after a second of backtracking.

    The alarm reaches the matching loop of `re` only in the main thread, which is where the child executes its steps.
    """

    def give_up(*_: object) -> None:
        raise _TooSlowError

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _SEARCH_SECONDS)
    try:
        return re.search(expression, text[:MAX_SEARCHED]) is not None
    except _TooSlowError:
        raise StepFailedError("assertion", f"the regular expression {expression} takes too long on this text") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def status_matches(expected: int | list[int] | str, actual: int | None) -> bool:
    """Say whether an HTTP status is the expected one, one of the expected ones, or of the expected class."""
    if actual is None:
        return False
    if isinstance(expected, str):
        return str(actual)[0] == expected[0]
    return actual in expected if isinstance(expected, list) else actual == expected


def status_text(expected: int | list[int] | str) -> str:
    """Return an expected status the way a sentence names it."""
    return " or ".join(map(str, expected)) if isinstance(expected, list) else str(expected)


def at_pointer(document: Any, pointer: str) -> tuple[bool, Any]:
    """Follow an RFC 6901 pointer; the first item says whether something is there."""
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key, _MISSING)
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return False, None
        if value is _MISSING:
            return False, None
    return True, value


def same_json(left: Any, right: Any) -> bool:
    """Compare two JSON values with their types: 1 equals 1.0, and neither equals true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same_json(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and bool(left == right)


def json_type(value: Any) -> str:
    """Return the JSON Schema name of a value's type; a number without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]
