"""Handlers that the tests let a runner find; the spec of a job says where to meet the test."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentstore_runner.handlers import Desk, Report, Work


class Worker:
    """Handles every kind of the tests: the kind's last word is the method."""

    kinds: tuple[str, ...] = ("test.echo", "test.meet", "test.obey", "test.stubborn", "test.crash", "test.child")

    def run(self, work: Work, desk: Desk) -> Report:
        report = getattr(self, work.kind.removeprefix("test."))(work, desk)
        assert isinstance(report, Report)
        return report

    def echo(self, work: Work, desk: Desk) -> Report:
        return Report("done", verdict="pass", results={"spec": work.spec})

    def meet(self, work: Work, desk: Desk) -> Report:
        """Work until the test opens the other end, whatever anybody asks for meanwhile."""
        self._meet(work.spec)
        return Report("done", verdict="pass", results={"stopped": desk.stopped()})

    def obey(self, work: Work, desk: Desk) -> Report:
        """Work until there is a reason to stop, and say which."""
        reason = desk.wait(600)
        return Report("cancelled", results={"reason": reason})

    def stubborn(self, work: Work, desk: Desk) -> Report:
        """Never look at the desk, and swallow every exception that a handler may swallow."""
        while True:
            try:
                self._meet(work.spec)
            except Exception as error:  # noqa: BLE001 - this handler is written to be bad
                desk.log(str(error))

    def crash(self, work: Work, desk: Desk) -> Report:
        raise RuntimeError(work.spec["text"])

    def child(self, work: Work, desk: Desk) -> Report:
        """Let a child process show its environment and its arguments."""
        code = "import os, sys; print(dict(os.environ), sys.argv)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        parent = Path(f"/proc/{os.getpid()}/cmdline").read_bytes().decode()
        return Report("done", results={"child": shown.stdout, "argv": parent.split("\0")})

    def _meet(self, spec: dict[str, Any]) -> None:
        with open(spec["fifo"], "rb") as fifo:
            fifo.read()
