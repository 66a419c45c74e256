"""The two tables that work is leased from, and what each calls the same things."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Table:
    """`name` is also the table's part of every address; the others are members of requests and answers."""

    name: str
    row_id: str
    kinds: str
    kind: str
    document: str
    claims: str


JOBS: Final = Table("jobs", row_id="job_id", kinds="kinds", kind="kind", document="spec", claims="claims")
TASKS: Final = Table(
    "tasks", row_id="task_id", kinds="task_types", kind="task_type", document="payload", claims="task_claims"
)
BY_NAME: Final = {table.name: table for table in (JOBS, TASKS)}
