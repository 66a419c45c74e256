"""The command line: run, enrol, doctor, validate, try."""

import logging
import os
import random
import shlex
import socket
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentstore_runner import __version__, doctor, enrolment, handlers, logs, specs
from agentstore_runner.bearer import Bearer, TokenError, from_file, from_stream, secrets_of, take_from
from agentstore_runner.claiming import Order
from agentstore_runner.client import AddressError, Client, checked_server
from agentstore_runner.connecting import Refusal, connection, redactor_of, server_and_bearer
from agentstore_runner.contract import uat
from agentstore_runner.redaction import Redactor
from agentstore_runner.shutdown import Shutdown
from agentstore_runner.spool import InUseError, Spool
from agentstore_runner.supervisor import Supervisor

log = logging.getLogger(__name__)

EXIT_CODES = """\b
Exit codes:
  0        --once: the job is done, or nothing waited; --forever: stopped while idle
  1        the job failed or was cancelled (with --exit-code verdict: or its verdict is not "pass")
  2        wrong options, token or state folder
  3        the server hands out no work to this agent (paused, token refused, runner too old)
  4        the job was taken away, or its report is not acknowledged; the report is kept on disk
  75       --once: the server could not be reached
  128 + n  interrupted by signal n
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="agentstore-runner")
def main() -> None:
    """Claim jobs from an agentstore server, do the work, and report what happened."""


@main.command(epilog=EXIT_CODES)
@connection
@click.option("--once", "once", flag_value=True, type=bool, help="Do one job, if one waits, and end.")
@click.option("--forever", "once", flag_value=False, type=bool, default=False, help="Go on until a signal (default).")
@click.option("--kinds", help="Comma-separated kinds to claim; default: all that this machine is set up for.")
@click.option(
    "--tasks/--no-tasks",
    default=None,
    help="Do backups and restores too; default: if this machine is configured for them.",
)
@click.option("--job-id", type=click.UUID, help="Claim only this job; implies --once.")
@click.option("--name", default=socket.gethostname, show_default="host name", help="Name of this runner.")
@click.option(
    "--exit-code",
    type=click.Choice(["status", "verdict"]),
    default="status",
    show_default=True,
    help="What --once judges: whether the job was done, or whether its verdict is pass.",
)
def run(
    server: str,
    token_file: Path | None,
    github: bool,
    github_audience: str | None,
    allow_http: bool,
    state: Path,
    style: logs.Style | None,
    verbose: bool,
    once: bool,
    kinds: str | None,
    tasks: bool | None,
    job_id: uuid.UUID | None,
    name: str,
    exit_code: str,
) -> None:
    """Claim jobs and work on them, one at a time."""
    server, bearer = server_and_bearer(server, token_file, allow_http, github=github, audience=github_audience)
    logs.configure(style, verbose=verbose, redactor=redactor_of(bearer))
    installed = _installed(handlers.ENTRY_POINTS)
    task_handlers = _task_handlers(tasks) if job_id is None else {}
    order = Order(
        name=name,
        kinds=_kinds(kinds, installed, alone=not task_handlers),
        task_types=sorted(task_handlers),
        capabilities=_capabilities(task_handlers),
        engine=_engine(task_handlers),
        job_id=None if job_id is None else str(job_id),
        run_ref=_run_ref(),
        once=once or job_id is not None,
        judge_by_verdict=exit_code == "verdict",
    )
    shutdown = Shutdown()
    try:
        with shutdown.listen(), Spool.opened(state, server, name) as spool:
            supervisor = Supervisor(
                order,
                client=Client(server, bearer, name=name),
                spool=spool,
                handlers=installed,
                task_handlers=task_handlers,
                shutdown=shutdown,
                redactor=lambda: redactor_of(bearer),
                rng=random.SystemRandom(),
            )
            log.info("runner %s asks %s for %s", __version__, server, ", ".join((*order.task_types, *order.kinds)))
            code = supervisor.run()
    except InUseError as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        raise Refusal(f"the state folder cannot be used: {error}") from None
    sys.exit(code)


@main.command("enrol")
@click.option("--server", envvar="AGENTSTORE_URL", required=True, metavar="URL", help="The server's address.")
@click.option("--code-file", type=click.Path(path_type=Path), help="File with the enrolment code; - is standard input.")
@click.option("--code-stdin", is_flag=True, help="Read the code from standard input; at a terminal, ask for it.")
@click.option("--name", default=socket.gethostname, show_default="host name", help="Name of this host.")
@click.option("--token-file", type=click.Path(path_type=Path), required=True, help="Where the token is written.")
@click.option("--force", is_flag=True, help="Replace a token file that exists.")
@click.option("--allow-http", is_flag=True, help="Send code and token unencrypted to a host that is not this one.")
def enrol_host(
    server: str,
    code_file: Path | None,
    code_stdin: bool,
    name: str,
    token_file: Path,
    force: bool,
    allow_http: bool,
) -> None:
    """Trade an enrolment code for a token of this host's own, and keep that in a file that only its owner reads.

    Exit code 2: the code or the file cannot be used; 3: the server refuses; 75: it could not be reached, and the same
    command goes on where this one ended.
    """
    if (code_file is None) != code_stdin:
        raise Refusal("give --code-stdin or --code-file, one of them")
    try:
        server, code = checked_server(server, allow_http=allow_http), _code(code_file)
    except (TokenError, AddressError) as error:
        raise Refusal(str(error)) from None
    try:
        found = enrolment.enrol(
            server,
            code,
            name=name,
            token_file=token_file,
            force=force,
            connect=lambda bearer: Client(server, bearer),
            rng=random.SystemRandom(),
            say=lambda text: click.echo(text, err=True),
            wait=time.sleep,
        )
    except enrolment.EnrolmentError as error:
        click.echo(f"Error: {Redactor([code.reveal()]).text(str(error))}", err=True)
        sys.exit(enrolment.EXIT_CODES.get(type(error), Refusal.exit_code))
    options = f"--server {shlex.quote(server)}{' --allow-http' if allow_http else ''}"
    options += f" --token-file {shlex.quote(str(token_file))}"
    click.echo(f"this host is {found.agent} now ({found.state}); its token is in {token_file}. Next:")
    for command in ("doctor", "run"):
        click.echo(f"  agentstore-runner {command} {options}")


def _code(file: Path | None) -> Bearer:
    """Read the enrolment code; TokenError says what is wrong with it."""
    if file is not None and str(file) != "-":
        return from_file(file)
    if sys.stdin.isatty():
        return Bearer(str(click.prompt("Enrolment code", hide_input=True, err=True)))
    return from_stream(sys.stdin.buffer, "standard input")


@main.command("doctor")
@connection
def examine(
    server: str,
    token_file: Path | None,
    github: bool,
    github_audience: str | None,
    allow_http: bool,
    state: Path,
    style: logs.Style | None,
    verbose: bool,
) -> None:
    """Look at everything that a runner needs and say how to fix what is missing; exit code 1 if something is."""
    server, bearer = server_and_bearer(server, token_file, allow_http, github=github, audience=github_audience)
    redactor = redactor_of(bearer)
    logs.configure(style, verbose=verbose, redactor=redactor)
    failed = False
    for finding in doctor.examine(Client(server, bearer), state, handlers.installed, os.environ):
        failed = failed or finding.state == "failed"
        colour = {"ok": "green", "warning": "yellow", "failed": "red"}[finding.state]
        click.echo(
            f"{click.style(finding.state.ljust(8), fg=colour)} {finding.subject}: {redactor.text(finding.detail)}"
        )
        if finding.fix:
            click.echo(f"         fix: {finding.fix}")
    sys.exit(1 if failed else 0)


_of_kind = click.option(
    "--kind", default=uat.KIND, show_default=True, help="Kind of the spec: any that an installed handler does."
)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_of_kind
def validate(file: Path, kind: str) -> None:
    """Check a spec without running it; exit code 1 if something is wrong."""
    handler, spec = _handler(kind), _spec(file)
    if not isinstance(handler, handlers.Checking):
        click.echo(f"{file} is a JSON object; the handler of {kind} says no more before it runs it")
        return
    found = handler.problems(spec)
    for problem in found:
        click.echo(f"{problem.pointer or '/'}: {problem.message}", err=True)
    if found:
        sys.exit(1)
    click.echo(f"{file} is a valid {kind} spec")


@main.command("try")
@click.argument("file", type=click.Path(path_type=Path))
@_of_kind
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="try-out", show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=600, show_default=True, help="Longest run time.")
def attempt(file: Path, kind: str, out: Path, seconds: float) -> None:
    """Run a spec on this machine, without a server; exit code 0 only for the verdict pass."""
    handler, spec = _handler(kind), _spec(file)
    if isinstance(handler, handlers.Checking) and (found := handler.problems(spec)):
        raise Refusal("; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in found))
    take_from(os.environ)
    redactor = Redactor(secrets_of(os.environ))
    logs.configure(None, verbose=False, redactor=redactor)
    shutdown = Shutdown()
    with shutdown.listen():
        report = specs.tried(handler, kind, spec, seconds=seconds, out=out, shutdown=shutdown)
    _show(report, out, report.redactor or redactor)
    if shutdown.asked.is_set():
        sys.exit(shutdown.exit_code)
    sys.exit(0 if report.verdict == "pass" else 1)


def _show(report: handlers.Report, out: Path, redactor: Redactor) -> None:
    console = Console()
    results = redactor.document(report.results or {})
    table = Table("check", "status", "severity", "seconds", "message")
    for check in results.get("checks", []):
        seconds = f"{check.get('duration_ms', 0) / 1000:.1f}"
        cells = (check.get("id"), check.get("status"), check.get("severity"), seconds, check.get("message") or "")
        table.add_row(*(Text(str(cell)) for cell in cells))
    if table.row_count:
        console.print(table)
    elif results:
        console.print_json(data=results)
    console.print(f"{report.status}, verdict {report.verdict or 'none'}", markup=False)
    for reason in results.get("reasons", []):
        console.print(f"  {reason}", markup=False)
    if report.error:
        console.print(f"error: {redactor.text(report.error)}", markup=False)
    console.print(f"files: {out}", markup=False)


def _installed(group: str) -> dict[str, handlers.Handler]:
    try:
        return handlers.installed(group)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refusal(f"an installed handler cannot be used: {error}") from None


def _handler(kind: str) -> handlers.Handler:
    """Return the installed handler of one kind."""
    installed = _installed(handlers.ENTRY_POINTS)
    if kind not in installed:
        raise Refusal(f"no handler for {kind} is installed; installed: {', '.join(sorted(installed)) or 'none'}")
    return installed[kind]


def _task_handlers(wanted: bool | None) -> dict[str, handlers.Handler]:
    """Return the handlers of tasks: all that are asked for, or those that somebody has set this machine up for."""
    if wanted is False:
        return {}
    found = _installed(handlers.TASK_ENTRY_POINTS)
    if wanted:
        return found
    return {kind: handler for kind, handler in found.items() if _is_prepared(handler)}


def _is_prepared(handler: handlers.Handler) -> bool:
    return not isinstance(handler, handlers.Prepared) or handler.prepared()


def _capabilities(found: dict[str, handlers.Handler]) -> list[str]:
    """Return the requirements of payloads that the handlers meet on this machine, each once."""
    able = (handler.capabilities() for handler in found.values() if isinstance(handler, handlers.Capable))
    return sorted({name for names in able for name in names})


def _engine(found: dict[str, handlers.Handler]) -> str | None:
    """Return the name and version of the program that does tasks on this machine."""
    named = (handler.engine() for handler in found.values() if isinstance(handler, handlers.Capable))
    return next((name for name in named if name), None)


def _kinds(wanted: str | None, installed: dict[str, handlers.Handler], *, alone: bool) -> list[str]:
    """Return the kinds of jobs to claim; none is an error if there is nothing else to claim."""
    able = sorted(kind for kind, handler in installed.items() if _is_prepared(handler))
    kinds = able if wanted is None else [kind.strip() for kind in wanted.split(",") if kind.strip()]
    if missing := [kind for kind in kinds if kind not in installed]:
        raise Refusal(f"no handler for {', '.join(missing)}; installed: {', '.join(sorted(installed)) or 'none'}")
    if not kinds and alone:
        raise Refusal("there is no kind to claim: no handler is installed")
    return kinds


def _run_ref() -> str | None:
    """Return the address of the GitHub Actions run that this process belongs to."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT")
    parts = [os.environ.get(name) for name in names]
    return None if None in parts else "{}/{}/actions/runs/{}/attempts/{}".format(*parts)


def _spec(file: Path) -> dict[str, Any]:
    try:
        return specs.read(file)
    except specs.SpecError as error:
        raise Refusal(str(error)) from None
