"""Statements of the runner's calls: the server binds their values, and a connection prepares each of them once.

Django's cursors write the values into the text, which the server then parses and plans anew for every heartbeat; that
is a third of what one costs. Elsewhere they stay: the context of the row history is written into the text too.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.base import ModelState

Row = TypeVar("Row", bound=models.Model)

# In the select list of a statement that is a transaction of its own: its commit does not wait for the disk.
NO_WAIT_FOR_DISK = "set_config('synchronous_commit', 'off', true)"


# psycopg keeps what it learnt of a statement's types with the cursor, as long as that runs the same text again.
_cursors: WeakKeyDictionary[BaseDatabaseWrapper, dict[str, psycopg.Cursor[Any]]] = WeakKeyDictionary()


def run(using: str, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows that a statement returns; a transaction of its own unless one is open.

    Whether it is prepared, or only bound, is the option `prepare_threshold` of the connection. Raises Django's
    database errors. Its texts must be few: each connection keeps a cursor for each of them.
    """
    connection = connections[using]
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    if connection.execute_wrappers or connection.queries_logged:
        return _watched(connection, sql, values)
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors:
        return _cursor(connection, sql).execute(sql, values).fetchall()


def _watched(connection: Any, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The same through Django's wrappers, for whoever wraps or logs statements."""
    bare: Any = psycopg.Cursor(connection.connection)
    with connection.make_debug_cursor(bare) if connection.queries_logged else connection.make_cursor(bare) as cursor:
        cursor.execute(sql, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _cursor(connection: Any, sql: str) -> psycopg.Cursor[Any]:
    kept = _cursors.setdefault(connection, {})
    cursor = kept.get(sql)
    if cursor is None or cursor.connection is not connection.connection:  # another session than before
        cursor = kept[sql] = psycopg.Cursor(connection.connection)
    return cursor


def savepoint(using: str) -> AbstractContextManager[None]:
    """Keeps an open transaction usable after a conflict that is an answer; a statement on its own needs nothing."""
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()


@cache
def columns(model: type[models.Model], fields: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The columns of a model's fields (of all when not named), in the model's own order.

    Never `*`: a prepared statement must go on to work when a migration adds a column beside it.
    """
    return tuple(str(field.column) for field in model._meta.concrete_fields if not fields or field.name in fields)


def instance(model: type[Row], using: str, read: tuple[str, ...], values: Sequence[Any]) -> Row:
    """The row whose columns `read`, as `columns` gives them, have these values; others are read when asked for.

    What Model.from_db makes, without its walk through every field of the model, read or not.
    """
    names, converters = _form(model, read)
    row = model.__new__(model)
    state = ModelState()
    state.adding, state.db = False, using
    attributes = vars(row)
    attributes.update(zip(names, values, strict=True), _state=state)
    for name, convert in converters:
        attributes[name] = convert(attributes[name], None, connections[using])
    return row


@cache
def _form(model: type[models.Model], read: tuple[str, ...]) -> tuple[list[str], list[tuple[str, Callable[..., Any]]]]:
    by_column = {field.column: field for field in model._meta.concrete_fields}
    fields = [by_column[column] for column in read]
    converters = [(field.attname, field.from_db_value) for field in fields if hasattr(field, "from_db_value")]
    return [field.attname for field in fields], converters
