"""Which server, as whom, and with which memory: the options that commands share, and what they lead to."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from agentstore_runner import github as workflow_run
from agentstore_runner.bearer import Bearer, TokenError, from_file, secrets_of, take_from
from agentstore_runner.client import AddressError, Client, checked_server
from agentstore_runner.redaction import Redactor


class Refusal(click.ClickException):
    """One plain sentence and exit code 2."""

    exit_code = 2


def _state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "agentstore-runner"


def connection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which server, as whom, and with which memory."""
    for option in reversed(
        (
            click.option(
                "--server", envvar="AGENTSTORE_URL", required=True, metavar="URL", help="The server's address."
            ),
            click.option(
                "--token-file",
                type=click.Path(path_type=Path),
                help="File with the agent's token, not readable by others. Otherwise AGENTSTORE_TOKEN.",
            ),
            click.option(
                "--github",
                is_flag=True,
                help="Be a workflow run: trade GitHub's tokens for bearers; needs `permissions: id-token: write`.",
            ),
            click.option(
                "--github-audience", metavar="TEXT", help="Whom GitHub's tokens are for; default: the server's address."
            ),
            click.option(
                "--allow-http", is_flag=True, help="Send the token unencrypted to a host that is not this one."
            ),
            click.option(
                "--state",
                type=click.Path(path_type=Path, file_okay=False),
                default=_state_folder,
                show_default="$XDG_STATE_HOME/agentstore-runner",
                help="Folder that remembers claims and reports across restarts.",
            ),
            click.option(
                "--log",
                "style",
                type=click.Choice(["plain", "json", "rich"]),
                help="Form of the log; rich on a terminal, plain otherwise.",
            ),
            click.option("--verbose", is_flag=True, help="Log more."),
        )
    ):
        command = option(command)
    return command


def server_and_bearer(
    server: str, token_file: Path | None, allow_http: bool, *, github: bool, audience: str | None
) -> tuple[str, Bearer]:
    """The server's address, checked, and the bearer to show there; Refusal, or an exit, when there is none."""
    try:
        if github:
            return _as_workflow_run(checked_server(server, allow_http=allow_http), audience)
        # The variable goes away in any case: no child process may inherit it.
        from_environment = take_from(os.environ)
        bearer = from_environment if token_file is None else from_file(token_file)
        if bearer is None:
            raise Refusal("no token: give --token-file, or set AGENTSTORE_TOKEN")
        return checked_server(server, allow_http=allow_http), bearer
    except (TokenError, AddressError) as error:
        raise Refusal(str(error)) from None


def _as_workflow_run(server: str, audience: str | None) -> tuple[str, Bearer]:
    """Trade the first token; every value is masked in GitHub's log before anything else is written."""
    try:
        provider = workflow_run.Provider.taken_from(os.environ)
        client = Client(server, None)
        return server, workflow_run.RunBearer(provider, client, audience=audience or server, tell=_mask)
    except workflow_run.ExchangeError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(workflow_run.EXIT_CODES.get(type(error), Refusal.exit_code))


def _mask(value: str) -> None:
    if os.environ.get("GITHUB_ACTIONS") == "true":
        click.echo(f"::add-mask::{value}")


def redactor_of(bearer: Bearer) -> Redactor:
    """What masks the bearer and the secrets of the environment."""
    return Redactor([*bearer.known(), *secrets_of(os.environ)])
