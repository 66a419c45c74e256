"""`manage.py create_agent`: register an agent."""

from typing import Any

from django.core.management.base import CommandParser

from jobs.management.operator_command import OperatorCommand
from jobs.models import Agent
from jobs.services import identities


class Command(OperatorCommand):
    """Registers an agent, or one that only plain SQL had named so far."""

    help = "Register an agent. It can claim work once it has a token: see issue_token."
    example = "manage.py create_agent ci-berlin --title 'CI in Berlin' --presence resident"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the agent's key, title and presence."""
        parser.add_argument("key", metavar="KEY", help="unique key of the agent, without white space")
        parser.add_argument("--title", default="", help="name that people see")
        parser.add_argument(
            "--presence",
            choices=Agent.Presence.values,
            default=Agent.Presence.ON_DEMAND.value,
            help="resident: always there, its silence is worth an alarm; on-demand (default): started per job",
        )
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Register the agent."""
        agent = identities.create_agent(
            key=options["key"], title=options["title"], presence=options["presence"], by=options["by"]
        )
        key = agent.principal_key
        return {"id": agent.pk, "key": key}, f"Registered the agent {key}; next: manage.py issue_token {key}"
