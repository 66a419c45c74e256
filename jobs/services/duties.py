"""Which maintenance loop does which duty, and how it went. Each write is one statement by the database's clock.

A duty is leased for the time that one go may take. A loop that dies leaves its lease to lapse, and another takes the
duty over; one that was only slow finds its `term` over when it reports, and changes nothing. A duty that started more
than a minute from now tells of a clock that was set back: it is free at once. (A few seconds tell of nothing but an
older transaction.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentstore_runner.redaction import Redactor
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models import MaintenanceDuty

from .documents import sanitise

LONGEST_PAUSE = 60.0  # seconds between two tries of a duty that fails; the first pause is one second, each doubles
MAX_ERROR = 2000


@dataclass(frozen=True, kw_only=True)
class DutyLease:
    """The right to do a duty now; `term` is its fencing token."""

    name: str
    owner: str
    term: int


def register(names: Iterable[str]) -> None:
    """Add rows for duties that are new; a loop calls it for what it finds missing."""
    MaintenanceDuty.objects.bulk_create([MaintenanceDuty(name=name) for name in names], ignore_conflicts=True)


def forget_others(names: Iterable[str]) -> None:
    """Remove duties that this version does not know and nobody does now: a row nobody serves would look late."""
    idle = Q(leased_until__isnull=True) | Q(leased_until__lte=Now())
    MaintenanceDuty.objects.exclude(name__in=list(names)).filter(idle).delete()


def waits(*, names: Iterable[str], owner: str) -> Mapping[str, float]:
    """Seconds until each duty may be done, 0 or less when it may be now; names without a row are left out.

    What `owner` itself holds counts as free: it does one duty at a time, so an outage ended that go.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT name, extract(epoch FROM CASE WHEN started_at > now() + interval '1 minute' THEN interval '0'
                   ELSE greatest(due_at, CASE WHEN leased_by <> %(owner)s THEN leased_until END) - now() END)::float8
               FROM maintenance_duties WHERE name = ANY(%(names)s)""",
            {"owner": owner, "names": list(names)},
        )
        return dict(cursor.fetchall())


def take(
    *, name: str, owner: str, lease_seconds: float, every_seconds: float | None = None, early: bool = False
) -> DutyLease | None:
    """Lease a duty that is due (or not yet, if `early`); None while another loop holds it or has just done it.

    `every_seconds` is noted as its interval; None leaves the interval as the loops set it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE maintenance_duties SET leased_by = %(owner)s, term = term + 1, started_at = now(),
                 leased_until = now() + make_interval(secs => %(lease)s),
                 every_seconds = coalesce(%(every)s, every_seconds)
               WHERE name = %(name)s AND (started_at > now() + interval '1 minute' OR (due_at <= now() OR %(early)s)
                 AND (leased_until IS NULL OR leased_until <= now() OR leased_by = %(owner)s))
               RETURNING term""",
            {"name": name, "owner": owner, "lease": lease_seconds, "every": every_seconds, "early": early},
        )
        found = cursor.fetchone()
    return None if found is None else DutyLease(name=name, owner=owner, term=found[0])


def succeeded(lease: DutyLease, *, seconds: float) -> bool:
    """Note a good end after `seconds`; the duty is due an interval after its start. False if the lease was lost."""
    return _settle(
        lease,
        "last_success_at = now(), failures = 0, last_seconds = %(seconds)s,"
        " due_at = started_at + make_interval(secs => every_seconds)",
        {"seconds": seconds},
    )


def failed(lease: DutyLease, *, seconds: float, error: str) -> bool:
    """Note a bad end; the next try follows after 1, 2, 4 … LONGEST_PAUSE seconds. False if the lease was lost."""
    clean, _ = sanitise(Redactor().document(error))
    return _settle(
        lease,
        "last_error_at = now(), last_error = %(error)s, failures = failures + 1, last_seconds = %(seconds)s,"
        " due_at = now() + make_interval(secs => least(%(longest)s, 2 ^ least(failures, 16)))",
        {"seconds": seconds, "error": clean[:MAX_ERROR], "longest": LONGEST_PAUSE},
    )


def _settle(lease: DutyLease, written: str, values: dict[str, float | str]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""UPDATE maintenance_duties SET leased_until = NULL, {written}
                WHERE name = %(name)s AND leased_by = %(owner)s AND term = %(term)s AND leased_until IS NOT NULL""",  # noqa: S608  (texts of ours)
            {"name": lease.name, "owner": lease.owner, "term": lease.term, **values},
        )
        settled: int = cursor.rowcount
    return settled == 1
