"""The verdict of a run: computed from its checks, never taken from whoever ran them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Judgement:
    """`pass`, `risk` or `fail` with the reasons; None when nothing could be evaluated."""

    verdict: str | None
    reasons: tuple[str, ...]


def judge(checks: Iterable[Mapping[str, Any]]) -> Judgement:
    """Judge check results: the first rule that applies decides (failed, then risk, then pass).

    A failed critical or major check is a fail. A failed minor check, one that was not evaluated, a flaky one, a slow
    one, or the absence of any assertion in a passed check is a risk. Checks of severity `info` never count.
    """
    every = list(checks)
    if not any(check["status"] in ("passed", "failed") for check in every):
        return Judgement(None, tuple(f"not verified: {check['id']}" for check in every))
    counted = [check for check in every if check.get("severity", "major") != "info"]
    failed = [check for check in counted if check["status"] == "failed"]
    serious = [check for check in failed if check.get("severity", "major") != "minor"]
    if serious:
        return Judgement("fail", tuple(f"failed: {check['id']}" for check in serious))
    passed = [check for check in counted if check["status"] == "passed"]
    reasons = [f"minor failed: {check['id']}" for check in failed]
    reasons += [f"not verified: {check['id']}" for check in counted if check["status"] in ("error", "skipped")]
    reasons += [f"flaky: {check['id']}" for check in passed if check.get("flaky")]
    reasons += [f"slow: {check['id']}" for check in passed if check.get("warnings")]
    if not any(check.get("assertions", 0) for check in passed):
        reasons.append("nothing was asserted")
    return Judgement("risk" if reasons else "pass", tuple(reasons))
