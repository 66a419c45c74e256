"""`manage.py reap`: close what fell silent, once."""

from typing import Any

from jobs.management.operator_command import OperatorCommand
from jobs.services import maintenance


class Command(OperatorCommand):
    """One duty of `maintain`, by hand."""

    help = "Close jobs and tasks whose agent fell silent, once; maintain does it all the time."
    example = "manage.py reap --json"

    def act(self, **_: Any) -> tuple[dict[str, Any], str]:
        """Reap once."""
        reaped = maintenance.reap()
        return {"jobs": reaped.jobs, "tasks": reaped.tasks}, f"Closed {reaped.jobs} jobs and {reaped.tasks} tasks."
