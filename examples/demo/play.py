"""The demo's course: start everything, run two jobs and a backup for real, show them, and end without a trace."""

import argparse
import fcntl
import json
import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from queue import Empty
from typing import TextIO

import httpx2
from agentstore_runner.uat import chromium
from django.db import connections
from django.urls import reverse

from agentstore import embedded_postgres
from agentstore.config import Config, config
from agentstore.supervisor import Parts, SupervisorError
from artifacts.models import JobArtifact
from examples.demo import backups, cast
from examples.demo.visitor import VisitError, Visitor

DESCRIPTION = """Start agentstore with everything around it: PostgreSQL (embedded, unless DATABASE_URL names a server),
web server, maintenance loop, a demo shop and one runner; run a browser job and an API job against the shop; back a
folder up and restore it; print what came of it and keep serving until Ctrl-C. Data stays in AGENTSTORE_HOME, so the
next demo goes on with it."""
BROWSER_JOB, API_JOB = "signin-smoke", "api-contract"
RUNNER_SECONDS = 20.0  # for its last report
PATIENCE = 180.0  # seconds for both jobs
LOOK_EVERY = 0.2  # seconds
# What a runner needs of our environment; it never sees the server's secrets.
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "AGENTSTORE_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH")
UPLOADED = re.compile(r"uploaded (\S+), sha256 ([0-9a-f]{64})")


class RefusedError(Exception):
    """The demo does not begin; the text says why."""


class InterruptedByUserError(Exception):
    """A signal came while the jobs ran."""


def main(words: list[str]) -> int:
    """Play; return 0 if the jobs ended as they are meant to (or a signal ended the serving), else 1."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=DESCRIPTION)
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument(
        "--once",
        action="store_true",
        help="then open the evidence as a person would, print one JSON line per job on standard output, and end",
    )
    ending.add_argument("--no-serve", action="store_true", help="end when the jobs have ended")
    options = parser.parse_args(words)
    answers = _separated_output()
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells every request
    parts = Parts()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: parts.events.put(signal.Signals(received).name))
    try:
        with _folder() as folder, nullcontext() if config.database_url else embedded_postgres.server(config.home):
            try:
                return _play(parts, folder, answers, once=options.once, serve=not options.once and not options.no_serve)
            finally:
                connections.close_all()
                parts.stop()
    except InterruptedByUserError:
        say("Stopped before the jobs had ended.")
        return 130
    except (RefusedError, embedded_postgres.EmbeddedPostgresError, VisitError, httpx2.TransportError) as error:
        say(str(error))
    except SupervisorError as error:
        say(f"{error} The logs are in {config.home / 'demo'}.")
    return 1


def _play(parts: Parts, folder: Path, answers: TextIO, *, once: bool, serve: bool) -> int:
    address, shop = _start_servers(parts, folder)
    password = cast.admin_password(folder)
    cast.register_agents()
    cast.register_target(shop)
    cast.clear_stage()
    backups.clear_stage()
    token = cast.token_file(folder)
    missing_browser = chromium.find(os.environ) is None
    jobs = [cast.enqueue(name, shop) for name in ([API_JOB] if missing_browser else [BROWSER_JOB, API_JOB])]
    backup = backups.back_up(folder) if backups.is_possible() else None
    log = folder / "runner.log"
    with _runner(parts, address, token, folder, log):
        _wait_until_ended(parts, [*jobs, *([backup] if backup else [])])
        good = _tell(jobs, address) and not missing_browser
        kept = _restored(parts, folder, backup, address) if backup else None
        good = good and bool(kept and kept["identical"])
        if backup is None:
            say(f"\n  The backup was left out: there is no restic. To have it: {backups.INSTALL_HINT}")
        if missing_browser:
            say(f"\n  The browser job was left out: there is no Chromium. To have it: {chromium.INSTALL_HINT}")
        if once:
            good = _report(Visitor(address), jobs, password, log, answers) and good
            if kept:
                print(json.dumps(kept), file=answers, flush=True)
        if serve:
            shown = f"password {password}" if password else "the password that you have set"
            say(f"\n  Look around at {address}/ as {cast.ADMIN}, {shown}. Ctrl-C stops everything.")
            parts.wait()
            return 0
    return 0 if good else 1


def _tell(jobs: list[cast.Part], address: str) -> bool:
    """Say what became of the jobs and where to look; return whether it is what they are meant to come to."""
    rows = [job.latest() for job in jobs]
    for job, row in zip(jobs, rows, strict=True):
        say(f"\n  {job.title}: {row.status}, verdict {row.verdict or 'none'}{f' ({row.error})' if row.error else ''}")
        say(f"    {address}{_page(job)}")
    return all((row.status, row.verdict) == ("done", job.expected) for job, row in zip(jobs, rows, strict=True))


def _restored(parts: Parts, folder: Path, backup: backups.Run, address: str) -> dict[str, object]:
    """Restore what was backed up, compare it byte by byte, and say what came of both."""
    task, to = backup.latest(), folder / "restored"
    if backup.status() != "succeeded":
        say(f"\n  {backup.title}: {backup.status()} ({task.error_message})")
        return {"backup": backup.status(), "restore": None, "files": 0, "identical": False}
    restore = backups.restore(backup, to)
    _wait_until_ended(parts, [restore])
    identical = restore.status() == "succeeded" and backups.is_identical(folder, to)
    words = "every byte is back" if identical else f"not what went in ({restore.latest().error_message})"
    say(f"\n  {backup.title}: {backup.status()}, {task.files_processed} files; restored: {words}")
    say(f"    {address}{reverse('admin:jobs_backupjobrun_change', args=[backup.run_id])}")
    return {
        "backup": backup.status(), "restore": restore.status(), "files": task.files_processed, "identical": identical,
    }  # fmt: skip


def _start_servers(parts: Parts, folder: Path) -> tuple[str, str]:
    """Start the web server, the maintenance loop and the shop; return the addresses of web server and shop."""
    port = _free_port(config.host, config.port)
    if port != config.port:
        say(f"Port {config.port} is taken, so the demo uses {port}; PORT=… chooses another one.")
    environment = {**os.environ, "PORT": str(port)}
    address = Config.from_environment(environment).public_url
    say("Starting PostgreSQL, the web server, the maintenance loop and the demo shop …")
    port_file = folder / "shop.port"
    port_file.unlink(missing_ok=True)
    server = (sys.executable, "-m", "agentstore.supervisor")
    shop = (sys.executable, "-m", "examples.shop", "--port", "0", "--port-file", str(port_file))
    with (folder / "server.log").open("wb") as log:
        parts.start("The server", server, environment=environment, log=log)
    with (folder / "shop.log").open("wb") as log:
        parts.start("The shop", shop, log=log)
    while not (port_file.exists() and _is_ready(address)):
        _pause(parts)
    return address, f"http://127.0.0.1:{port_file.read_text()}"


@contextmanager
def _runner(parts: Parts, address: str, token: Path, folder: Path, log: Path) -> Iterator[None]:
    """A runner that works inside the block, and can still report what it was doing when the block ends."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment["AGENTSTORE_RUNNER_CONFIG"] = str(backups.configuration(folder))
    environment["UAT_SHOP_PASSWORD"] = secrets.token_urlsafe(12)  # the shop takes any
    command = (
        *(sys.executable, "-m", "agentstore_runner", "run", "--forever", "--server", address, "--allow-http"),
        *("--token-file", str(token), "--state", str(folder / "runner"), "--name", "demo", "--log", "plain"),
    )
    with log.open("wb") as file:
        # Killed with us: its server is gone too, and it would go on trying to report for a long time.
        runner = parts.start("The runner", command, environment=environment, log=file, on_death=signal.SIGKILL)
    try:
        yield
    finally:
        runner.terminate()
        with suppress(subprocess.TimeoutExpired):  # whatever hangs is killed with the other parts
            runner.wait(RUNNER_SECONDS)


def _wait_until_ended(parts: Parts, jobs: Sequence[cast.Part | backups.Run]) -> None:
    until = time.monotonic() + PATIENCE
    seen: dict[str, str] = {}
    while True:
        states = {job.title: job.latest().status for job in jobs}
        for title, status in states.items():
            if seen.get(title) != status:
                say(f"  {title}: {status}")
        if not {"queued", "pending", "claimed", "running"} & set(states.values()):
            return
        if time.monotonic() > until:
            raise SupervisorError(f"The jobs did not end within {PATIENCE:.0f} seconds.")
        seen = states
        _pause(parts)


def _report(visitor: Visitor, jobs: list[cast.Part], password: str | None, log: Path, answers: TextIO) -> bool:
    """Open all evidence over HTTP, print a JSON line for each job; return whether every digest is the runner's own."""
    if password is None:
        raise VisitError(f"The password of {cast.ADMIN} was changed by a person: the demo cannot log in.")
    visitor.log_in(cast.ADMIN, password)
    sent = dict(UPLOADED.findall(log.read_text()))
    all_good = True
    for job in jobs:
        row = job.latest()
        opened = visitor.evidence(_page(job))
        stored = {str(artifact.pk): artifact for artifact in JobArtifact.objects.filter(job=row)}
        digests_agree = opened.keys() == stored.keys() and all(
            opened[key] == artifact.sha256 == sent.get(artifact.name) for key, artifact in stored.items()
        )
        all_good = all_good and digests_agree
        line = {
            "job": str(row.pk),
            "status": row.status,
            "verdict": row.verdict,
            "checks": len((row.results or {}).get("checks", ())),
            "artifacts": len(opened),
            "sha256_ok": digests_agree,
        }
        print(json.dumps(line), file=answers, flush=True)
    return all_good


def say(line: str) -> None:
    """Tell people; standard output belongs to the JSON lines."""
    print(line, file=sys.stderr, flush=True)


def _page(job: cast.Part) -> str:
    return f"/admin/jobs/agentjob/{job.latest().pk}/change/"


def _pause(parts: Parts) -> None:
    """Return after a moment. Raises SupervisorError if a part ended, InterruptedByUserError if a signal came."""
    try:
        parts.wait(LOOK_EVERY)
    except Empty:
        return
    raise InterruptedByUserError


def _is_ready(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/readyz", trust_env=False, timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


def _free_port(host: str, wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RefusedError(f"There is no free port at {host}.")


@contextmanager
def _folder() -> Iterator[Path]:
    """The demo's own folder, locked: two demos with one home would stop each other's runner."""
    if config.production:
        raise RefusedError(
            "PRODUCTION is set: the demo makes a login and agents, which belong in no real installation."
        )
    folder = config.home / "demo"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(f"A demo runs already with {config.home}: stop it, or set AGENTSTORE_HOME.") from None
        yield folder


def _separated_output() -> TextIO:
    """Return what was standard output, for the JSON lines; whatever children print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout.flush()
    os.dup2(2, 1)
    return answers
