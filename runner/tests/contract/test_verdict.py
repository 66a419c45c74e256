"""The verdict rule: first failures, then risks, then pass."""

from typing import Any

import pytest
from agentstore_runner.contract.verdict import judge
from hypothesis import given
from hypothesis import strategies as st


def check(name: str, status: str = "passed", **known: Any) -> dict[str, Any]:
    return {"id": name, "status": status, "severity": "major", "assertions": 1, "flaky": False, "warnings": [], **known}


OK = check("ok")

TABLE: dict[str, tuple[list[dict[str, Any]], str | None, tuple[str, ...]]] = {
    "one passed check": ([OK], "pass", ()),
    "a failed critical check": ([OK, check("a", "failed", severity="critical")], "fail", ("failed: a",)),
    "a failed major check": ([check("a", "failed"), OK], "fail", ("failed: a",)),
    "failures hide risks": (
        [check("a", "failed"), check("b", "failed", severity="minor"), check("c", "skipped")],
        "fail",
        ("failed: a",),
    ),
    "two failures": ([check("a", "failed"), check("b", "failed")], "fail", ("failed: a", "failed: b")),
    "a failed minor check": ([OK, check("hsts", "failed", severity="minor")], "risk", ("minor failed: hsts",)),
    "a skipped check": ([OK, check("pay", "skipped")], "risk", ("not verified: pay",)),
    "an error beside a pass": ([OK, check("pay", "error")], "risk", ("not verified: pay",)),
    "a flaky check": ([check("cart", flaky=True)], "risk", ("flaky: cart",)),
    "a slow check": ([check("home", warnings=["slow"])], "risk", ("slow: home",)),
    "no assertion at all": ([check("a", assertions=0)], "risk", ("nothing was asserted",)),
    "an assertion only in a failed check": (
        [check("a", assertions=0), check("b", "failed", severity="minor")],
        "risk",
        ("minor failed: b", "nothing was asserted"),
    ),
    "a failed info check does not count": ([OK, check("i", "failed", severity="info")], "pass", ()),
    "a skipped info check does not count": ([OK, check("i", "skipped", severity="info")], "pass", ()),
    "a flaky info check does not count": ([OK, check("i", severity="info", flaky=True)], "pass", ()),
    "info alone asserts nothing": ([check("i", severity="info")], "risk", ("nothing was asserted",)),
    "only errors": ([check("a", "error")], None, ("not verified: a",)),
    "errors and what was skipped for them": (
        [check("a", "error"), check("b", "skipped")],
        None,
        ("not verified: a", "not verified: b"),
    ),
    "no check": ([], None, ()),
    "a severity that is not told is major": ([{"id": "a", "status": "failed"}], "fail", ("failed: a",)),
}


@pytest.mark.parametrize(("checks", "verdict", "reasons"), TABLE.values(), ids=TABLE.keys())
def test_the_verdict_of(checks: list[dict[str, Any]], verdict: str | None, reasons: tuple[str, ...]) -> None:
    judgement = judge(checks)
    assert (judgement.verdict, judgement.reasons) == (verdict, reasons)


CHECKS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from("abcdefgh"),
            "status": st.sampled_from(["passed", "failed", "error", "skipped"]),
            "severity": st.sampled_from(["critical", "major", "minor", "info"]),
            "assertions": st.integers(0, 2),
            "flaky": st.booleans(),
            "warnings": st.lists(st.just("slow"), max_size=1),
        }
    ),
    max_size=8,
)
RANK = {"pass": 0, "risk": 1, None: 1, "fail": 2}


@given(CHECKS, st.sampled_from(["critical", "major"]))
def test_a_further_serious_failure_always_fails(checks: list[dict[str, Any]], severity: str) -> None:
    assert judge([*checks, check("new", "failed", severity=severity)]).verdict == "fail"


@given(CHECKS, st.sampled_from(["failed", "error", "skipped"]), st.sampled_from(["critical", "major", "minor", "info"]))
def test_a_further_check_that_did_not_pass_never_improves(
    checks: list[dict[str, Any]], status: str, severity: str
) -> None:
    before = judge(checks).verdict
    after = judge([*checks, check("new", status, severity=severity)]).verdict
    assert RANK[after] >= RANK[before]


@given(CHECKS, st.randoms(use_true_random=False))
def test_the_order_of_the_checks_does_not_matter(checks: list[dict[str, Any]], random: Any) -> None:
    mixed = list(checks)
    random.shuffle(mixed)
    assert judge(mixed).verdict == judge(checks).verdict
    assert sorted(judge(mixed).reasons) == sorted(judge(checks).reasons)


@given(CHECKS)
def test_every_verdict_but_pass_has_a_reason_and_pass_has_none(checks: list[dict[str, Any]]) -> None:
    judgement = judge(checks)
    assert bool(judgement.reasons) == (judgement.verdict != "pass" and bool(checks))


@given(CHECKS, CHECKS)
def test_info_checks_never_change_a_verdict_that_stands(
    checks: list[dict[str, Any]], extra: list[dict[str, Any]]
) -> None:
    counted = [item for item in checks if item["severity"] != "info"]
    before = judge(counted).verdict
    if before is not None:
        assert judge([*counted, *({**item, "severity": "info"} for item in extra)]).verdict == before
