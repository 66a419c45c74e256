"""The spec of `uat.quick-task`: its JSON Schema, and the checks that a schema cannot express."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from agentstore_runner.contract import templates
from agentstore_runner.contract.addresses import OffTargetError, Target, split
from agentstore_runner.contract.literal_secrets import literal_secrets
from agentstore_runner.contract.problem import Problem, pointer

KIND: Final = "uat.quick-task"
MAX_SPEC_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32

SCHEMA: Final[dict[str, Any]] = json.loads(
    files(__package__).joinpath("uat.quick-task.v1.schema.json").read_text(encoding="utf-8")
)
"""JSON Schema 2020-12 of a spec; its patterns run on a linear-time engine."""

Path = tuple[str | int, ...]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_NEWLINE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Find what the schema accepts and no runner should execute; the caller has validated the schema before."""
    found = list(_size(spec))
    if found:
        return found
    found = [*_texts(spec, ()), *_target(spec), *_checks(spec), *_secrets(spec)]
    if not any(problem.pointer.startswith("/target") for problem in found):
        found += _addresses(spec)
    return found + list(_Names(spec).problems())


def target(spec: Mapping[str, Any]) -> Target:
    """Return the addresses that a valid spec may open."""
    return Target(spec["target"]["base_url"], tuple(spec["target"].get("allow_hosts", ())))


def steps(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, Any]]:
    """Yield every step with its path in the spec, its word and its content."""
    for number, check in enumerate(spec["checks"]):
        for index, step in enumerate(check["steps"]):
            word, content = next(iter(step.items()))
            yield ("checks", number, "steps", index, word), word, content


def uses_browser(spec: Mapping[str, Any]) -> bool:
    """Say whether a spec has a step that needs a page or the browser's cookies."""
    return any(needs_page(word, content) for _, word, content in steps(spec))


def needs_page(word: str, content: Any) -> bool:
    """Say whether a step needs a page or the browser's cookies."""
    return word != "request" or bool(content.get("share_browser_cookies", False))


def goto_address(content: Any) -> str:
    """Return the address of a `goto` step in either spelling."""
    return str(content if isinstance(content, str) else content["url"])


def _size(spec: Mapping[str, Any]) -> Iterator[Problem]:
    level: list[Any] = [spec]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
    if level:
        yield Problem("", f"the spec is nested deeper than {MAX_DEPTH} levels")
        return
    size = len(json.dumps(spec).encode())
    if size > MAX_SPEC_BYTES:
        yield Problem("", f"the spec has {size} bytes; {MAX_SPEC_BYTES} are allowed")


def _may_have_lines(path: Path) -> bool:
    """Say whether a text may hold line breaks: what is typed into a text area or sent as a body."""
    if len(path) < 6 or path[0] != "checks":
        return False
    word, rest = path[4], path[5:]
    return (
        (word == "fill" and rest == ("value",))
        or (word == "upload" and rest == ("content",))
        or (word == "request" and rest[0] in ("json", "form"))
    )


def _texts(value: Any, path: Path) -> Iterator[Problem]:
    """Refuse control characters everywhere: `$` of some regex engines accepts a final newline, NUL breaks jsonb."""
    if isinstance(value, str):
        if (_CONTROL_BUT_NEWLINE if _may_have_lines(path) else _CONTROL).search(value):
            yield Problem(pointer(*path), "control characters are not allowed")
        if _SURROGATE.search(value):
            yield Problem(pointer(*path), "the text is not valid Unicode (a lone surrogate)")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if _CONTROL.search(key) or _SURROGATE.search(key):
                yield Problem(pointer(*path), "the name of a field has control characters or is not valid Unicode")
            else:
                yield from _texts(item, (*path, key))


def _target(spec: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        split(spec["target"]["base_url"])
    except OffTargetError as error:
        yield Problem("/target/base_url", str(error))
    for index, host in enumerate(spec["target"].get("allow_hosts", ())):
        name, _, port = host.partition(":")
        if port and not 1 <= int(port) <= 65535:
            yield Problem(pointer("target", "allow_hosts", index), "the port must be between 1 and 65535")
        if ".." in name:
            yield Problem(pointer("target", "allow_hosts", index), "the host has an empty part between two dots")


def _checks(spec: Mapping[str, Any]) -> Iterator[Problem]:
    ids = [check["id"] for check in spec["checks"]]
    for number, check in enumerate(spec["checks"]):
        if check["id"] in ids[:number]:
            yield Problem(pointer("checks", number, "id"), f"the id “{check['id']}” is used by an earlier check")
        for index, needed in enumerate(check.get("needs", ())):
            where = pointer("checks", number, "needs", index)
            if needed == check["id"]:
                yield Problem(where, "a check cannot need itself")
            elif needed not in ids:
                yield Problem(where, f"there is no check with the id “{needed}”")
            elif needed not in ids[:number]:
                yield Problem(where, f"“{needed}” comes later; a check can only need earlier ones")
        shots = [step["screenshot"]["name"] for step in check["steps"] if "screenshot" in step]
        for index, step in enumerate(check["steps"]):
            if "screenshot" in step and shots.count(step["screenshot"]["name"]) > 1:
                where = pointer("checks", number, "steps", index, "screenshot", "name")
                yield Problem(where, f"two screenshots of this check are called “{step['screenshot']['name']}”")
    for path, word, content in steps(spec):
        yield from _regexes(path, word, content)


def _regexes(path: Path, word: str, content: Any) -> Iterator[Problem]:
    fields: list[tuple[Path, str]] = []
    if word == "expect":
        fields = [((name,), content[name]) for name in ("text_matches", "url_matches") if name in content]
    elif word == "request":
        items = content.get("expect", {}).get("json", ())
        fields = [
            (("expect", "json", i, "matches"), item["matches"]) for i, item in enumerate(items) if "matches" in item
        ]
    for rest, expression in fields:
        try:
            re.compile(expression)
        except (re.error, RecursionError, OverflowError, FutureWarning) as error:
            yield Problem(pointer(*path, *rest), f"the regular expression cannot be used: {error}")


def _secrets(spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Refuse literal secrets wherever a spec holds values, not where its keys are words of the format."""
    yield from literal_secrets(spec.get("vars", {}), path=("vars",))
    for path, word, content in steps(spec):
        if word == "request":
            for field in ("path", "headers", "json", "form"):
                yield from literal_secrets({field: content[field]} if field in content else {}, path=path)
        elif word == "goto":
            yield from literal_secrets(goto_address(content), path=_goto_path(path, content))


def _goto_path(path: Path, content: Any) -> Path:
    return path if isinstance(content, str) else (*path, "url")


def _addresses(spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Refuse addresses outside the target as far as they are known before the run; the runner checks them again."""
    values = dict(spec.get("vars", {}))
    if marker := spec.get("flags", {}).get("testMarker"):
        values[templates.MARKER] = marker
    where = target(spec)
    for path, word, content in steps(spec):
        if word == "goto":
            field, address = _goto_path(path, content), goto_address(content)
        elif word == "request":
            field, address = (*path, "path"), content["path"]
        else:
            continue
        known = templates.PLACEHOLDER.sub(
            lambda hit: hit[0] if hit[1] or hit[2] not in values else templates.plain(values[hit[2]]), address
        )
        if _host_is_open(known):
            continue
        try:
            where.resolve(templates.PLACEHOLDER.sub("0", known))
        except OffTargetError as error:
            yield Problem(pointer(*field), str(error))


def _host_is_open(address: str) -> bool:
    """Say whether a value that is only known during the run decides about the host."""
    start = address if "//" not in address[:9] else "/".join(address.split("/", 3)[:3])
    hit = templates.PLACEHOLDER.search(start)
    return hit is not None and (start is not address or hit.start() == 0)


class _Names:
    """Follows vars, saved values, secrets and the marker through the checks in their order."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.known = set(spec.get("vars", {}))
        self.marker = "testMarker" in spec.get("flags", {})
        self.secrets = set(spec.get("secrets", {}))

    def problems(self) -> Iterator[Problem]:
        if templates.MARKER in self.known:
            yield Problem(pointer("vars", templates.MARKER), "this name belongs to the test marker")
        for path, word, content in steps(self.spec):
            for rest, text in template_fields(word, content):
                for name in templates.names(text):
                    if problem := self._unknown(name):
                        yield Problem(pointer(*path, *rest), problem)
            if word == "request":
                for name in content.get("save", {}):
                    if name == templates.MARKER:
                        yield Problem(pointer(*path, "save", name), "this name belongs to the test marker")
                    self.known.add(name)

    def _unknown(self, name: templates.Name) -> str | None:
        if name.secret:
            return None if name.name in self.secrets else f"the secret “{name.name}” is not declared under secrets"
        if name.name == templates.MARKER:
            return None if self.marker else "${testMarker} is used, but flags.testMarker is not set"
        if name.name in self.known:
            return None
        if name.name in self.secrets:
            return f"“{name.name}” is a secret; write ${{secret:{name.name}}}"
        return f"“{name.name}” is neither a variable nor saved by an earlier request"


def template_fields(word: str, content: Any) -> Iterator[tuple[Path, str]]:
    """Yield the path and text of every template inside a step, whether or not it holds a placeholder."""
    if word == "goto":
        yield _goto_path((), content), goto_address(content)
        return
    for name in TEMPLATES.get(word, ()):
        for rest, text in _strings(content.get(name), ()):
            yield (name, *rest), text
    if word == "request":
        expect = content.get("expect", {})
        for name in ("headers", "body_contains", "body_not_contains"):
            for rest, text in _strings(expect.get(name), ()):
                yield ("expect", name, *rest), text
        for index, item in enumerate(expect.get("json", ())):
            for name in ("equals", "contains"):
                for rest, text in _strings(item.get(name), ()):
                    yield ("expect", "json", index, name, *rest), text


TEMPLATES: Final = {
    "fill": ("value",),
    "select": ("value",),
    "upload": ("content",),
    "wait_for": ("url",),
    "expect": ("text", "text_contains", "value", "url", "url_contains", "title", "title_contains"),
    "request": ("path", "headers", "json", "form"),
}


def _strings(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, (*path, index))
