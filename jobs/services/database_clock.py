"""The one clock that decides what lies ahead: the clocks of web servers and of people's machines differ from it."""

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """The database's time; inside a transaction that of its begin."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        (now,) = cursor.fetchone()
    found: datetime = now
    return found
