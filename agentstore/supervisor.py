"""`python -m agentstore.supervisor`: the whole installation in one command, ended by one signal.

It keeps the embedded PostgreSQL running (if DATABASE_URL is empty), migrates, and runs the web server and the
maintenance loop as children. If one of them ends by itself, all end.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO

from agentstore import embedded_postgres
from agentstore.config import REPOSITORY, Config, config

STOP_SECONDS = 30
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)  # loaded here: nothing may be loaded between fork and exec

MANAGE = (sys.executable, str(REPOSITORY / "manage.py"))


class SupervisorError(Exception):
    """The installation cannot run; the text says why."""


def main() -> int:
    """Run until SIGTERM or SIGINT (returns 0), or until a part fails (returns 1 after one sentence)."""
    parts = Parts()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: parts.events.put(signal.Signals(received).name))
    try:
        with nullcontext() if config.database_url else embedded_postgres.server(config.home):
            try:
                _check_port()
                _prepare(parts)
                parts.start("The web server", web_server(config))
                parts.start("The maintenance loop", (*MANAGE, "maintain", "--loop", "5"))
                parts.wait_for_answer("::1" if config.host == "::" else config.host, config.port)
                print(f"agentstore is at {config.public_url}/ (Ctrl-C stops it)", flush=True)
                parts.wait()
            finally:
                parts.stop()
    except (embedded_postgres.EmbeddedPostgresError, SupervisorError) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def web_server(config: Config) -> tuple[str, ...]:
    """Return the command that serves HTTP."""
    settings: Mapping[str, object] = {
        "interface": "wsgi",
        "host": config.host,
        "port": config.port,
        "workers": config.workers,
        "blocking-threads": config.threads,
        # A thread keeps its database connection; ending idle threads would open new ones all day.
        "blocking-threads-idle-timeout": 600,
        "http": "1",
        "workers-kill-timeout": STOP_SECONDS // 2,
        "log-level": "warning",
    }
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return (
        sys.executable,
        "-m",
        "granian",
        *options,
        "--no-ws",
        "--respawn-failed-workers",
        "agentstore.wsgi:application",
    )


class Parts:
    """The children, and the queue that tells when one ended or a signal came."""

    def __init__(self) -> None:
        self.events: SimpleQueue[str | subprocess.Popen[bytes]] = SimpleQueue()
        self._names: dict[subprocess.Popen[bytes], str] = {}

    def start(
        self,
        name: str,
        command: tuple[str, ...],
        *,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | None = None,
        on_death: signal.Signals = signal.SIGTERM,
    ) -> subprocess.Popen[bytes]:
        """Start a child that gets `on_death` when this process dies, however it dies; `log` takes what it writes."""
        # In a session of its own: Ctrl-C reaches the supervisor only, which then ends the children in order.
        die = partial(_die_with, os.getpid(), on_death)
        child = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdout=log or sys.stderr,  # our own standard output says where to look, and nothing else
            stderr=log,
            start_new_session=True,
            preexec_fn=die,  # noqa: PLW1509  (see it)
        )
        self._names[child] = name
        threading.Thread(target=self._report_end, args=(child,), daemon=True).start()
        return child

    def run(self, name: str, command: tuple[str, ...]) -> None:
        """Start a child and wait for its good end; raise SupervisorError for a bad one or a signal."""
        child = self.start(name, command)
        event = self.events.get()
        if event is not child:
            raise SupervisorError(f"{name} was interrupted by {event}.")
        del self._names[child]
        if child.returncode:
            raise SupervisorError(f"{name} failed with exit code {child.returncode}.")

    def wait(self, seconds: float | None = None) -> None:
        """Return when a signal came; raise SupervisorError when a child ended before, Empty after `seconds`."""
        event = self.events.get(timeout=seconds)
        if isinstance(event, subprocess.Popen):
            raise SupervisorError(
                f"{self._names[event]} ended by itself (exit code {event.returncode}): all is stopped."
            )

    def wait_for_answer(self, host: str, port: int) -> None:
        """Return when something listens there; raise SupervisorError if a child ends or a signal comes before."""
        while True:
            try:
                socket.create_connection((host, port), timeout=1).close()
            except OSError:
                try:
                    self.wait(0.1)
                except Empty:
                    continue
                raise SupervisorError("Stopped while starting.") from None
            return

    def stop(self) -> None:
        """End all children, the last one started first, by force after STOP_SECONDS."""
        for child in reversed(self._names):
            child.terminate()
        for child, name in self._names.items():
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{name} does not end and is killed.", file=sys.stderr, flush=True)
                child.kill()
                child.wait()

    def _report_end(self, child: subprocess.Popen[bytes]) -> None:
        child.wait()
        self.events.put(child)


def _prepare(parts: Parts) -> None:
    parts.run("The migration", (*MANAGE, "migrate", "--verbosity=0"))
    parts.run("Registering the kinds", (*MANAGE, "sync_kinds"))
    if config.production:
        parts.run("Collecting the static files", (*MANAGE, "collectstatic", "--noinput", "--verbosity=0"))


def _check_port() -> None:
    """Refuse a port that is taken: granian would share it with another server, each getting some of the requests."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            raise SupervisorError(
                f"{config.host} port {config.port} cannot be used ({error.strerror}): set HOST or PORT."
            ) from error


def _die_with(parent: int, number: int) -> None:
    # Runs between fork and exec, where a lock held by another thread would hang: one system call, nothing else.
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
