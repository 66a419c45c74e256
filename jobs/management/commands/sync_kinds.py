"""`manage.py sync_kinds`: register or update the kinds that the product ships."""

from typing import Any

from jobs.management.operator_command import OperatorCommand
from jobs.services import shipped_kinds


class Command(OperatorCommand):
    """Run after each migrate; `make run` and `make demo` do it."""

    help = "Register the kinds that the product ships and update their schemas; titles and limits stay as they are."
    example = "manage.py migrate && manage.py sync_kinds"

    def act(self, **_: Any) -> tuple[dict[str, Any], str]:
        """Sync the kinds."""
        synced = shipped_kinds.sync_kinds()
        changes = [f"registered {name}" for name in synced.created] + [f"updated {name}" for name in synced.updated]
        fields = {"created": synced.created, "updated": synced.updated}
        return fields, f"Kinds: {', '.join(changes) or 'all up to date'}."
