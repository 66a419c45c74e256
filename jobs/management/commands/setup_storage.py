"""`manage.py setup_storage`: make the storage of evidence private and tidy, or check that it is."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from artifacts.services import self_check
from artifacts.services.storage import Step
from jobs.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    """Safe to run at any time: what is right already is left alone."""

    help = (
        "Create the storage of evidence or check it: private, public access blocked, abandoned uploads removed, direct "
        "uploads allowed. With --check: write an object, read it by a signed address, fail to read it without one."
    )
    example = "manage.py setup_storage --check"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the choice to look only."""
        parser.add_argument("--check", action="store_true", help="change nothing, try the storage out")
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Set up, or try it out."""
        if options["check"]:
            found = self_check.self_check()
            if found != "ok":
                raise CommandError(f"The storage is {found}.")
            return {"storage": found}, "The storage keeps, serves by signed addresses, and refuses all others."
        steps = self_check.set_up()
        return {step.what: step.outcome for step in steps}, _in_words(steps)


def _in_words(steps: Sequence[Step]) -> str:
    done = ", ".join(f"{step.what} ({step.outcome})" for step in steps if step.is_done)
    cannot = ", ".join(f"{step.what}: {step.outcome}" for step in steps if not step.is_done)
    return f"{done}; cannot: {cannot}." if cannot else f"{done}."
