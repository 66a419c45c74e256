"""`manage.py sweep_artifacts`: stored files and their rows against each other, once."""

from argparse import ArgumentTypeError
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from artifacts.services import sweeping
from jobs.management.operator_command import OperatorCommand, duration


class Command(OperatorCommand):
    """One duty of `maintain`, by hand, and the only one that can be tried without doing it."""

    help = (
        "Remove stored files whose row is gone, and those that never got a row; mark rows whose bytes are missing. "
        "maintain does it once an hour."
    )
    example = "manage.py sweep_artifacts --dry-run"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the choice to look only, and the age of what may go."""
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
        parser.add_argument(
            "--older-than", type=_age, default=sweeping.GRACE, metavar="AGE",
            help="spare files without a row that are younger, such as 12h; at least 1h (default: 1d)",
        )  # fmt: skip
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Sweep once."""
        dry_run = options["dry_run"]
        swept = sweeping.sweep(older_than=options["older_than"], dry_run=dry_run)
        words = (
            f"{swept.removed} files of deleted rows and {swept.orphans} files without a row "
            f"{'would be removed' if dry_run else 'removed'}; {swept.missing} rows lost their bytes, "
            f"{swept.found} got them back."
        )
        if swept.refused:
            words += (
                " Files without a row were left alone: there are so many that this seems another database's storage."
            )
        return asdict(swept), words


def _age(text: str) -> timedelta:
    age = duration(text)
    if age < sweeping.SHORTEST:
        raise ArgumentTypeError(f"{text!r} is too short: an upload has its file before its row, use at least 1h")
    return age
