"""`manage.py retry`: the next attempt of a failed job."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from jobs.management.operator_command import OperatorCommand
from jobs.models import AgentJob
from jobs.services import governance


class Command(OperatorCommand):
    """Inserts the next attempt, beyond the automatic budget too."""

    help = "Queue the next attempt of a failed job. Done and cancelled work is enqueued again instead."
    example = "manage.py retry 6f1c2c0e-0000-4000-8000-000000000000 --reason 'the shop is up again'"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the job and the reason."""
        parser.add_argument("job", type=UUID, metavar="JOB", help="id of the latest attempt")
        parser.add_argument("--reason", required=True, help="kept in the audit trail")
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Retry the job."""
        again = governance.retry(AgentJob.objects.all(), options["job"], by=options["by"], reason=options["reason"])
        return {"id": again, "retry_of": options["job"]}, f"Queued {again}, the next attempt of {options['job']}."
