"""Times that Python cannot hold, read as the nearest that it can: one row must not make a list unreadable.

SQL clients may write `infinity`, years before 1 and after 9999; PostgreSQL compares them rightly, and there every
decision is made. A year of margin below and a thousand above leave room for zones and for leases added to a time.
"""

from datetime import UTC, date, datetime
from typing import Any

from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from psycopg import Connection, DataError
from psycopg.abc import Buffer
from psycopg.types.datetime import DateLoader, TimestampLoader

EARLIEST, LATEST = datetime(2, 1, 1), datetime(9000, 1, 1)  # noqa: DTZ001  (each loader adds its zone)


class _Bounded:
    """What the loaders below share; `earliest` and `latest` are of the type that each gives."""

    earliest: Any
    latest: Any

    def load(self, data: Buffer) -> Any:
        try:
            value = super().load(data)  # type: ignore[misc]  # of the loader beside it
        except DataError:
            text = bytes(data)
            return self.earliest if text.startswith(b"-") or text.endswith(b"BC") else self.latest
        return min(max(value, self.earliest), self.latest)


class _Moments(_Bounded, BaseTzLoader):
    timezone = UTC
    earliest, latest = EARLIEST.replace(tzinfo=UTC), LATEST.replace(tzinfo=UTC)


class _PlainMoments(_Bounded, TimestampLoader):
    earliest, latest = EARLIEST, LATEST


class _Days(_Bounded, DateLoader):
    earliest, latest = date(EARLIEST.year, 1, 1), date(LATEST.year, 1, 1)


def read_every_moment(connection: Connection[Any]) -> None:
    """Let a connection read each timestamptz, timestamp and date."""
    connection.adapters.register_loader("timestamptz", _Moments)
    connection.adapters.register_loader("timestamp", _PlainMoments)
    connection.adapters.register_loader("date", _Days)
