"""Which trust rule lets a workflow run act as its agent; pure, so that a page can explain it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .tokens import Claims, Refused

# What a stranger can set off is missing: pull_request and pull_request_target run for anybody's fork.
EVENTS = ("workflow_dispatch", "schedule", "repository_dispatch", "push")
ENVIRONMENTS = ("github-hosted", "self-hosted")
NARROWING = ("workflow", "reusable_workflow", "ref", "environment", "event_name", "runner_environment")
NOBODY = "It is genuine, but no rule trusts this run; an administrator finds why under the reference."

FILE = r"[^/\x00-\x1f]{1,200}?\.ya?ml"
# A file name may hold "@", and so may a branch: the first "@" behind the suffix ends the file.
WORKFLOW, REF = re.compile(FILE), re.compile(r"refs/[^\x00-\x1f]+")
REUSABLE = re.compile(rf"(?P<path>[^/\x00-\x1f@]+/[^/\x00-\x1f@]+/{FILE})(?:@(?P<ref>refs/.+|[0-9a-f]{{40,64}}))?")
_REF = re.compile(
    rf"(?P<repository>[^/]+/[^/]+)/\.github/workflows/(?P<file>{FILE})@(?P<ref>refs/.+|[0-9a-f]{{40,64}})"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a run must be. Ids are mandatory; an empty text narrows nothing.

    `workflow` is a file name below .github/workflows. `reusable_workflow`, OWNER/REPO/FILE with an optional @REF, lets
    the job come from that file of another repository; without it the job must stand in the workflow itself.
    """

    id: Any
    agent: Any
    issuer: str
    repository_id: str
    repository_owner_id: str
    workflow: str = ""
    reusable_workflow: str = ""
    ref: str = ""
    environment: str = ""
    event_name: str = ""
    runner_environment: str = ""

    @property
    def narrowness(self) -> int:
        """How many optional conditions it makes."""
        return sum(bool(getattr(self, name)) for name in NARROWING)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a rule takes a run; else the first claim that differs, and why in a sentence."""

    rule: Rule
    claim: str = ""
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the rule takes the run."""
        return not self.claim


def judge(rules: Iterable[Rule], claims: Claims) -> list[Judgement]:
    """What each rule says of a run, the most telling first: those that hold, then those that fail latest."""
    found = [(_Judging(rule, claims), rule) for rule in rules]
    told = [
        (judging.passed, Judgement(rule=rule, claim=judging.claim, reason=judging.reason)) for judging, rule in found
    ]
    told.sort(key=lambda one: (one[1].holds, one[0], one[1].rule.narrowness), reverse=True)
    return [judgement for _, judgement in told]


def choose(judgements: list[Judgement], claims: Claims) -> Rule:
    """The rule that decides: of those that hold the narrowest. Raises Refused, also when two agents are meant alike."""
    holding = [one.rule for one in judgements if one.holds]
    if not holding:
        first = judgements[0] if judgements else None
        reason = first.reason if first else "No rule is made for this repository and its owner."
        claim, rule = (first.claim, first.rule.id) if first else ("repository_id", None)
        raise Refused(reason, advice=NOBODY, claim=claim, shown=claims.shown, rule=rule)
    narrowest = max(rule.narrowness for rule in holding)
    best = [rule for rule in holding if rule.narrowness == narrowest]
    if len({rule.agent for rule in best}) > 1:
        raise Refused(
            "Rules of several agents fit equally well.",
            advice=NOBODY,
            claim="rule",
            shown=claims.shown,
            rule=best[0].id,
        )
    return best[0]


class _Judging:
    """Walks the conditions of a rule to the first that fails; `passed` counts those before it."""

    def __init__(self, rule: Rule, claims: Claims) -> None:
        self.claim, self.reason, self.passed = "", "", 0
        for claim, problem in _conditions(rule, claims):
            if problem:
                self.claim, self.reason = claim, problem
                break
            self.passed += 1


def _conditions(rule: Rule, claims: Claims) -> Iterator[tuple[str, str]]:
    """Each claim that counts, in order, with what is wrong with it."""
    yield _same("iss", claims.issuer.url, rule.issuer)
    yield _same("repository_id", claims.repository_id, rule.repository_id)
    yield _same("repository_owner_id", claims.repository_owner_id, rule.repository_owner_id)
    events = (rule.event_name,) if rule.event_name else EVENTS
    is_taken = claims.event_name in events
    yield "event_name", "" if is_taken else f"The event is {claims.event_name}, not one of {', '.join(events)}."
    own = _REF.fullmatch(claims.workflow_ref)
    if own is None or own["repository"] != claims.repository:
        yield "workflow_ref", "It names no workflow file of its own repository."
        return
    if rule.workflow:
        yield _same("workflow_ref", own["file"], rule.workflow)
    yield "job_workflow_ref", _reuse_problem(rule, claims)
    if rule.ref:
        yield _same("ref", claims.ref, rule.ref)
    if rule.environment:
        yield _same("environment", claims.environment.casefold(), rule.environment.casefold())
    if rule.runner_environment:
        yield _same("runner_environment", claims.runner_environment, rule.runner_environment)


def _reuse_problem(rule: Rule, claims: Claims) -> str:
    if not rule.reusable_workflow:
        if claims.job_workflow_ref == claims.workflow_ref:
            return ""
        return "The job comes from a reusable workflow, and the rule names none."
    called = _REF.fullmatch(claims.job_workflow_ref)
    wanted = REUSABLE.fullmatch(rule.reusable_workflow)
    if (
        called is None
        or wanted is None
        or f"{called['repository']}/{called['file']}" != wanted["path"]
        or (wanted["ref"] and called["ref"] != wanted["ref"])
    ):
        return f"The job comes from {claims.job_workflow_ref[:200]}, not from {rule.reusable_workflow}."
    return ""


def _same(claim: str, said: str, wanted: str) -> tuple[str, str]:
    if said == wanted:
        return claim, ""
    return (
        claim,
        f"It is {said[:200]!r}, the rule wants {wanted!r}." if said else f"It is empty, the rule wants {wanted!r}.",
    )
