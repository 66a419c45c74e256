"""Why an attempt failed, in ten words, and what each word means for another attempt.

The vocabulary is closed and shared by every leased table. A class that a newer runner sends is stored as `internal`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID


class FailureClass(StrEnum):
    TRANSIENT = "transient"
    LOCKED = "locked"
    RESOURCE = "resource"
    CONFIGURATION = "configuration"
    SOURCE = "source"
    REPOSITORY = "repository"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    INTERNAL = "internal"


MEANINGS: dict[FailureClass, str] = {
    FailureClass.TRANSIENT: "network or a server's passing fault",
    FailureClass.LOCKED: "a lock is held by living work",
    FailureClass.RESOURCE: "out of space, quota or memory",
    FailureClass.CONFIGURATION: "needs a person: setting, credential, permission or payload",
    FailureClass.SOURCE: "the source is missing, unreadable or empty",
    FailureClass.REPOSITORY: "the repository is damaged",
    FailureClass.LOST: "the agent fell silent and its lease lapsed",
    FailureClass.INTERRUPTED: "the agent was shut down or its work was killed",
    FailureClass.TIMEOUT: "a time limit ended the work",
    FailureClass.INTERNAL: "a fault of the runner, or a report it could not explain",
}

MAX_DELAYS, MAX_DELAY_SECONDS = 10, 7 * 86400
JITTER_PERCENT = 10


@dataclass(frozen=True, kw_only=True)
class RetryRule:
    """When failures of one class are tried again: after each of `delays` (seconds) once, the last again and again if
    it `repeats`. No delays: never."""

    delays: tuple[int, ...] = ()
    repeats: bool = False

    def delay(self, failures: int) -> timedelta | None:
        """The wait before the next attempt after `failures` (1 or more) of this class in a chain; None is never."""
        if not self.delays or (failures > len(self.delays) and not self.repeats):
            return None
        return timedelta(seconds=self.delays[min(failures, len(self.delays)) - 1])


RULES: dict[FailureClass, RetryRule] = {
    FailureClass.TRANSIENT: RetryRule(delays=(60, 300, 900), repeats=True),
    FailureClass.LOCKED: RetryRule(delays=(300, 600, 1200, 1800), repeats=True),
    FailureClass.RESOURCE: RetryRule(delays=(3600,)),
    FailureClass.CONFIGURATION: RetryRule(),
    FailureClass.SOURCE: RetryRule(),
    FailureClass.REPOSITORY: RetryRule(),
    FailureClass.LOST: RetryRule(delays=(300, 600)),
    FailureClass.INTERRUPTED: RetryRule(delays=(0, 0)),
    FailureClass.TIMEOUT: RetryRule(delays=(1800,)),
    FailureClass.INTERNAL: RetryRule(delays=(60,)),
}


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """What follows each class of failure; `jitter_percent` of a delay is added at most, so that failures of one cause
    do not come back together."""

    rules: Mapping[FailureClass, RetryRule]
    jitter_percent: int = JITTER_PERCENT

    def next_delay(
        self, failure_class: str | None, *, failures: int, attempt: int, max_attempts: int, row_id: UUID
    ) -> timedelta | None:
        """How long to wait before another attempt; None when the class or the chain's budget says stop.

        The jitter comes from the id of the row that failed: the same row gives the same delay.
        """
        if attempt >= max_attempts:
            return None
        delay = self.rules[known(failure_class)].delay(failures)
        if delay is None:
            return None
        share = int.from_bytes(hashlib.sha256(row_id.bytes).digest()[:4]) / 2**32
        return delay * (1 + share * self.jitter_percent / 100)


DEFAULT_POLICY = RetryPolicy(rules=RULES)


def policy_of(stored: object, jitter_percent: object) -> RetryPolicy:
    """The policy of a kind: the product's rules, and over them what its row says.

    What cannot be a rule, as SQL clients may write, counts as not said: one bad row must stop no reaper.
    """
    said = stored if isinstance(stored, dict) else {}
    own = {word: rule for word in FailureClass if (rule := rule_of(said.get(word))) is not None}
    jitter = jitter_percent if isinstance(jitter_percent, int) and 0 <= jitter_percent <= 100 else JITTER_PERCENT
    return RetryPolicy(rules=RULES | own, jitter_percent=jitter)


def rule_of(said: object) -> RetryRule | None:
    """The rule that {"delays": [seconds …], "repeats": bool} means; None for anything else."""
    match said:
        case {"delays": [*delays], "repeats": bool(repeats)} if len(delays) <= MAX_DELAYS and all(map(_fits, delays)):
            return RetryRule(delays=tuple(delays), repeats=repeats)
    return None


def _fits(delay: object) -> bool:
    return isinstance(delay, int) and not isinstance(delay, bool) and 0 <= delay <= MAX_DELAY_SECONDS


def known(failure_class: str | None) -> FailureClass:
    """The class itself, or `internal` for a word that this server does not know."""
    try:
        return FailureClass(failure_class or "")
    except ValueError:
        return FailureClass.INTERNAL
