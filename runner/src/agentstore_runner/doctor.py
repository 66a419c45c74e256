"""What a runner needs, looked at one by one, each with what to do when it is missing."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from agentstore_runner.backup import configuration, credentials, drills, engine
from agentstore_runner.backup.configuration import Configuration, ConfigurationError
from agentstore_runner.backup.engine import EngineError
from agentstore_runner.backup.session import SettledError
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.handlers import Handler
from agentstore_runner.uat import chromium

# Leases use the server's clock alone; a wrong clock here breaks TLS and the reading of logs.
LARGEST_SKEW_S = 30.0
LEAST_SPACE = 500 * 1024 * 1024
BROWSER_SECONDS = 60.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `fix` is empty when it is fine."""

    state: Literal["ok", "warning", "failed"]
    subject: str
    detail: str
    fix: str = ""


def examine(
    client: Client, state: Path, handlers: Callable[[], dict[str, Handler]], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Look at everything, from the network inwards; a finding never hides the next one."""
    reachable = _reachable(client)
    yield reachable
    if reachable.state == "ok":
        yield _ready(client)
        yield from _agent(client)
    yield _handlers(handlers)
    yield _browser(environ)
    yield from _backups(environ)
    yield _state(state)


def _reachable(client: Client) -> Finding:
    fix = "check the address, the name resolution, the proxy (HTTPS_PROXY) and the certificate of the server"
    try:
        status, _ = client.probe("/healthz")
    except UnansweredError as error:
        return Finding("failed", "server", str(error), fix)
    if status != 200:
        return Finding("failed", "server", f"/healthz answers {status}: another service may own this address", fix)
    return Finding("ok", "server", "/healthz answers")


def _ready(client: Client) -> Finding:
    try:
        status, text = client.probe("/readyz")
    except UnansweredError as error:
        return Finding("failed", "readiness", str(error), "look at the server's log")
    if status != 200:
        return Finding("failed", "readiness", f"/readyz answers {status}: {text[:300]}", "look at the server's log")
    return Finding("ok", "readiness", "database and migrations are in order")


def _agent(client: Client) -> Iterator[Finding]:
    try:
        answer = client.me()
    except UnansweredError as error:
        yield Finding("failed", "token", str(error), "a proxy may stand before the API: let /api/v1 through")
        return
    if not answer.ok:
        yield Finding("failed", "token", answer.sentence, "issue a new token for the agent in the admin")
        return
    state, name = str(answer.body.get("state", "?")), answer.body.get("principal_key", "?")
    if state == "active":
        yield Finding("ok", "token", f"accepted as {name}, {len(answer.body['claims'])} open claims")
    else:
        note = answer.body.get("note") or "no note"
        yield Finding("warning", "token", f"accepted as {name}, which is {state} ({note})", "resume it in the admin")
    yield _clock(answer)


def _clock(answer: Answer) -> Finding:
    try:
        skew = (datetime.now(UTC) - datetime.fromisoformat(str(answer.body["server_time"]))).total_seconds()
    except (ValueError, TypeError):
        return Finding("failed", "clock", "the server's time cannot be read", "is the server of the same version?")
    if abs(skew) > LARGEST_SKEW_S:
        ahead = "ahead of" if skew > 0 else "behind"
        return Finding("warning", "clock", f"{abs(skew):.0f} s {ahead} the server's", "start a time service (NTP)")
    return Finding("ok", "clock", f"{abs(skew):.1f} s from the server's")


def _handlers(handlers: Callable[[], dict[str, Handler]]) -> Finding:
    fix = "install the package of the handler into the runner's environment"
    try:
        kinds = sorted(handlers())
    except Exception as error:  # noqa: BLE001 - code of any installed package runs here
        return Finding("failed", "handlers", f"{type(error).__name__}: {error}", fix)
    if not kinds:
        return Finding("failed", "handlers", "none is installed", fix)
    return Finding("ok", "handlers", ", ".join(kinds))


def _browser(environ: Mapping[str, str]) -> Finding:
    found = chromium.find(environ)
    if found is None:
        detail = "no Chromium: only specs without browser steps can run"
        return Finding("warning", "browser", detail, chromium.INSTALL_HINT)
    code, said = _rehearsed(found, environ)
    if code != 0:
        fix = f"see what `{found} --headless --dump-dom about:blank` says; {chromium.INSTALL_HINT}"
        return Finding("failed", "browser", f"{found} does not start: {said[-300:]}", fix)
    return Finding("ok", "browser", f"{found} starts: {said}")


def _rehearsed(browser: str, environ: Mapping[str, str]) -> tuple[int, str]:
    """Start the browser in a child, so that one that hangs or crashes takes nothing along."""
    command = [sys.executable, "-m", "agentstore_runner.uat.rehearsal", browser]
    with subprocess.Popen(
        command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as child:  # fmt: skip
        try:
            said, _ = child.communicate(timeout=BROWSER_SECONDS)
        except subprocess.TimeoutExpired:
            return 1, f"nothing happened for {BROWSER_SECONDS:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, said.strip()


def _backups(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what backups need, where somebody has configured them."""
    place = configuration.folder(environ)
    if not configuration.present(environ):
        yield Finding("ok", "backups", f"not configured: there is neither backups.toml nor credentials in {place}")
        return
    try:
        configured = configuration.read(environ)
    except ConfigurationError as error:
        yield Finding("failed", "backups", str(error), "mend the file; docs/runner.md shows one")
        return
    yield _engine(configured.restic, environ)
    names = sorted({*configured.credential_commands, *configuration.credential_files(configured)})
    if not names:
        fix = f"write {place}/credentials/NAME.toml with mode 600; docs/runner.md shows one"
        yield Finding("failed", "credentials", "this machine has none", fix)
    for name in names:
        yield _credential(name, configured, environ)
    if configured.drill_folder is not None:
        yield _drills(configured)


def _engine(name: str, environ: Mapping[str, str]) -> Finding:
    try:
        found = engine.find(name, environ)
    except EngineError as error:
        return Finding("failed", "restic", str(error), engine.INSTALL_HINT)
    said = f"{found.path} is version {found.release}"
    if found.version < engine.RECOMMENDED:
        fix = "0.17.1 or later can choose what a restore overwrites, and says more about what failed"
        return Finding("warning", "restic", said, fix)
    return Finding("ok", "restic", said)


def _credential(name: str, configured: Configuration, environ: Mapping[str, str]) -> Finding:
    try:
        credentials.resolve(name, configured, environ)
    except ConfigurationError as error:
        return Finding("failed", f"credential {name}", str(error), "mend the file or the command that gives it")
    return Finding("ok", f"credential {name}", "can be read by this user alone")


def _drills(configured: Configuration) -> Finding:
    try:
        folder = drills.usable(configured)
    except SettledError as settled:
        return Finding("failed", "drills", str(settled), "make the folder for the runner's user alone: mode 700")
    return Finding("ok", "drills", f"restores are rehearsed in {folder}")


def _state(state: Path) -> Finding:
    fix = "make room, or choose another folder with --state"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = state / ".doctor"
        probe.write_bytes(b"")
        probe.unlink()
        free = shutil.disk_usage(state).free
    except OSError as error:
        return Finding("failed", "state", f"{state}: {error.strerror}", fix)
    if free < LEAST_SPACE:
        return Finding("warning", "state", f"{state}: {free // 2**20} MiB are free", fix)
    return Finding("ok", "state", f"{state}: {free // 2**20} MiB are free")
