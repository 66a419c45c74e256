"""The calendar against a walk through every minute, over every change of the clocks that it must bear."""

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.services.calendar import BadExpression, BadZone, Calendar, calendar, splay_offset

BERLIN, NEW_YORK, LORD_HOWE = ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
# Both changes of 2027 in each zone, and one where midnight itself is skipped.
CHANGES = {
    BERLIN: ("2027-03-28T01:00", "2027-10-31T01:00"),
    NEW_YORK: ("2027-03-14T07:00", "2027-11-07T06:00"),
    LORD_HOWE: ("2027-04-03T15:00", "2027-10-02T15:30"),
    "Africa/Cairo": ("2027-04-29T22:00", "2027-10-28T21:00"),
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def between(dates: Calendar, start: datetime, end: datetime) -> list[datetime]:
    """The times later than `start`, up to `end`."""
    return list(takewhile(lambda due: due <= end, dates.after(start)))


def local(times: list[datetime], zone: str) -> list[str]:
    return [f"{due.astimezone(ZoneInfo(zone)):%d %H:%M}" for due in times]


def matches(fields: CronSim, wall: datetime) -> bool:
    """Whether a local time matches, asked of the parsed fields one by one."""
    return (
        wall.minute in fields.minutes
        and wall.hour in fields.hours
        and wall.month in fields.months
        and fields.match_day(wall.date())
    )


def walked(dates: Calendar, start: datetime, end: datetime) -> list[datetime]:
    """The same by looking at each minute: the wall's clock, and for fixed times also what it skips and repeats."""

    def minutes() -> Iterator[datetime]:
        minute = start.replace(second=0, microsecond=0)
        while minute <= end:
            yield minute
            minute += MINUTE

    def wall(minute: datetime) -> datetime:
        return minute.astimezone(dates.zone).replace(tzinfo=None, fold=0)

    found = []
    fields = CronSim(dates.expression, datetime(2000, 1, 1))  # noqa: DTZ001  (its fields are read)
    furthest = max(wall(start - k * MINUTE) for k in range(4 * 60))  # what the wall has shown before
    for minute in minutes():
        now = wall(minute)
        if dates.is_fixed:
            shown = []
            while furthest < now:  # also what it jumps over; a minute that comes again is not ahead
                furthest += MINUTE
                shown.append(furthest)
            is_due = any(matches(fields, one) for one in shown)
        else:
            is_due = matches(fields, now)
        if is_due and minute > start:
            found.append(minute)
    return found


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.one_of(st.just("*"), spans), st.integers(1, 30)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    lists = st.lists(number, min_size=1, max_size=4).map(lambda numbers: ",".join(map(str, numbers)))
    return st.one_of(st.just("*"), number.map(str), spans, steps, lists)


EXPRESSIONS = st.tuples(
    field(0, 59),
    st.one_of(field(0, 23), field(0, 3)),
    st.one_of(st.just("*"), field(1, 31), st.just("L")),
    st.just("*"),
    st.one_of(st.just("*"), field(0, 7)),
).map(" ".join)
AROUND = [(zone, at(text)) for zone, texts in CHANGES.items() for text in texts]


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.sampled_from(AROUND), st.integers(0, 48 * 3600))
def test_around_every_change_of_clocks_the_times_are_those_of_a_walk_through_each_minute(
    expression: str, place: tuple[str, datetime], seconds: int
) -> None:
    zone, change = place
    try:
        dates = calendar(expression, zone)
    except BadExpression:
        return
    start = change - timedelta(hours=40) + timedelta(seconds=seconds)
    end = start + timedelta(hours=50)
    assert between(dates, start, end) == walked(dates, start, end)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1)))  # noqa: DTZ001
def test_times_come_in_order_each_once_and_asking_from_any_of_them_goes_on_the_same_way(
    expression: str, zone: str, naive: datetime
) -> None:
    try:
        dates = calendar(expression, zone)
    except BadExpression:
        return
    start = naive.replace(tzinfo=UTC)
    times = list(islice(dates.after(start), 20))
    assert all(one < later for one, later in pairwise([start, *times]))
    assert all(due.tzinfo is UTC and not due.second and not due.microsecond for due in times)
    if times:
        middle = random.randrange(len(times))
        assert list(islice(dates.after(times[middle]), len(times) - middle - 1)) == times[middle + 1 :]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), EXPRESSIONS, st.from_regex(r"([0-9*/,#L-]{1,6} ){4}[0-9*/,#LW-]{1,6}")))
def test_any_text_is_a_calendar_with_words_or_a_refusal_with_a_reason(text: str) -> None:
    with suppress(BadExpression):
        dates = calendar(text, "UTC")
        assert dates.words
        assert dates.next(at("2026-01-01T00:00"))


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "@daily", "0 0 31 2 *", "0 0 30,31 2 *", "0 0 31 4,6,9,11 *", "60 * * * *",
     "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "* * * * MON#6", "a b c d e",
     "1\u0662 * * * *", "x" * 10_000, "9" * 5_000 + " * * * *", "* * * * *; ls", "0 2 * * *\x00"],
    ids=lambda text: repr(text[:18]),
)  # fmt: skip
def test_what_would_never_be_due_or_means_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        calendar(text, "UTC")


@pytest.mark.parametrize("zone", ["", "Mars/X", "europe/berlin", "../../etc/passwd", "/etc/localtime", "localtime",
                                  "UTC\x00", "+02:00", "x" * 10_000])  # fmt: skip
def test_a_zone_that_is_not_in_the_time_zone_database_is_refused(zone: str) -> None:
    with pytest.raises(BadZone):
        calendar("0 2 * * *", zone)


@pytest.mark.parametrize(
    ("zone", "expression", "start", "times"),
    [
        (BERLIN, "30 2 * * *", "2027-03-27T12:00", ["28 03:00", "29 02:30"]),
        (BERLIN, "30 2 * * *", "2027-10-30T12:00", ["31 02:30", "01 02:30"]),
        (BERLIN, "0,30 2 * * *", "2027-03-27T12:00", ["28 03:00", "29 02:00"]),
        (NEW_YORK, "30 2 * * *", "2027-03-13T12:00", ["14 03:00", "15 02:30"]),
        (NEW_YORK, "30 1 * * *", "2027-11-06T12:00", ["07 01:30", "08 01:30"]),
        (LORD_HOWE, "15 2 * * *", "2027-10-02T05:00", ["03 02:30", "04 02:15"]),
        (LORD_HOWE, "45 1 * * *", "2027-04-03T05:00", ["04 01:45", "05 01:45"]),
        ("Africa/Cairo", "0 0 * * *", "2027-04-29T12:00", ["30 01:00", "01 00:00"]),
    ],
)  # fmt: skip
def test_a_fixed_time_comes_once_a_day_also_when_the_clocks_skip_or_repeat_it(
    zone: str, expression: str, start: str, times: list[str]
) -> None:
    assert local(list(islice(calendar(expression, zone).after(at(start)), 2)), zone) == times


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("expression", ["*/15 * * * *", "* * * * *", "*/5 */1 * * *"])
def test_what_goes_by_elapsed_time_keeps_its_pace_through_every_change(zone: str, expression: str) -> None:
    pace = {"*/15 * * * *": 15, "* * * * *": 1, "*/5 */1 * * *": 5}[expression]
    for text in CHANGES[zone]:
        times = between(calendar(expression, zone), at(text) - DAY, at(text) + DAY)
        assert {later - earlier for earlier, later in pairwise(times)} == {pace * MINUTE}


def test_an_hour_that_comes_twice_counts_twice_for_elapsed_time_and_a_half_one_for_its_half() -> None:
    times = between(calendar("*/15 1 * * *", LORD_HOWE), at("2027-04-03T13:59"), at("2027-04-03T15:59"))
    assert local(times, LORD_HOWE) == ["04 01:00", "04 01:15", "04 01:30", "04 01:45", "04 01:30", "04 01:45"]


def test_asking_inside_the_repeated_hour_never_gives_a_time_that_has_passed() -> None:
    second_0210 = at("2027-10-31T01:10")
    assert calendar("30 2 * * *", BERLIN).next(second_0210) == at("2027-11-01T01:30")


def test_nine_in_the_morning_stays_nine_in_the_morning_all_year() -> None:
    times = list(islice(calendar("0 9 * * *", NEW_YORK).after(at("2026-06-01T00:00")), 400))
    assert {text[3:] for text in local(times, NEW_YORK)} == {"09:00"}


@pytest.mark.parametrize(
    ("expression", "start", "times"),
    [
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 29 2 *", "2096-03-01T00:00", ["2104-02-29"]),
        ("0 0 * 2 SUN#5", "2026-01-01T00:00", ["2032-02-29"]),
        ("59 23 31 12 *", "2026-12-31T23:59", ["2027-12-31", "2028-12-31"]),
        ("0 0 1 1 *", "2026-12-31T23:59", ["2027-01-01"]),
        ("0 0 L * *", "2028-02-01T00:00", ["2028-02-29", "2028-03-31"]),
        ("0 0 13 * FRI", "2027-08-12T00:00", ["2027-08-13", "2027-08-20"]),  # either, as cron has it
    ],
)  # fmt: skip
def test_leap_days_year_ends_and_last_days_are_found(expression: str, start: str, times: list[str]) -> None:
    found = islice(calendar(expression, "UTC").after(at(start)), len(times))
    assert [f"{due:%Y-%m-%d}" for due in found] == times


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 * * * *", "0 */3 * * *", "15 1-4 * * 1-6"])
def test_where_cronsim_itself_is_right_both_agree(zone: str, expression: str) -> None:
    start = at("2027-01-01T00:00")
    theirs = CronSim(expression, start.astimezone(ZoneInfo(zone)))
    expected = [due.astimezone(UTC) for due in islice(theirs, 3000)]
    assert list(islice(calendar(expression, zone).after(start), 3000)) == expected


def test_every_agent_has_an_offset_of_its_own_that_never_changes_and_all_are_spread_over_the_splay() -> None:
    offsets = [splay_offset(f"host-{number}", 1800).total_seconds() for number in range(400)]
    assert offsets == [splay_offset(f"host-{number}", 1800).total_seconds() for number in range(400)]
    assert splay_offset("fw-berlin-1", 1800) == timedelta(seconds=22)
    assert all(0 <= offset <= 1800 for offset in offsets)
    thirds = [sum(third * 600 <= offset < third * 600 + 600 for offset in offsets) for third in range(3)]
    assert min(thirds) > 90


def test_without_a_splay_nobody_waits() -> None:
    assert {splay_offset(f"host-{number}", 0) for number in range(50)} == {timedelta()}
