"""The results document: built by the runner, checked by the server."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from agentstore_runner.contract import results
from agentstore_runner.contract.results import check_result, mismatches, problems
from hypothesis import given
from hypothesis import strategies as st

NOON = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
CHECK = {"id": "home", "title": "Home page", "severity": "critical"}


def document(*checks: dict[str, Any]) -> dict[str, Any]:
    return results.document(
        kind="uat.quick-task",
        started_at=NOON,
        finished_at=NOON,
        runner={"name": "agentstore-runner", "version": "1", "browser": None},
        target={"base_url": "https://shop.example", "environment": None},
        test_marker=None,
        verdict="pass",
        reasons=[],
        checks=list(checks) or [check_result(CHECK, "passed", assertions=1)],
        redaction={"version": 1, "count": 0},
    )


def test_what_the_builders_make_is_valid() -> None:
    assert problems(document()) == []
    assert document()["started_at"] == "2026-11-30T12:00:00.123Z"


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    built = copy.deepcopy(document())
    change(built)
    return built


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a missing field": (broken(lambda d: d.pop("kind")), "/kind"),
    "an unknown field": (broken(lambda d: d.update(har={})), "/har"),
    "another schema": (broken(lambda d: d.update(schema="agentstore.results/2")), "/schema"),
    "an unknown verdict": (broken(lambda d: d.update(verdict="great")), "/verdict"),
    "a time without a zone": (broken(lambda d: d.update(started_at="2026-11-30T12:00:00")), "/started_at"),
    "a time that is a number": (broken(lambda d: d.update(started_at=5)), "/started_at"),
    "checks that are no list": (broken(lambda d: d.update(checks={})), "/checks"),
    "a check that is no object": (broken(lambda d: d.update(checks=["x"])), "/checks"),
    "too many checks": (broken(lambda d: d.update(checks=d["checks"] * 201)), "/checks"),
    "an unknown status": (broken(lambda d: d["checks"][0].update(status="ok")), "/checks/0/status"),
    "an unknown code": (broken(lambda d: d["checks"][0].update(code="oops")), "/checks/0/code"),
    "a failure without a code": (broken(lambda d: d["checks"][0].update(status="failed")), "/checks/0/code"),
    "an error with a failure's code": (
        broken(lambda d: d["checks"][0].update(status="error", code="json")),
        "/checks/0/code",
    ),
    "a long message": (broken(lambda d: d["checks"][0].update(message="x" * 501)), "/checks/0/message"),
    "a NUL": (broken(lambda d: d["checks"][0].update(message="\0")), "/checks/0/message"),
    "a negative duration": (broken(lambda d: d["checks"][0].update(duration_ms=-1)), "/checks/0/duration_ms"),
    "a duration that is true": (broken(lambda d: d["checks"][0].update(duration_ms=True)), "/checks/0/duration_ms"),
    "a nested detail": (broken(lambda d: d["checks"][0].update(detail={"a": {}})), "/checks/0/detail"),
    "a long detail": (broken(lambda d: d["checks"][0].update(detail={"a": "x" * 201})), "/checks/0/detail"),
    "an unknown field of a check": (broken(lambda d: d["checks"][0].update(body="x")), "/checks/0/body"),
    "an id with a line break at its end": (broken(lambda d: d["checks"][0].update(id="a\n")), "/checks/0/id"),
    "one id twice": (broken(lambda d: d.update(checks=d["checks"] * 2)), "/checks/1/id"),
    "an attempt without a status": (
        broken(lambda d: d["checks"][0].update(attempts=[{}])),
        "/checks/0/attempts/0/status",
    ),
    "a runner with a secret field": (broken(lambda d: d["runner"].update(token="x")), "/runner/token"),
    "a document of two megabytes": (broken(lambda d: d.update(kind="x" * 2_000_000)), ""),
    "a redaction that is a text": (broken(lambda d: d.update(redaction="1")), "/redaction"),
}


@pytest.mark.parametrize(("built", "pointer"), BROKEN.values(), ids=BROKEN.keys())
def test_the_document_must_not_have(built: dict[str, Any], pointer: str) -> None:
    assert pointer in [problem.pointer for problem in problems(built)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["", *document()]), st.sampled_from(["", *document()["checks"][0]]))
def test_no_document_of_any_shape_breaks_the_check(value: Any, field: str, check_field: str) -> None:
    assert problems(value)
    built = document()
    if field:
        built[field] = value
        problems(built)
    built = document()
    if check_field:
        built["checks"][0][check_field] = value
        problems(built)


def test_a_text_that_is_too_long_is_cut_visibly() -> None:
    check = check_result(CHECK, "failed", code="json", message="x" * 900, detail={"a": "y" * 300}, notes=["z" * 300])
    assert problems(document(check)) == []
    assert check["message"].endswith("…")
    assert len(check["message"]) == 500


def test_a_document_that_is_too_large_sheds_notes_first_and_stays_valid() -> None:
    checks = [
        check_result(
            {"id": f"c{n}", "title": "ü" * 200},
            "failed",
            code="assertion",
            message="ü" * 500,
            detail={f"k{k}": "ü" * 200 for k in range(15)},
            notes=["ü" * 200] * 20,
        )
        for n in range(200)
    ]
    built = document(*checks)
    assert len(json.dumps(built, ensure_ascii=False).encode()) <= results.MAX_BYTES
    assert problems(built) == []
    assert built["checks"][0]["message"] == "ü" * 500


def test_a_document_answers_its_spec() -> None:
    spec = {"checks": [{"id": "home", "severity": "critical"}, {"id": "pay"}]}
    told = document(
        check_result({"id": "home", "title": "H", "severity": "info"}, "passed"),
        check_result({"id": "x", "title": "X"}, "passed"),
    )
    assert [problem.pointer for problem in mismatches(told, spec)] == ["/checks/0/severity", "/checks/1/id", "/checks"]
    assert mismatches(document(), {"checks": [CHECK]}) == []
