"""`manage.py issue_token`: a fresh bearer for an agent."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from jobs.management.operator_command import OperatorCommand, duration
from jobs.models import Agent
from jobs.services import identities


class Command(OperatorCommand):
    """Prints the bearer, and nothing else, to standard output."""

    help = "Issue a token for an agent and print it, once: only its digest is stored. Older tokens stay valid."
    example = "(umask 077; manage.py issue_token ci-berlin --expires-in 90d > ci-berlin.token)"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the agent's key, the note and the life span."""
        parser.add_argument("key", metavar="KEY", help="key of the agent")
        parser.add_argument("--note", default="", help="what the token is for")
        parser.add_argument("--expires-in", type=duration, metavar="90d", help="life span; default: until revoked")
        super().add_arguments(parser)

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Issue the token. The warning goes to standard error, so that the output can be a file."""
        agent = Agent.objects.filter(principal_key=options["key"]).first()
        if agent is None:
            raise CommandError(f"key: There is no agent {options['key']!r}.")
        expires_at = timezone.now() + options["expires_in"] if options["expires_in"] else None
        issued = identities.issue_token(
            agent_id=agent.pk, by=options["by"], note=options["note"], expires_at=expires_at
        )
        until = f"valid until {expires_at:%Y-%m-%d %H:%M} UTC" if expires_at else "valid until it is revoked"
        self.stderr.write(f"This token of {issued.agent} is shown only now; {until}.", self.style.WARNING)
        fields = {
            "id": issued.token_id,
            "agent": issued.agent,
            "prefix": issued.prefix,
            "expires_at": expires_at.isoformat() if expires_at else None,
            "token": issued.bearer,
        }
        return fields, issued.bearer
