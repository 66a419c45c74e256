"""One state machine, several vocabularies: waiting, leased, finished. A finished row never changes again."""

from dataclasses import dataclass
from enum import StrEnum


class EndedBy(StrEnum):
    """Who closed a row. The answer to a late write depends on it: a reaped holder lost its lease, others were told."""

    RUNNER = "runner"
    REAPER = "reaper"
    PERSON = "person"
    SYSTEM = "system"


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """The words and columns that one table uses for the shared state machine."""

    waiting: str
    leased: tuple[str, ...]  # claim sets the first, start the last
    finished: tuple[str, ...]  # how an attempt may end
    failed: str
    cancelled: str
    agent: str  # column that names the agent who may claim
    agent_key: str  # column of `agents` that it holds
    kind: str  # column that says what sort of work it is
    document: str  # column of the work as enqueued
    queued_at: str  # orders the queue among equal priorities
    claimed_at: str
    finished_at: str
    error: str  # column of the error text
    error_code: str | None = None  # column of the machine-readable error, where the table has one
    concurrency_key: str | None = None  # column of a key that one leased row at a time may hold
    kinds: str | None = None  # table of the registered kinds, by name, with their max_run_seconds
    run_limit: str | None = (
        None  # SQL of the seconds that the document of a row allows its work, NULL where it says none
    )
    # SQL of whether the row `waiting` may be leased beside what is leased now. It has a place for `true`, which asks it
    # to keep simultaneous claims from counting the same vacancy twice.
    admits: str | None = None
    # SQL of whether the row `waiting` requires nothing beyond %(capabilities)s, a text[] of what the claimer can do.
    capable: str | None = None
    on_claim: str | None = None  # a statement that goes along with a claim, which it reads as `claimed`
    exclusive: bool = False  # an agent holds at most one leased row

    @property
    def unfinished(self) -> tuple[str, ...]:
        return (self.waiting, *self.leased)

    @property
    def moves(self) -> tuple[tuple[str, str], ...]:
        """Every legal change of status, from and to; the walk trigger is made from it."""
        return (
            (self.waiting, self.leased[0]),
            (self.waiting, self.cancelled),
            *zip(self.leased, self.leased[1:], strict=False),
            *((held, end) for held in self.leased for end in self.finished),
        )
