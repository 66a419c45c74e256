"""What people do with kinds: register them, and change their schema and limits. Names never change; kinds stay."""

from typing import Any

from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction

from jobs.engine.failure_classes import MAX_DELAYS, FailureClass, rule_of
from jobs.models import JobKind

from .documents import UNSTORABLE, storable_problems
from .errors import Invalid, NotFound
from .kinds import CONTRACTS, schema_problems

MAX_NAME, MAX_TEXT = 100, 2000
ATTEMPTS, LEASE_SECONDS, RUN_SECONDS = range(1, 11), range(15, 86401), range(1, 30 * 86400 + 1)
EXPIRE_SECONDS, JITTER_PERCENT = range(1, 365 * 86400 + 1), range(101)
# Limits of evidence and days of retention; a kind without one of its own has None.
EVIDENCE = {
    "max_file_bytes": range(1, 2**31),
    "max_files": range(1, 10_001),
    "max_job_bytes": range(1, 2**40 + 1),
    "keep_files_days": range(1, 36_501),
    "keep_jobs_days": range(1, 36_501),
}


@transaction.atomic
def register_kind(*, name: str, **values: Any) -> JobKind:
    """Add a kind; `values` are those of `change_kind`. Raises Invalid."""
    problems = _problems(**values)
    if not name or len(name) > MAX_NAME or any(ord(c) < 33 or ord(c) > 126 for c in name):
        problems.append(Problem("/name", f"1 to {MAX_NAME} printable ASCII characters without spaces."))
    if problems:
        raise Invalid(problems)
    try:
        with transaction.atomic():
            return JobKind.objects.create(name=name, **values)
    except IntegrityError:
        raise Invalid([Problem("/name", "There is a kind of that name already.")]) from None


@transaction.atomic
def change_kind(
    *,
    name: str,
    title: str,
    description: str,
    schema: Any,
    enabled: bool,
    max_attempts: int,
    lease_seconds: int | None,
    max_run_seconds: int,
    expire_after_seconds: int | None,
    retry_rules: dict[str, Any],
    retry_jitter_percent: int,
    **evidence: int | None,
) -> None:
    """Change a kind. Raises Invalid or NotFound.

    Attempts, lease and waiting time hold for jobs that are enqueued from now on. The maximum run time, the retry
    rules, and the limits and retention of `evidence` hold at once, for work under way too: they are what an operator
    turns while something goes wrong.
    `retry_rules` hold {"delays": [seconds …], "repeats": bool} by failure class; a class that is left out is retried
    as the product does.
    The schema of a shipped kind goes with the code of the product and is refused if it differs.
    """
    problems = _problems(
        title=title, description=description, schema=schema, enabled=enabled, max_attempts=max_attempts,
        lease_seconds=lease_seconds, max_run_seconds=max_run_seconds, expire_after_seconds=expire_after_seconds,
        retry_rules=retry_rules, retry_jitter_percent=retry_jitter_percent, **evidence,
    )  # fmt: skip
    if name in CONTRACTS and schema != CONTRACTS[name].schema:
        problems.append(Problem("/schema", "The schema of this kind comes with the product and cannot be changed."))
    if problems:
        raise Invalid(problems)
    changed = JobKind.objects.filter(name=name).update(
        title=title, description=description, schema=schema, enabled=enabled, max_attempts=max_attempts,
        lease_seconds=lease_seconds, max_run_seconds=max_run_seconds, expire_after_seconds=expire_after_seconds,
        retry_rules=retry_rules, retry_jitter_percent=retry_jitter_percent, **evidence,
    )  # fmt: skip
    if not changed:
        raise NotFound


def _problems(
    *,
    title: str,
    description: str,
    schema: Any,
    enabled: bool,
    max_attempts: int,
    lease_seconds: int | None,
    max_run_seconds: int,
    expire_after_seconds: int | None,
    retry_rules: dict[str, Any],
    retry_jitter_percent: int,
    **evidence: int | None,
) -> list[Problem]:
    problems = [
        Problem(f"/{field}", f"At most {MAX_TEXT} characters, without NUL or half surrogate pairs.")
        for field, text in (("title", title), ("description", description))
        if len(text) > MAX_TEXT or UNSTORABLE.search(text)
    ]
    for field, number, allowed in (
        ("max_attempts", max_attempts, ATTEMPTS),
        ("lease_seconds", lease_seconds, LEASE_SECONDS),
        ("max_run_seconds", max_run_seconds, RUN_SECONDS),
        ("expire_after_seconds", expire_after_seconds, EXPIRE_SECONDS),
        ("retry_jitter_percent", retry_jitter_percent, JITTER_PERCENT),
        *((field, number, EVIDENCE[field]) for field, number in evidence.items()),
    ):
        if number is not None and number not in allowed:
            problems.append(Problem(f"/{field}", f"From {allowed[0]} to {allowed[-1]}."))
    problems += [
        Problem(f"/retry_rules/{word}", f"At most {MAX_DELAYS} delays, each from 0 seconds to 7 days.")
        for word, rule in retry_rules.items()
        if word not in set(FailureClass) or rule_of(rule) is None
    ]
    found = storable_problems(schema) or schema_problems(schema)
    return problems + [Problem(f"/schema{problem.pointer}", problem.message) for problem in found]
