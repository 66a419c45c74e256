"""`manage.py maintain`: what the clock does, once or for ever."""

import re
import signal
import threading
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import connection

from artifacts.services.direct_uploads import verify
from artifacts.services.purging import purge
from artifacts.services.sweeping import sweep
from artifacts.services.thumbnails import make_thumbnails
from jobs.management.clockwork import Clockwork, DatabaseAwayError, Duty
from jobs.management.hearing import Hearing
from jobs.management.operator_command import OperatorCommand
from jobs.services import maintenance, scheduling
from jobs.services.backups import drilling, upkeep
from jobs.services.github.exchange import forget_spent
from jobs.services.notices import outbox
from jobs.services.notices.matching import match

SWEEP_SECONDS = 3600.0  # it reads the whole list of stored files
UPKEEP_SECONDS = 60.0  # days are what it counts
PURGE_SECONDS = 3600.0  # days are what it counts


class Command(OperatorCommand):
    """Runs beside the web processes; several share the duties, on one machine or on many."""

    help = (
        "Close work that fell silent, expire what waited too long, look after the stored files: once, or with --loop "
        "until SIGTERM. A duty that fails is logged and stops no other; an outage of the database is waited out."
    )
    example = "manage.py maintain --loop 5"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the pace of the loop, and where it listens."""
        parser.add_argument("--loop", type=_pace, metavar="SECONDS", help="take a turn so often until SIGTERM")
        parser.add_argument(
            "--probe",
            default=f"{settings.PUBLIC_URL}/healthz",
            metavar="URL",
            help="with --loop: silence of agents counts only while this address answers; '' counts it always "
            "(default: %(default)s)",
        )
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Take one turn, or go on until a signal."""
        with _ended_by_signals() as stop:
            if options["loop"]:
                # Read whenever the loop connects: a connection that says nothing must not hold it up for ever.
                connection.settings_dict["SILENCE_SECONDS"] = settings.MAINTENANCE_TIMEOUT
                connection.close()
                Clockwork(_duties(Hearing(options["probe"])), stop).run(options["loop"])
                return {"ended": "by signal"}, "Maintenance ended."
            try:
                counts, failed, held = Clockwork(_duties(Hearing("")), stop).once()
            except DatabaseAwayError as error:
                raise CommandError(f"The database does not answer: {error}") from None
        if failed:
            raise CommandError(f"These duties failed, the log says why: {', '.join(failed)}.")
        said = [f"{name}: {_in_words(done)}" for name, done in counts.items()]
        return counts, "; ".join(said + [f"{name}: another loop is at it" for name in held])


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to do"


def _duties(hearing: Hearing) -> list[Duty]:
    """Everything that the clock does. What only asks the database comes first; the rest has threads of its own."""
    return [
        Duty(name="schedules", act=scheduling.enqueue_due),
        Duty(name="repositories", act=upkeep.enqueue_due, every=UPKEEP_SECONDS),
        Duty(name="drills", act=drilling.launch_due, every=UPKEEP_SECONDS),
        Duty(name="expire", act=maintenance.expire),
        Duty(name="overdue", act=maintenance.stop_overdue),
        Duty(name="reap", act=hearing.reap),
        Duty(name="notices", act=match),
        Duty(name="outbox", act=outbox.deliver, lease=120.0, apart=True),
        Duty(name="old notices", act=outbox.forget, every=PURGE_SECONDS),
        Duty(name="thumbnails", act=make_thumbnails, lease=300.0, apart=True),
        Duty(name="verify", act=verify, lease=3600.0, apart=True),
        Duty(name="spent tokens", act=forget_spent, every=PURGE_SECONDS),
        Duty(name="purge", act=purge, every=PURGE_SECONDS, lease=PURGE_SECONDS, apart=True),
        Duty(name="sweep", act=sweep, every=SWEEP_SECONDS, lease=SWEEP_SECONDS, apart=True),
    ]


def _pace(text: str) -> float:
    seconds = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text) else 0.0
    # Slower than the gap that means "the installation was down", no silence would ever be counted.
    if not 0 < seconds <= maintenance.LOOP_GAP.total_seconds() / 2:
        raise ArgumentTypeError(f"{text!r} is no pace: use seconds, more than 0 and at most 30")
    return seconds


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; a duty that runs is finished first."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda _number, _frame: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
