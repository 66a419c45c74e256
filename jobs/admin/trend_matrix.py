"""What the last runs of a kind say of each check: since when it fails, and whether it can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jobs.models.kind_runs import CheckState, Run

BAD = ("failed", "error")
JUDGED = ("passed", *BAD)
ROWS_AT_MOST = 100


@dataclass(frozen=True, kw_only=True)
class CheckTrend:
    """One check over the runs."""

    key: str
    title: str
    states: Sequence[str]  # in the order of the runs, newest first; empty where a run has no such check
    judged: int  # runs that say passed, failed or error
    passed: int
    failing_since: Run | None  # the first of the failures in a row that the newest judgement belongs to
    failing_runs: int
    is_older: bool  # nothing better came before within these runs: it may fail for longer
    changes: int  # from good to bad or back, from one run to the next, while the spec stayed the same
    flaky: int  # runs in which it passed on another try only

    @property
    def is_flaky(self) -> bool:
        """Whether its result changes by itself: a single change may be a change of what is tested."""
        return self.changes > 1 or self.flaky > 0


def matrix(runs: Sequence[Run]) -> list[CheckTrend]:
    """The checks of the runs, newest first: what fails comes first, then what is flaky, then the rest in its order."""
    by_run = [_by_key(run) for run in runs]
    titles: dict[str, str] = {}
    for found in by_run:
        for check in found.values():
            titles.setdefault(check.key, check.title)
    trends = [_trend(key, title, runs, [found.get(key) for found in by_run]) for key, title in titles.items()]
    return sorted(trends, key=lambda trend: (trend.failing_since is None, not trend.is_flaky, -trend.changes))


def _by_key(run: Run) -> dict[str, CheckState]:
    found: dict[str, CheckState] = {}
    for check in run.checks:
        found.setdefault(check.key, check)
    return found


def _trend(key: str, title: str, runs: Sequence[Run], checks: Sequence[CheckState | None]) -> CheckTrend:
    judged = [(run, check) for run, check in zip(runs, checks, strict=True) if check and check.status in JUDGED]
    failing = []
    for run, check in judged:
        if check.status not in BAD:
            break
        failing.append(run)
    return CheckTrend(
        key=key, title=title, states=[check.status if check else "" for check in checks], judged=len(judged),
        passed=sum(1 for _run, check in judged if check.status == "passed"),
        failing_since=failing[-1] if failing else None, failing_runs=len(failing),
        is_older=len(failing) == len(judged), changes=_changes(judged),
        flaky=sum(1 for _run, check in judged if check.is_flaky),
    )  # fmt: skip


def _changes(judged: Sequence[tuple[Run, CheckState]]) -> int:
    pairs = pairwise(judged)
    return sum(
        1
        for (later, now), (earlier, before) in pairs
        if later.spec_digest
        and later.spec_digest == earlier.spec_digest
        and (now.status in BAD) != (before.status in BAD)
    )
