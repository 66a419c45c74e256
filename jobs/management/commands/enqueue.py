"""`manage.py enqueue`: queue a job for an agent."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from jobs.management.operator_command import OperatorCommand, label, moment, whole_number
from jobs.services import governance
from jobs.services.documents import Malformed, parse
from jobs.services.kinds import MAX_SPEC_BYTES


class Command(OperatorCommand):
    """Queues a job whose spec comes from a file or from standard input."""

    help = "Queue a job for an agent; everything that is wrong with its spec is said with the place."
    example = "manage.py enqueue --agent ci-berlin --kind uat.quick-task --spec sign-in.json --label branch=main"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what a job consists of."""
        parser.add_argument("--agent", required=True, metavar="KEY", help="key of the agent that shall work")
        parser.add_argument("--kind", required=True, help="kind of the job, such as uat.quick-task")
        parser.add_argument("--spec", required=True, metavar="FILE", help="JSON file with the spec; - reads stdin")
        parser.add_argument(
            "--priority", type=whole_number, default=0, help="-100 to 100; higher ones are claimed first"
        )
        parser.add_argument("--not-before", type=moment, metavar="TIME", help="ISO 8601 with zone")
        parser.add_argument(
            "--expires-at",
            type=moment,
            metavar="TIME",
            help="cancelled if it still waits then (default: as its kind says)",
        )
        parser.add_argument("--dedupe-key", default="", metavar="KEY", help="at most one live job has this key")
        parser.add_argument("--concurrency-key", default="", metavar="KEY", help="at most one job with it runs")
        parser.add_argument("--label", type=label, action="append", default=[], metavar="KEY=VALUE", dest="labels")
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Queue the job."""
        job = governance.enqueue(
            by=options["by"],
            agent=options["agent"],
            kind=options["kind"],
            spec=_read(options["spec"]),
            priority=options["priority"],
            not_before=options["not_before"],
            expires_at=options["expires_at"],
            dedupe_key=options["dedupe_key"],
            concurrency_key=options["concurrency_key"],
            labels=dict(options["labels"]),
        )
        fields = {"id": job.job_id, "kind": job.kind, "agent": job.agent}
        return fields, f"Queued {job.kind} {job.job_id} for {job.agent}."


def _read(name: str) -> object:
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            # White space may take as much again as the spec; more is not worth reading.
            text = file.read(4 * MAX_SPEC_BYTES + 1)
    except OSError as error:
        raise CommandError(f"spec: {name!r} cannot be read: {error.strerror}.") from None
    if len(text) > 4 * MAX_SPEC_BYTES:
        raise CommandError(f"spec: {name!r} has more than {4 * MAX_SPEC_BYTES:,} bytes.")
    try:
        return parse(text)
    except Malformed as error:
        raise CommandError(f"spec: {error}") from None
