"""`manage.py cancel`: cancel a job."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from jobs.engine.answers import Cancel
from jobs.management.operator_command import OperatorCommand
from jobs.models import AgentJob
from jobs.services import governance

SAID = {
    Cancel.CLOSED: "Cancelled {}.",
    Cancel.ASKED: "Asked the runner of {} to stop; its next heartbeat carries the request.",
    Cancel.UNCHANGED: "A cancel of {} was requested before; nothing was changed.",
}


class Command(OperatorCommand):
    """Cancels the latest attempt of a job's chain."""

    help = "Cancel a job: at once if it waits, by asking its runner if it runs. Addresses the latest attempt."
    example = "manage.py cancel 6f1c2c0e-0000-4000-8000-000000000000 --reason 'wrong branch'"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the job and the reason."""
        parser.add_argument("job", type=UUID, metavar="JOB", help="id of any attempt")
        parser.add_argument("--reason", required=True, help="kept in the audit trail")
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Cancel the job."""
        done = governance.cancel(AgentJob.objects.all(), options["job"], by=options["by"], reason=options["reason"])
        return {"id": done.row_id, "outcome": done.outcome}, SAID[done.outcome].format(done.row_id)
