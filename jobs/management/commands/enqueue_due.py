"""`manage.py enqueue_due`: give what schedules owe its jobs, once."""

from dataclasses import asdict
from typing import Any

from jobs.management.operator_command import OperatorCommand
from jobs.services import scheduling


class Command(OperatorCommand):
    """One duty of `maintain`, by hand."""

    help = "Enqueue the jobs of all schedules that are due, once; maintain does it all the time."
    example = "manage.py enqueue_due --json"

    def act(self, **_: Any) -> tuple[dict[str, Any], str]:
        """Work off what is due."""
        worked = scheduling.enqueue_due()
        sentence = (
            f"Enqueued {worked.enqueued}, skipped {worked.skipped}, missed {worked.missed}, refused {worked.refused}."
        )
        return asdict(worked), sentence
