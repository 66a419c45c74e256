"""What a run has come to: a pure function of its tasks, so that the order of reports can never matter.

Only the effective attempt of a source counts: the open one, else the best, else the newest. A retry that waited past
the deadline never ran, so the attempt before it speaks for its source.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

RunStatus: TypeAlias = Literal[
    "pending", "running", "succeeded", "partial_failure", "failed", "cancelled", "missed"
]  # fmt: skip
_OPEN = ("running", "claimed", "pending")
_BEST = ("succeeded", "partial_failure")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One task of a run. `is_expired`: the clock cancelled it, since no agent began it before its deadline."""

    source: UUID
    status: str
    attempt: int = 1
    is_expired: bool = False
    started_at: datetime | None = None
    bytes_processed: int = 0
    bytes_written: int = 0
    files_processed: int = 0
    files_skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The state of a run, its sources by outcome, and the sums over their effective attempts."""

    status: RunStatus
    sources_succeeded: int
    sources_partial: int
    sources_failed: int
    sources_cancelled: int
    bytes_processed: int
    bytes_written: int
    files_processed: int
    files_skipped: int
    started_at: datetime | None

    @property
    def is_over(self) -> bool:
        """Whether no task of the run can change any more."""
        return self.status not in ("pending", "running")


def aggregate(tasks: Iterable[Attempt], *, sources: int, is_cancelled: bool) -> Aggregate:
    """The state of a run of so many `sources`; `is_cancelled`: somebody asked for a cancel of the run."""
    every = list(tasks)
    by_source: dict[UUID, list[Attempt]] = {}
    for task in every:
        by_source.setdefault(task.source, []).append(task)
    effective = [_effective(attempts) for attempts in by_source.values()]
    counts = Counter(task.status for task in effective)
    started = [task.started_at for task in every if task.started_at]
    return Aggregate(
        status=_status(every, effective, counts, sources=sources, is_cancelled=is_cancelled),
        sources_succeeded=counts["succeeded"],
        sources_partial=counts["partial_failure"],
        sources_failed=counts["failed"],
        sources_cancelled=counts["cancelled"],
        bytes_processed=sum(task.bytes_processed for task in effective),
        bytes_written=sum(task.bytes_written for task in effective),
        files_processed=sum(task.files_processed for task in effective),
        files_skipped=sum(task.files_skipped for task in effective),
        started_at=min(started, default=None),
    )


def _effective(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt that speaks for its source."""
    ran = [task for task in attempts if not task.is_expired] or attempts
    newest_first = sorted(ran, key=lambda task: task.attempt, reverse=True)
    for status in (*_OPEN, *_BEST):
        for task in newest_first:
            if task.status == status:
                return task
    return newest_first[0]


def _status(
    every: Sequence[Attempt],
    effective: Sequence[Attempt],
    counts: Counter[str],
    *,
    sources: int,
    is_cancelled: bool,
) -> RunStatus:
    usable = counts["succeeded"] + counts["partial_failure"]
    if counts["claimed"] or counts["running"]:
        return "running"
    if counts["pending"]:
        has_begun = any(task.status not in ("pending", "cancelled") or task.started_at for task in every)
        return "running" if has_begun else "pending"
    if not sources or not effective:
        return "failed"  # never a success of nothing
    if len(effective) < sources and not is_cancelled:
        return "partial_failure" if usable else "failed"
    if is_cancelled and counts["cancelled"]:
        return "cancelled"
    if all(task.is_expired for task in effective):
        return "missed"
    if counts["succeeded"] == len(effective) and len(effective) >= sources:
        return "succeeded"
    if usable:
        return "partial_failure"
    return "failed" if counts["failed"] else "cancelled"
