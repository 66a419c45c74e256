"""What a spec may say: the schema, and the checks on top of it."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from agentstore_runner.contract import uat

EXAMPLES = Path(__file__).parents[3] / "examples" / "uat"
LINEAR = jsonschema_rs.Draft202012Validator(uat.SCHEMA, pattern_options=jsonschema_rs.RegexOptions())
DEFAULT = jsonschema_rs.Draft202012Validator(uat.SCHEMA)


def spec(*steps: dict[str, Any], **top: Any) -> dict[str, Any]:
    """Return a spec with one check of these steps."""
    checks = [{"id": "one", "title": "One", "steps": list(steps) or [{"goto": "/"}]}]
    return {"version": 1, "target": {"base_url": "https://shop.example"}, "checks": checks, **top}


def expect(**content: Any) -> dict[str, Any]:
    return spec({"expect": content})


def request(**content: Any) -> dict[str, Any]:
    return spec({"request": {"method": "GET", "path": "/", **content}})


def base(url: str, **more: Any) -> dict[str, Any]:
    return spec(target={"base_url": url, **more})


BUTTON = {"role": "button", "name": "Send"}

REFUSED_BY_SCHEMA = {
    "an expect with only a time limit": expect(timeout_ms=5),
    "an expect with only a locator": expect(locator=BUTTON),
    "an expect with a locator and a condition of the page": expect(locator=BUTTON, url_contains="/"),
    "an expect with an element's condition and no locator": expect(visible=True),
    "no_console_errors set to false": expect(no_console_errors=False),
    "a wait for only a state": spec({"wait_for": {"state": "visible"}}),
    "a wait for nothing": spec({"wait_for": {}}),
    "a wait for an address with a state": spec({"wait_for": {"url": "/", "state": "visible"}}),
    "a wait for an element and an address": spec({"wait_for": {"url": "/", "locator": BUTTON}}),
    "a request with json and form": request(json={}, form={}),
    "an empty request.expect": request(expect={}),
    "a JSON assertion with only a pointer": request(expect={"json": [{"pointer": "/a"}]}),
    "an empty list of JSON assertions": request(expect={"json": []}),
    "a pointer that does not start with a slash": request(expect={"json": [{"pointer": "a", "exists": True}]}),
    "a header name with a space": request(headers={"X Y": "1"}),
    "a header value with a line break": request(headers={"X": "1\r\nEvil: 2"}),
    "a header name with a line break at its end": request(headers={"X\n": "1"}),
    "an unknown method": spec({"request": {"method": "TRACE", "path": "/"}}),
    "an empty path": spec({"request": {"method": "GET", "path": ""}}),
    "a step of two words": spec({"goto": "/", "click": BUTTON}),
    "an empty step": spec({}),
    "an unknown step": spec({"evaluate": "alert(1)"}),
    "an empty goto": spec({"goto": ""}),
    "a locator of two kinds": spec({"click": {"css": "a", "text": "b"}}),
    "an exact CSS locator": spec({"click": {"css": "a", "exact": True}}),
    "a negative nth": spec({"click": {"css": "a", "nth": -1}}),
    "an accessible name without end": spec({"click": {"role": "button", "name": "x" * 501}}),
    "a long fill": spec({"fill": {"locator": BUTTON, "value": "x" * 4001}}),
    "a file name with a folder": spec({"upload": {"locator": BUTTON, "name": "../x", "content": ""}}),
    "a hidden file name": spec({"upload": {"locator": BUTTON, "name": ".bashrc", "content": ""}}),
    "a base URL with a query": base("https://a.example/?x=1"),
    "a base URL with a fragment": base("https://a.example/#x"),
    "a base URL with a user": base("https://u@a.example"),
    "a base URL with a backslash": base("https://a.example\\evil.example"),
    "a base URL with a backslash in its path": base("https://a.example/x\\y"),
    "a base URL with a line break at its end": base("https://a.example\n"),
    "a base URL of another scheme": base("ftp://a.example"),
    "an allowed host with a scheme": base("https://a.example", allow_hosts=["https://b.example"]),
    "an allowed host with a line break at its end": base("https://a.example", allow_hosts=["b.example\n"]),
    "every host allowed": base("https://a.example", allow_hosts=["*"]),
    "a check id with a line break at its end": spec(checks=[{"id": "a\n", "title": "A", "steps": [{"goto": "/"}]}]),
    "a title with a NUL": spec(title="a\0b"),
    "a marker with a line break at its end": spec(flags={"testMarker": "a\n"}),
    "an environment variable of another prefix": spec(secrets={"pw": {"env": "PATH"}}),
    "an environment variable with a line break": spec(secrets={"pw": {"env": "UAT_A\n"}}),
    "a literal secret": spec(secrets={"pw": {"value": "hunter2"}}),
    "a long variable": spec(vars={"a": "x" * 4001}),
    "a variable that is a list": spec(vars={"a": []}),
    "a variable named with a line break": spec(vars={"a\n": 1}),
    "51 variables": spec(vars={f"v{n}": n for n in range(51)}),
    "no check": spec(checks=[]),
    "201 checks": spec(checks=[{"id": f"c{n}", "title": "C", "steps": [{"goto": "/"}]} for n in range(201)]),
    "another version": spec(version=2),
    "an unknown field": spec(traces=True),
    "a job of a day": spec(limits={"job_timeout_s": 86400}),
    "a window without height": spec(flags={"viewport": {"width": 300}}),
}


@pytest.mark.parametrize("document", REFUSED_BY_SCHEMA.values(), ids=REFUSED_BY_SCHEMA.keys())
def test_the_schema_refuses(document: dict[str, Any]) -> None:
    assert not LINEAR.is_valid(document)
    assert not DEFAULT.is_valid(document)


REFUSED_IN_CODE = {
    "two checks with one id": (
        spec(checks=[{"id": "a", "title": "A", "steps": [{"goto": "/"}]}] * 2),
        "/checks/1/id",
        "used by an earlier check",
    ),
    "a need that does not exist": (
        spec(checks=[{"id": "a", "title": "A", "needs": ["b"], "steps": [{"goto": "/"}]}]),
        "/checks/0/needs/0",
        "no check with the id",
    ),
    "a need of itself": (
        spec(checks=[{"id": "a", "title": "A", "needs": ["a"], "steps": [{"goto": "/"}]}]),
        "/checks/0/needs/0",
        "cannot need itself",
    ),
    "a need of a later check": (
        spec(
            checks=[
                {"id": "a", "title": "A", "needs": ["b"], "steps": [{"goto": "/"}]},
                {"id": "b", "title": "B", "steps": [{"goto": "/"}]},
            ]
        ),
        "/checks/0/needs/0",
        "comes later",
    ),
    "a variable that nobody sets": (spec({"goto": "/${where}"}), "/checks/0/steps/0/goto", "neither a variable"),
    "a variable in a JSON body": (
        request(method="POST", json={"a": [{"b": "${no}"}]}),
        "/checks/0/steps/0/request/json/a/0/b",
        "neither a variable",
    ),
    "a variable in a header with a slash in its name": (
        request(headers={"X~Y": "${no}"}),
        "/checks/0/steps/0/request/headers/X~0Y",
        "neither a variable",
    ),
    "a value that is saved only afterwards": (
        spec(
            {"goto": "/${later}"},
            {"request": {"method": "GET", "path": "/", "save": {"later": "/x"}}},
        ),
        "/checks/0/steps/0/goto",
        "neither a variable nor saved",
    ),
    "a secret that is not declared": (
        spec({"fill": {"locator": BUTTON, "value": "${secret:pw}"}}),
        "/checks/0/steps/0/fill/value",
        "not declared under secrets",
    ),
    "a secret used like a variable": (
        spec({"fill": {"locator": BUTTON, "value": "${pw}"}}, secrets={"pw": {"env": "UAT_PW"}}),
        "/checks/0/steps/0/fill/value",
        "write ${secret:pw}",
    ),
    "the marker without the flag": (spec({"goto": "/?m=${testMarker}"}), "/checks/0/steps/0/goto", "testMarker"),
    "a variable with the marker's name": (spec(vars={"testMarker": "x"}), "/vars/testMarker", "belongs to"),
    "a port beyond the last": (base("https://a.example:70000"), "/target/base_url", "ort"),
    "port 0": (base("https://a.example:0"), "/target/base_url", "between 1 and 65535"),
    "an allowed host with a port beyond the last": (
        base("https://a.example", allow_hosts=["b.example:99999"]),
        "/target/allow_hosts/0",
        "between 1 and 65535",
    ),
    "a goto of another scheme": (spec({"goto": "file:///etc/passwd"}), "/checks/0/steps/0/goto", "http and https"),
    "a goto of script": (spec({"goto": "javascript:alert(1)"}), "/checks/0/steps/0/goto", "http and https"),
    "a goto to another host": (spec({"goto": "https://evil.example/"}), "/checks/0/steps/0/goto", "evil.example"),
    "a goto without a scheme": (spec({"goto": "//evil.example/"}), "/checks/0/steps/0/goto", "evil.example"),
    "a goto with a backslash": (spec({"goto": "\\\\evil.example"}), "/checks/0/steps/0/goto", "backslashes"),
    "a goto with a user": (spec({"goto": "https://shop.example@evil.example/"}), "/checks/0/steps/0/goto", "user name"),
    "a goto with options to another host": (
        spec({"goto": {"url": "https://evil.example/"}}),
        "/checks/0/steps/0/goto/url",
        "evil.example",
    ),
    "a goto to another port": (spec({"goto": "https://shop.example:22/"}), "/checks/0/steps/0/goto", "shop.example:22"),
    "a variable that leads away": (
        spec({"goto": "${there}/x"}, vars={"there": "https://evil.example"}),
        "/checks/0/steps/0/goto",
        "evil.example",
    ),
    "a request to another host": (
        spec({"request": {"method": "GET", "path": "http://169.254.169.254/"}}),
        "/checks/0/steps/0/request/path",
        "169.254.169.254",
    ),
    "a regular expression that does not compile": (
        expect(locator=BUTTON, text_matches="("),
        "/checks/0/steps/0/expect/text_matches",
        "cannot be used",
    ),
    "a JSON expression that does not compile": (
        request(expect={"json": [{"pointer": "", "matches": "[a"}]}),
        "/checks/0/steps/0/request/expect/json/0/matches",
        "cannot be used",
    ),
    "a literal authorization header": (
        request(headers={"Authorization": "Bearer abc"}),
        "/checks/0/steps/0/request/headers/Authorization",
        "${secret:name}",
    ),
    "a literal password in a body": (
        request(method="POST", json={"user": {"newPassword": "hunter2"}}),
        "/checks/0/steps/0/request/json/user/newPassword",
        "${secret:name}",
    ),
    "a list of literal tokens": (
        request(method="POST", json={"tokens": ["a", {"secret": "b"}]}),
        "/checks/0/steps/0/request/json/tokens/0",
        "${secret:name}",
    ),
    "a literal secret as a pair of name and value": (
        request(method="POST", json=[{"name": "api_key", "value": "abc"}]),
        "/checks/0/steps/0/request/json/0/value",
        "${secret:name}",
    ),
    "a literal password in a form": (
        request(method="POST", form={"pw": "hunter2"}),
        "/checks/0/steps/0/request/form/pw",
        "${secret:name}",
    ),
    "a literal token in an address": (
        spec({"goto": "/reset?access_token=abc"}),
        "/checks/0/steps/0/goto",
        "access_token",
    ),
    "a variable called password": (spec(vars={"password": "hunter2"}), "/vars/password", "${secret:name}"),
    "a control character inside a body": (
        request(method="POST", json={"a": "x\0"}),
        "/checks/0/steps/0/request/json/a",
        "control characters",
    ),
    "a control character in a name of a body": (
        request(method="POST", json={"a\n": 1}),
        "/checks/0/steps/0/request/json",
        "control characters",
    ),
    "a lone surrogate": (request(method="POST", json=["\ud800"]), "/checks/0/steps/0/request/json/0", "Unicode"),
    "two pictures with one name": (
        spec({"goto": "/"}, {"screenshot": {"name": "a"}}, {"screenshot": {"name": "a"}}),
        "/checks/0/steps/1/screenshot/name",
        "two screenshots",
    ),
}


@pytest.mark.parametrize(("document", "pointer", "words"), REFUSED_IN_CODE.values(), ids=REFUSED_IN_CODE.keys())
def test_the_code_refuses_what_the_schema_accepts(document: dict[str, Any], pointer: str, words: str) -> None:
    assert LINEAR.is_valid(document) or "\ud800" in str(document)
    found = {problem.pointer: problem.message for problem in uat.problems(document)}
    assert words in found.get(pointer, f"nothing at {pointer}, but {found}")


ACCEPTED = {
    "several lines typed into a text area": spec({"fill": {"locator": BUTTON, "value": "a\n\tb"}}),
    "several lines in a body": request(method="POST", json={"text": "a\nb"}),
    "secrets by name": spec(
        {"request": {"method": "GET", "path": "/", "headers": {"Authorization": "Bearer ${secret:key}"}}},
        secrets={"key": {"env": "UAT_KEY"}},
    ),
    "an empty password, to see it refused": request(method="POST", form={"password": ""}),
    "a wrong password through a variable": spec(
        {"request": {"method": "POST", "path": "/", "form": {"password": "${wrong}"}}}, vars={"wrong": "nope"}
    ),
    "a saved token used later": spec(
        {"request": {"method": "GET", "path": "/", "save": {"token": "/token"}}},
        {"request": {"method": "GET", "path": "/", "headers": {"Authorization": "Bearer ${token}"}}},
    ),
    "an address that a saved value decides": spec(
        {"request": {"method": "GET", "path": "/", "save": {"next": "/next"}}}, {"goto": "${next}"}
    ),
    "another allowed host": spec(
        {"goto": "https://static.cdn.example/x"},
        target={"base_url": "https://shop.example", "allow_hosts": ["*.cdn.example"]},
    ),
    "text that only looks like a template": expect(locator=BUTTON, text="${not a name} $x {y}"),
    "an IPv6 target": base("http://[::1]:8000"),
    "a number named tokens": request(method="POST", json={"tokens": 5, "tokens_used": "5"}),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_spec_may_hold(document: dict[str, Any]) -> None:
    assert [error.message for error in LINEAR.iter_errors(document)] == []
    assert uat.problems(document) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    document = json.loads(path.read_text())
    assert [error.message for error in LINEAR.iter_errors(document)] == []
    assert uat.problems(document) == []


def test_a_spec_of_a_megabyte_is_refused() -> None:
    document = request(method="POST", json=["x" * 1000] * 1000)
    assert "bytes" in uat.problems(document)[0].message


def test_a_body_nested_without_end_is_refused_without_exhausting_the_stack() -> None:
    nested: Any = "x"
    for _ in range(5000):
        nested = [nested]
    assert "nested deeper" in uat.problems(request(method="POST", json=nested))[0].message


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from schemas(item)
    elif isinstance(node, list):
        for item in node:
            yield from schemas(item)


def test_the_schema_itself_is_valid() -> None:
    jsonschema_rs.meta.validate(uat.SCHEMA)


def test_every_field_that_a_form_draws_has_a_title() -> None:
    untitled = [
        name
        for node in schemas(uat.SCHEMA)
        for name, field in node.get("properties", {}).items()
        if isinstance(field, dict) and "title" not in field and isinstance(node["properties"], dict)
    ]
    assert untitled == []


def test_every_text_and_list_has_a_limit() -> None:
    texts = [node for name, node in uat.SCHEMA["$defs"].items() if not name.startswith("control")]
    open_texts = [
        n
        for n in schemas([uat.SCHEMA["properties"], *texts])
        if n.get("type") == "string" and not {"maxLength", "enum"} & n.keys()
    ]
    open_lists = [n for n in schemas(uat.SCHEMA) if n.get("type") == "array" and "maxItems" not in n]
    assert (open_texts, open_lists) == ([], [])


def test_no_pattern_needs_look_around_or_escapes_that_ecma_does_not_know() -> None:
    patterns = [node["pattern"] for node in schemas(uat.SCHEMA) if isinstance(node.get("pattern"), str)]
    assert len(patterns) > 10
    assert [p for p in patterns if "(?" in p or "\\A" in p or "\\Z" in p or "\\z" in p] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_checking_a_spec_does_not_change_it(path: Path) -> None:
    document = json.loads(path.read_text())
    before = copy.deepcopy(document)
    uat.problems(document)
    assert document == before
