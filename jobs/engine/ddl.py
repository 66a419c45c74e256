"""Small gaps between Django's vocabulary and SQL that has to be exact."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLCompiler


class SqlNow(models.Func):
    """`now()`, the transaction's start. Django's own Now() is statement_timestamp()."""

    template = "now()"
    arity = 0
    output_field = models.DateTimeField()


class RandomText(models.Func):
    """`(gen_random_uuid())::text`, a default for keys that a plain SQL client does not give."""

    template = "(gen_random_uuid())::text"
    arity = 0
    output_field = models.TextField()


class JsonHolds(models.Func):
    """Whether a JSON column is what a SQL expression says of it; `{}` in the expression stands for the column."""

    output_field = models.BooleanField()
    arity = 1

    def __init__(self, column: str, says: str) -> None:
        super().__init__(column, template=says.replace("{}", "%(expressions)s"))


class NamedIndex(models.Index):
    """An index that may carry a name of PostgreSQL's length; Django stops at 30 characters."""

    max_name_length = 63


@models.Field.register_lookup
class NotEqual(models.Lookup):
    """`status__ne="failed"` writes `status <> 'failed'`; a negated Q writes a NULL test beside it."""

    lookup_name = "ne"

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        left, left_params = self.process_lhs(compiler, connection)
        right, right_params = self.process_rhs(compiler, connection)
        return f"{left} <> {right}", (*left_params, *right_params)
