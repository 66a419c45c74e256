"""JSON from outside: what PostgreSQL cannot hold, or a parser could choke on, is found before anything acts on it.

What people and automations enqueue is refused with the place of the fault. What a runner reports is repaired instead
and flagged, so that an hour of work is never lost to one byte.
"""

import json
import math
import re
from typing import Any, NoReturn

from agentstore_runner.contract.problem import Problem

MAX_DEPTH = 64
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)


class Malformed(ValueError):
    """A text that is no acceptable JSON document; `problem` says where and why."""

    def __init__(self, message: str, *, code: str = "malformed") -> None:
        super().__init__(message)
        self.code = code


def parse(text: bytes) -> Any:
    """A JSON document from UTF-8 bytes. Raises Malformed for bad syntax, duplicate keys, NaN, infinities or depth."""
    _check_depth(text)
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise Malformed(f"Not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None


def storable_problems(document: Any, pointer: str = "") -> list[Problem]:
    """What jsonb would refuse in a parsed document: NUL characters, lone surrogates, non-finite numbers."""
    found: list[Problem] = []
    for place, value, is_key in _leaves(document, pointer):
        if isinstance(value, str) and UNSTORABLE.search(value):
            what = "A key" if is_key else "The text"
            found.append(Problem(place, f"{what} holds a NUL character or half a surrogate pair."))
        elif isinstance(value, float) and not math.isfinite(value):
            found.append(Problem(place, "The number is not finite."))
    return found


def sanitise(value: Any) -> tuple[Any, bool]:
    """The document with every unstorable character replaced by U+FFFD, and whether anything was replaced."""
    changed = False

    def clean(part: Any) -> Any:
        nonlocal changed
        match part:
            case str():
                text, count = UNSTORABLE.subn(REPLACEMENT, part)
                changed = changed or bool(count)
                return text
            case dict():
                tidy: dict[str, Any] = {}
                for key, item in part.items():
                    name = clean(key)
                    while name in tidy or (name != key and name in part):
                        name += REPLACEMENT  # two keys that become one must not cost a value
                    tidy[name] = clean(item)
                return tidy
            case list():
                return [clean(item) for item in part]
            case float() if not math.isfinite(part):
                changed = True
                return None
            case _:
                return part

    return clean(value), changed


def _leaves(value: Any, pointer: str) -> "list[tuple[str, Any, bool]]":
    found: list[tuple[str, Any, bool]] = []
    stack = [(pointer, value)]
    while stack:
        place, part = stack.pop()
        if isinstance(part, dict):
            for key, item in part.items():
                inner = f"{place}/{UNSTORABLE.sub(REPLACEMENT, key).replace('~', '~0').replace('/', '~1')}"
                found.append((inner, key, True))
                stack.append((inner, item))
        elif isinstance(part, list):
            stack.extend((f"{place}/{index}", item) for index, item in enumerate(part))
        else:
            found.append((place, part, False))
    return found


def _check_depth(text: bytes) -> None:
    depth = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise Malformed(f"Nested deeper than {MAX_DEPTH} levels.", code="too_deep")
        elif first in b"]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Malformed(f"The key {key[:80]!r} appears twice in one object.", code="duplicate_key")
            seen.add(key)
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise Malformed(f"{word} is no JSON number.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Malformed(f"The number {text[:40]} is out of range.")
    return number


def _integer(text: str) -> int:
    if len(text) > 1000:
        raise Malformed("An integer of more than 1,000 digits is out of range.")
    return int(text)
