"""The spec of a probe: a small schema of its own, and the rules of a UAT spec with pointers of its own."""

from typing import Any

import jsonschema_rs
import pytest
from agentstore_runner.contract import probe, uat
from agentstore_runner.contract.grants import Grant

VALIDATOR = jsonschema_rs.Draft202012Validator(probe.SCHEMA, pattern_options=jsonschema_rs.RegexOptions())
UAT = jsonschema_rs.Draft202012Validator(uat.SCHEMA, pattern_options=jsonschema_rs.RegexOptions())
PROBE = {"version": 1, "url": "https://shop.example/api/health?deep=1", "expect": {"status": 200}}


def places(**other: Any) -> list[str]:
    """Where a probe is wrong by its schema, or else by code."""
    spec = {name: value for name, value in (PROBE | other).items() if value is not None}
    found = ["/".join(("", *map(str, error.instance_path))) or "/" for error in VALIDATOR.iter_errors(spec)]
    return found or [problem.pointer for problem in probe.problems(spec)]


@pytest.mark.parametrize(
    "other",
    [
        {}, {"title": "Health", "method": "POST", "json": {"a": [1]}, "headers": {"Accept": "application/json"}},
        {"url": "http://shop.example:8080"}, {"form": {"a": "b"}, "method": "POST", "follow_redirects": True},
        {"url": "https://shop.example/${secret:path}", "secrets": {"path": {"env": "UAT_PATH"}}},
        {"timeout_ms": 500, "ignore_https_errors": True, "expect": {"json": [{"pointer": "/status", "equals": "ok"}]}},
    ],
)  # fmt: skip
def test_a_good_probe_is_a_good_uat_spec_of_one_critical_check(other: dict[str, Any]) -> None:
    assert places(**other) == []
    checks = probe.as_checks(PROBE | other)
    assert UAT.is_valid(checks)
    assert uat.problems(checks) == []
    assert [check["severity"] for check in checks["checks"]] == ["critical"]


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"url": None}, "/"), ({"expect": None}, "/"), ({"version": 2}, "/version"), ({"unknown": 1}, "/"),
        ({"url": "ftp://shop.example"}, "/url"), ({"url": "shop.example"}, "/url"),
        ({"url": "https://a@b.example"}, "/url"),
        ({"url": "https://${host}/"}, "/url"), ({"url": "https://shop.example\\@evil.example"}, "/url"),
        ({"url": "https://shop.example:99999"}, "/url"), ({"url": "https://[::/"}, "/url"),
        ({"url": "https://shop.example/${missing}"}, "/url"), ({"url": "https://shop.example/?token=abcdef"}, "/url"),
        ({"url": "https://shop.example/\n"}, "/url"), ({"method": "TRACE"}, "/method"),
        ({"headers": {"Authorization": "Bearer abc"}}, "/headers/Authorization"),
        ({"headers": {"X": "${secret:k}"}}, "/headers/X"), ({"json": {}, "form": {}}, "/"), ({"expect": {}}, "/expect"),
        ({"expect": {"json": [{"pointer": "/a", "matches": "("}]}}, "/expect/json/0/matches"),
    ],
)  # fmt: skip
def test_a_bad_probe_is_refused_at_its_own_place(other: dict[str, Any], place: str) -> None:
    assert place in places(**other)


def test_what_the_target_does_not_give_is_named_at_the_probes_own_place() -> None:
    spec = PROBE | {"secrets": {"k": {"env": "UAT_K"}}}
    grant = Grant(name="Other", origins=("https://other.example",))
    found = [problem.pointer for problem in probe.grant_problems(spec, grant)]
    assert found == ["/url", "/secrets/k/env"]
