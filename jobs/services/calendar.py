"""When a cron expression is due in a time zone: plain calendar arithmetic, without Django and without a clock.

cronsim reads the expression and walks local times that know no zone; how local times become instants is decided here,
as Debian's cron does it. (Given a zone, cronsim itself loses times around changes of half an hour and of midnight.)

- Expressions at fixed times (neither minute nor hour begins with `*`): a local time that a change of the clocks skips
  is due at the first instant after the gap, one that comes twice only the first time.
- All others go by elapsed time: they are due whenever the clock on the wall shows a matching minute, so an hour that
  comes twice counts twice, and one that is skipped not at all.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

MAX_EXPRESSION = 200  # characters
FIELDS = 5
HORIZON = timedelta(days=50 * 366)  # as far as cronsim looks; leap days on a given weekday come every 28 years
MINUTE = timedelta(minutes=1)


class BadExpression(ValueError):
    """The text is no cron expression that will ever be due; the message says why."""


class BadZone(ValueError):
    """There is no time zone of that name."""


@dataclass(frozen=True)
class Calendar:
    """A checked expression in a checked zone; make it with `calendar()`."""

    expression: str
    zone: ZoneInfo

    @property
    def is_fixed(self) -> bool:
        """Whether it names times of the day, as opposed to going by elapsed time."""
        minute, hour, *_ = self.expression.split()
        return not minute.startswith("*") and not hour.startswith("*")

    @property
    def words(self) -> str:
        """The expression in English words."""
        said: str = CronSim(self.expression, datetime.min).explain()  # noqa: DTZ901  read, never walked
        return said

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Every time it is due later than `instant`, in UTC, in order and each once; ends where the horizon does."""
        end = instant + HORIZON
        last = instant
        for due in self._fixed(instant) if self.is_fixed else self._elapsed(instant, end):
            if due > end:
                return
            if due > last:
                yield due
                last = due

    def next(self, instant: datetime) -> datetime:
        """The first time it is due later than `instant`, in UTC. Raises BadExpression where there is none."""
        for due in self.after(instant):
            return due
        raise BadExpression("It is not due within the next 50 years.")

    def _fixed(self, instant: datetime) -> Iterator[datetime]:
        # In a repeated hour this begins with local times whose first occurrence has passed; `after` drops them.
        for local in _walk(self.expression, _local(instant, self.zone)):
            first = local.replace(tzinfo=self.zone).astimezone(UTC)
            if _local(first, self.zone) == local:
                yield first
            else:
                second = local.replace(tzinfo=self.zone, fold=1).astimezone(UTC)  # in a gap this one is the earlier
                yield _change_between(self.zone, second, first)

    def _elapsed(self, instant: datetime, end: datetime) -> Iterator[datetime]:
        """Walk through stretches of one offset each, where local times and instants go in step."""
        begin, walked_from, ahead = instant, datetime.min, datetime.min  # noqa: DTZ901  local times know no zone
        for change in _changes(self.zone, instant, end):
            offset = _offset(begin, self.zone)
            start = _local(begin, self.zone) - (MINUTE if begin != instant else timedelta())  # a change is a minute too
            # Nothing matches before the one that is known to be ahead: rare times are not searched for in each stretch.
            if not (walked_from <= start < ahead and (ahead - offset).replace(tzinfo=UTC) >= change):
                walked_from, ahead = start, datetime.max - timedelta(days=2)  # noqa: DTZ901
                for ahead in _walk(self.expression, start):
                    due = (ahead - offset).replace(tzinfo=UTC)
                    if due >= change:
                        break
                    walked_from = ahead
                    yield due
            begin = change


@lru_cache(maxsize=1024)
def calendar(expression: str, zone: str) -> Calendar:
    """The calendar of a five-field cron expression in an IANA zone. Raises BadExpression or BadZone."""
    if zone not in zones():
        raise BadZone("There is no such time zone: use a name such as Europe/Berlin or UTC.")
    if len(expression) > MAX_EXPRESSION or not expression.isascii():
        raise BadExpression(f"At most {MAX_EXPRESSION} characters, all of them ASCII.")
    fields = expression.upper().split()
    if len(fields) != FIELDS:
        raise BadExpression(
            f"{FIELDS} fields: minute, hour, day of the month, month, day of the week. This has {len(fields)}."
        )
    found = Calendar(" ".join(fields), ZoneInfo(zone))
    try:
        found.next(datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise BadExpression(f"{error}.") from None
    return found


def splay_offset(key: str, seconds: int) -> timedelta:
    """How long the agent of that key waits within a splay of `seconds`: always the same, and spread evenly."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    return timedelta(seconds=number % (seconds + 1))


def _walk(expression: str, after: datetime) -> Iterator[datetime]:
    """Local times that match, later than `after`; the walk ends by itself before the calendar does."""
    try:
        yield from CronSim(expression, after)
    except OverflowError:
        return


def _local(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """The instants between both at which the zone's offset changes, and `end`."""
    for year in range(start.year, min(end.year + 1, MAXYEAR)):
        yield from (change for change in _changes_of(zone, year) if start < change < end)
    yield end


@lru_cache(maxsize=4096)
def _changes_of(zone: ZoneInfo, year: int) -> tuple[datetime, ...]:
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(367)]
    return tuple(
        _change_between(zone, one, next_one)
        for one, next_one in pairwise(days)
        if _offset(one, zone) != _offset(next_one, zone) and one.year == year
    )


def _change_between(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second later than `before` that has the offset of `after`."""
    offset = _offset(before, zone)
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(datetime.fromtimestamp(middle, UTC), zone) == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names of all time zones."""
    # What "localtime" means differs from machine to machine.
    return frozenset(available_timezones() - {"localtime", "Factory"})
