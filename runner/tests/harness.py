"""A runner in this process, and a runner in a process of its own."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentstore_runner.bearer import Bearer
from agentstore_runner.claiming import Order
from agentstore_runner.client import Client
from agentstore_runner.handlers import Handler, by_kind
from agentstore_runner.redaction import Redactor
from agentstore_runner.shutdown import Shutdown
from agentstore_runner.spool import Spool
from agentstore_runner.supervisor import Supervisor
from standin import PATIENCE_S, TOKEN, Row, StandIn
from worker import Worker


class Runner:
    """A runner in this process, against the stand-in, with the real client, spool and threads."""

    def __init__(self, server: StandIn, state: Path, name: str = "tester") -> None:
        self.server = server
        self.state = state
        self.name = name
        self.shutdown = Shutdown()
        self.handlers: dict[str, Handler] = by_kind([Worker()])
        self.task_handlers: dict[str, Handler] = {}
        self.rng = random.Random(7)

    def run(self, *, once: bool = True, **order: Any) -> int:
        client = Client(self.server.url, Bearer(TOKEN), name=self.name)
        asked = {"kinds": sorted(self.handlers), "task_types": sorted(self.task_handlers)}
        try:
            with Spool.opened(self.state, self.server.url, self.name) as spool:
                supervisor = Supervisor(
                    Order(**{"name": self.name, **asked, "once": once, **order}),
                    client=client,
                    spool=spool,
                    handlers=self.handlers,
                    task_handlers=self.task_handlers,
                    shutdown=self.shutdown,
                    redactor=lambda: Redactor([TOKEN]),
                    rng=self.rng,
                )
                return supervisor.run()
        finally:
            client.close()

    def start(self, **order: Any) -> Callable[[], int]:
        """Run in a thread; the returned function waits for the exit code."""
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(self.run(**order)))
        thread.start()

        def ended() -> int:
            thread.join(PATIENCE_S)
            assert codes, "the runner did not end"
            return codes[0]

        return ended


class Process:
    """A real runner process; `log` is what it wrote so far."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            command = [sys.executable, "-m", "agentstore_runner", *arguments]
            self.popen = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def code(self) -> int:
        return self.popen.wait(PATIENCE_S)


def release(fifo: Path) -> None:
    """Let a handler that waits at the other end go on."""
    with open(fifo, "wb"):
        pass


def running(server: StandIn, row: Row) -> None:
    """Wait until the runner works on the row: its first heartbeat has come."""
    server.until(lambda: row.beats)
