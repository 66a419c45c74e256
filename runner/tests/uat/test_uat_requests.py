"""Every assertion about the response to a request, and what a request carries."""

import json
from typing import Any

from workbench import Bench, Site, outcome, request, spec

JSON = {"name": "Lamp", "price": 59.0, "tags": ["a", "b"], "stock": None, "a/b": {"~": True}, "big": 12}
ASSERTIONS: list[tuple[dict[str, Any], str | None]] = [
    ({"pointer": "/name", "equals": "Lamp"}, None),
    ({"pointer": "/price", "equals": 59}, None),
    ({"pointer": "/a~1b/~0", "equals": True}, None),
    ({"pointer": "/a~1b/~0", "equals": 1}, "expected /a~1b/~0 to equal “1”, but it is “true”"),
    ({"pointer": "/tags", "equals": ["a", "b"], "length": 2, "type": "array", "contains": "b"}, None),
    ({"pointer": "/tags/1", "equals": "b"}, None),
    ({"pointer": "/tags/2", "exists": False}, None),
    ({"pointer": "/tags/01", "exists": False}, None),
    ({"pointer": "/stock", "type": "null", "exists": True}, None),
    ({"pointer": "/price", "type": "integer", "gt": 58.9, "lt": 60}, None),
    ({"pointer": "/price", "type": "number"}, None),
    ({"pointer": "/name", "matches": "^L.mp$", "contains": "am", "length": 4}, None),
    ({"pointer": "/big", "matches": r"^\d+$"}, None),
    ({"pointer": "", "type": "object"}, None),
    ({"pointer": "/nope", "equals": None}, "nothing at /nope"),
    ({"pointer": "/name", "exists": False}, "expected nothing at /name"),
    ({"pointer": "/name", "gt": 1}, "greater than"),
    ({"pointer": "/price", "lt": 59}, "less than"),
    ({"pointer": "/tags", "length": 3}, "have the length"),
    ({"pointer": "/tags", "contains": "c"}, "contain"),
    ({"pointer": "/name", "type": "number"}, "be of type"),
    ({"pointer": "/name", "matches": "^x"}, "match"),
]


def test_json_assertions_hold_or_fail_one_by_one(web: Site, bench: Bench) -> None:
    web.routes["/json"] = (200, {"Content-Type": "application/json"}, json.dumps(JSON))
    checks = [[request("/json", expect={"json": [item]})] for item, _ in ASSERTIONS]
    report = bench.run(spec(web.url, *checks))
    for number, (item, words) in enumerate(ASSERTIONS):
        status, code, message = outcome(report, number)
        assert (status, code) == (("passed", None) if words is None else ("failed", "json")), (item, message)
        assert (words or "") in message
    assert report.results is not None
    assert report.results["runner"]["browser"] is None


REQUESTS: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "a status": (request("/ok", expect={"status": "2xx"}), None, ""),
    "another status": (
        request("/ok", expect={"status": 404}),
        "http_status",
        "expected the status 404, but it was 200",
    ),
    "a header in another case": (request("/ok", expect={"headers": {"CONTENT-TYPE": "json"}}), None, ""),
    "a missing header": (request("/ok", expect={"headers": {"x-nope": "1"}}), "header", "no header x-nope"),
    "another header": (request("/ok", expect={"headers": {"content-type": "xml"}}), "header", "to contain “xml”"),
    "a body": (request("/ok", expect={"body_contains": "fine", "body_not_contains": "bad"}), None, ""),
    "a missing text": (request("/ok", expect={"body_contains": "bad"}), "body", "does not contain “bad”"),
    "an unwanted text": (request("/ok", expect={"body_not_contains": "fine"}), "body", "contains “fine”"),
    "a body that is not JSON": (
        request("/text", expect={"json": [{"pointer": "", "exists": True}]}),
        "json",
        "not JSON",
    ),
    "a request that takes too long": (request("/slow"), "timeout", "longer than 1 s"),
    "a redirect that is not followed": (request("/moved", expect={"status": 302}), None, ""),
    "a redirect that is followed": (
        request("/moved", follow_redirects=True, expect={"status": 200, "body_contains": "fine"}),
        None,
        "",
    ),
    "redirects in a circle": (request("/circle", follow_redirects=True), "unreachable", "more than 10 times"),
    "a value that cannot be saved": (request("/ok", save={"x": "/nested"}), "json", "cannot be saved as x"),
    "a value that is not there": (request("/ok", save={"x": "/nope"}), "json", "nothing at /nope to save as x"),
    "an empty request": (request("/ok"), None, ""),
}


def test_request_assertions_hold_or_fail_one_by_one(web: Site, bench: Bench) -> None:
    web.routes["/ok"] = (200, {"Content-Type": "application/json"}, '{"say": "fine", "nested": {}}')
    web.routes["/text"] = (200, {}, "hello")
    web.routes["/slow"] = web.hangs
    web.routes["/moved"] = (302, {"Location": "/ok"}, "")
    web.routes["/circle"] = (302, {"Location": "/circle"}, "")
    report = bench.run(spec(web.url, *[[step] for step, _, _ in REQUESTS.values()], limits={"step_timeout_ms": 1000}))
    for number, (name, (_, code, words)) in enumerate(REQUESTS.items()):
        status, found, message = outcome(report, number)
        assert (status, found) == ("failed" if code else "passed", code), (name, message)
        assert words in message


def test_bodies_and_templates_arrive_as_written(web: Site, bench: Bench) -> None:
    web.routes["/in"] = (200, {}, '{"id": 7}')
    bench.environ["UAT_KEY"] = 'quote"and\\slash'
    report = bench.run(
        spec(
            web.url,
            [
                request("/in", "POST", json={"n": 1, "who": ["${who}", "${secret:key}"]}, save={"id": "/id"}),
                request("/in?id=${id}", "PUT", form={"a b": "ü&=\n${who}"}),
            ],
            vars={"who": "jane", "n": 2.0, "yes": True},
            secrets={"key": {"env": "UAT_KEY"}},
        )
    )
    assert outcome(report)[0] == "passed"
    assert json.loads(web.seen[0][2]) == {"n": 1, "who": ["jane", 'quote"and\\slash']}
    assert web.seen[1][2] == "a+b=%C3%BC%26%3D%0Ajane"


def test_a_value_that_was_never_saved_is_an_error_and_not_a_failure(web: Site, bench: Bench) -> None:
    web.routes["/ok"] = (200, {}, "{}")
    report = bench.run(
        spec(web.url, [request("/ok"), request("/no", expect={"status": 200}, save={"x": "/x"})], [request("/${x}")])
    )
    assert outcome(report, 1)[:2] == ("error", "runner_error")
    assert "${x}" in outcome(report, 1)[2]


def test_browser_cookies_serve_forms_and_json_too(web: Site, bench: Bench, browser: None) -> None:
    web.routes["/in"] = (201, {"Content-Type": "application/json"}, '{"ok": true}')
    wanted = {"status": 201, "json": [{"pointer": "/ok", "equals": True}]}
    steps = [
        request("/in", "POST", json={"a": "ü"}, share_browser_cookies=True, expect=wanted),
        request("/in", "POST", form={"a": "ü"}, share_browser_cookies=True, expect=wanted),
        request("/gone", share_browser_cookies=True, expect={"status": 404}),
    ]
    report = bench.run(spec(web.url, steps))
    assert outcome(report)[0] == "passed", outcome(report)
    assert [json.loads(web.seen[0][2]), web.seen[1][2]] == [{"a": "ü"}, "a=%C3%BC"]
