"""The outbox: notices are released alone or as a digest, taken by one sender at a time, and sent until they arrive.

A sender takes a notice by moving its next attempt ahead. If it dies between sending and saying so, the notice is sent
again under the same delivery id: at least once, and a receiver can tell.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from django.db import connection, transaction
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.models import Event, Notice, NoticeChannel

from .sending import send
from .webhooks import UndeliveredError

Status = Notice.Status
# Seconds from one attempt to the next: a receiver may be down for a night. After the last one a person decides.
DELAYS = (30, 60, 300, 900, 3600, 3 * 3600, 6 * 3600)
MAX_ATTEMPTS = len(DELAYS) + 1
TAKEN = timedelta(minutes=2)  # longer than any transport may take
AT_ONCE = 16  # channels; a round takes as long as the slowest of them
ROUNDS_SECONDS = 3.0  # after it no round begins: the loop has other duties
LISTED = 40  # lines of a digest
KEPT = timedelta(days=90)


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """What one round of the outbox came to."""

    sent: int
    failed: int
    digests: int


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """How many notices were removed since they ended long ago."""

    notices: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one attempt ended; an empty error means that the message arrived."""

    notice: Notice
    error: str


def deliver() -> Delivered:
    """Release what was held, and send what is due for about ROUNDS_SECONDS. Any number of loops may call this.

    Each channel gets its messages one after another, in order; the channels do not wait for each other.
    """
    holding = Notice.objects.filter(status=Status.HELD).values_list("channel", flat=True).distinct()
    digests = sum(_release(channel_id) for channel_id in holding)
    sent = failed = 0
    began = time.monotonic()
    while time.monotonic() - began < ROUNDS_SECONDS and (taken := _take()):
        with ThreadPoolExecutor(max_workers=len(taken)) as senders:
            outcomes = list(senders.map(attempt, taken))
        arrived = sum(_note(outcome) for outcome in outcomes)
        sent, failed = sent + arrived, failed + len(outcomes) - arrived
    return Delivered(sent=sent, failed=failed, digests=digests)


def attempt(notice: Notice) -> Outcome:
    """Send one notice, once. Touches no row."""
    try:
        send(notice)
    except UndeliveredError as error:
        return Outcome(notice=notice, error=str(error))
    return Outcome(notice=notice, error="")


@transaction.atomic
def _release(channel_id: UUID) -> int:
    """Let held notices go: alone while they are few, in a storm together and once in a window. How many digests."""
    channel = NoticeChannel.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=channel_id).first()
    if channel is None:  # another loop is at it
        return 0
    held = list(Notice.objects.filter(channel=channel, status=Status.HELD).order_by("id"))
    window = Now() - timedelta(seconds=channel.digest_seconds)
    lately = Notice.objects.filter(channel=channel, released_at__gt=window).exclude(event=Event.TEST)
    rows = Notice.objects.filter(pk__in=[notice.pk for notice in held])
    if len(held) + lately.count() <= channel.digest_over:
        rows.update(status=Status.WAITING, released_at=Now(), next_attempt_at=Now())
        return 0
    if lately.filter(event=Event.DIGEST).exists():
        return 0
    digest = _digest(channel, held)
    rows.update(status=Status.DIGESTED, digest=digest)
    return 1


def _digest(channel: NoticeChannel, held: Sequence[Notice]) -> Notice:
    title = ngettext("%d event", "%d events", len(held)) % len(held)
    lines = [notice.title for notice in held[:LISTED]]
    if len(held) > LISTED:
        lines.append(_("and %d more") % (len(held) - LISTED))
    return Notice.objects.create(
        channel=channel, event=Event.DIGEST, title=title, body="\n".join(lines), status=Status.WAITING,
        path=reverse("admin:index"), released_at=Now(), next_attempt_at=Now(),
    )  # fmt: skip


def _take() -> list[Notice]:
    """The first due notice of each channel, this sender's until TAKEN has passed; each counts as an attempt."""
    claim_id = uuid4()
    with connection.cursor() as cursor:
        cursor.execute(
            """WITH due AS MATERIALIZED (
              SELECT first.id FROM notice_channels AS channel CROSS JOIN LATERAL (
                SELECT id FROM notices
                WHERE channel_id = channel.id AND status = 'waiting' AND next_attempt_at <= statement_timestamp()
                ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
              ) AS first WHERE channel.enabled LIMIT %(at_once)s
            )
            UPDATE notices SET claim_id = %(claim_id)s, attempts = attempts + 1,
              next_attempt_at = statement_timestamp() + make_interval(secs => %(taken)s)
            FROM due WHERE notices.id = due.id""",
            {"at_once": AT_ONCE, "claim_id": claim_id, "taken": TAKEN.total_seconds()},
        )
    return list(Notice.objects.filter(claim_id=claim_id, status=Status.WAITING).select_related("channel", "rule"))


def _note(outcome: Outcome) -> bool:
    """Write down how an attempt ended, unless another sender took the notice meanwhile. Whether it arrived."""
    notice = outcome.notice
    mine = Notice.objects.filter(pk=notice.pk, claim_id=notice.claim_id, status=Status.WAITING)
    if not outcome.error:
        mine.update(status=Status.SENT, sent_at=Now(), last_error="", next_attempt_at=None)
        return True
    if notice.attempts >= MAX_ATTEMPTS:
        mine.update(status=Status.DEAD, last_error=outcome.error, next_attempt_at=None)
    else:
        delay = timedelta(seconds=DELAYS[notice.attempts - 1])
        mine.update(last_error=outcome.error, next_attempt_at=Now() + delay)
    return False


def forget() -> Forgotten:
    """Remove notices that ended long ago, 500 at most."""
    old = Notice.objects.filter(created_at__lt=Now() - KEPT).exclude(status__in=[Status.HELD, Status.WAITING])
    removed, _by_model = Notice.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:500])).delete()
    return Forgotten(notices=removed)
