"""What follows a failure, and what would follow each kind of it: the retry policy in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from jobs.engine.failure_classes import DEFAULT_POLICY, MEANINGS, FailureClass, RetryPolicy, RetryRule, known, policy_of
from jobs.engine.leased import Leased
from jobs.models import JobKind
from jobs.services.capabilities import Lack

from .badges import in_words, span


@dataclass(frozen=True, kw_only=True)
class PolicyLine:
    """One class of failure: what it means, and when it is tried again."""

    word: str
    meaning: str
    retries: str
    is_this: bool


def policy(kind: JobKind | None) -> RetryPolicy:
    """The policy of a kind; that of the product for what has none."""
    return policy_of(kind.retry_rules, kind.retry_jitter_percent) if kind else DEFAULT_POLICY


def meaning(failure_class: str | None) -> str:
    """What a class of failure means; empty for none."""
    return MEANINGS[known(failure_class)] if failure_class else ""


def policy_lines(found: RetryPolicy, failure_class: str | None) -> list[PolicyLine]:
    """The whole policy; the line of `failure_class` is marked."""
    this = known(failure_class) if failure_class else None
    return [
        PolicyLine(word=word, meaning=MEANINGS[word], retries=in_sentence(found.rules[word]), is_this=word is this)
        for word in FailureClass
    ]


def in_sentence(rule: RetryRule) -> str:
    """When a class is tried again, in words."""
    if not rule.delays:
        return _("not by itself")
    waits = [span(timedelta(seconds=delay)) if delay else _("at once") for delay in rule.delays]
    if rule.repeats:
        return _("after %(waits)s, then every %(last)s") % {"waits": ", ".join(waits), "last": waits[-1]}
    return _("after %s") % ", ".join(waits) if any(rule.delays) else ", ".join(waits)


def what_next(row: Leased, chain: Sequence[Leased], found: RetryPolicy, at: datetime) -> str:
    """What follows a failure: the attempt that waits, or why there is none, and what a person may do.

    Empty for everything but a failed row.
    """
    life = row.lifecycle
    if row.status != life.failed:
        return ""
    later = next((other for other in chain if other.attempt == row.attempt + 1), None)
    if later is not None:
        numbers = {"n": later.attempt, "max": max(later.attempt, later.max_attempts)}
        if later.status == life.waiting and later.not_before and later.not_before > at:
            when = {"at": _clock(later.not_before, at), "when": in_words(later.not_before, at)}
            return _("Attempt %(n)d of %(max)d starts by itself at %(at)s, %(when)s.") % (numbers | when)
        if later.status == life.waiting:
            return _("Attempt %(n)d of %(max)d waits for the agent.") % numbers
        return _("Attempt %(n)d of %(max)d followed.") % numbers
    return f"{_why_not(row, chain, found)} {_('A person may retry it, beyond the attempts too.')}"


def why_nobody(found: Lack | None) -> str:
    """Why a waiting task is handed to nobody; empty where nothing keeps it."""
    if found is None:
        return ""
    names = {"names": ", ".join(found.names)}
    if not found.is_known:
        return _("It waits for a runner of its agent that can %(names)s; none has said so yet.") % names
    if found.others:
        return _("Its agent cannot %(names)s, though others can: update restic and the runner on its host.") % names
    return _("No agent can %(names)s: update restic and the runner on its host.") % names


def _why_not(row: Leased, chain: Sequence[Leased], found: RetryPolicy) -> str:
    if row.cancel_requested_at and row.cancel_requested_at != row.overdue_at:
        return _("Not tried again: a cancel was requested.")
    if not row.claim_id:
        return _("Not tried again by itself: a client wrote this row in SQL, and that client decides.")
    rule = found.rules[known(row.failure_class)]
    if not rule.delays:
        return _("Not tried again by itself: a failure of this class comes back until it is mended.")
    if row.attempt >= row.max_attempts:
        return _("Not tried again by itself: all %(n)d attempts are used up.") % {"n": row.max_attempts}
    failures = sum(1 for other in chain if other.failure_class == row.failure_class and other.attempt <= row.attempt)
    if rule.delay(failures) is None:
        return _("Not tried again by itself: failures of this class are retried %(n)d times at most.") % {
            "n": len(rule.delays)
        }
    # Today's policy would retry it; rows that ended before it was changed keep what they got.
    return _("Not tried again by itself: the policy of its kind was another one when it failed.")


def _clock(value: datetime, at: datetime) -> str:
    """The time of day with its zone; with the date if it is another day."""
    local = localtime(value)
    return date_format(local, "H:i T" if local.date() == localtime(at).date() else "j M H:i T")


def limits(kind: JobKind | None, row: Leased, found: RetryPolicy) -> list[tuple[Any, Any]]:
    """What bounds the work and its retries."""
    facts = [
        (_("Attempts at most"), row.max_attempts),
        (_("Spread of delays"), _("up to %d %% more") % found.jitter_percent),
    ]
    if kind:
        facts.append((_("Maximum run time"), span(timedelta(seconds=kind.max_run_seconds))))
    return facts
