"""Commands of this machine's own administrator around the work: a dump before it, a start of the service after it."""

import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Any, Literal

from agentstore_runner import clock
from agentstore_runner.backup.child import Child, Limit, environment
from agentstore_runner.backup.configuration import Command, Configuration
from agentstore_runner.backup.outcome import Facts, of_restore, refused
from agentstore_runner.backup.output import Output, clean
from agentstore_runner.backup.session import SettledError
from agentstore_runner.contract.backup import Hooks
from agentstore_runner.handlers import Desk

_LINES = 40
_LONGEST = 2000


@dataclass
class Around:
    """The hooks of one task; `ran` tells of each that was started."""

    hooks: Hooks
    configured: Configuration
    scratch: Path
    desk: Desk
    environ: Mapping[str, str]
    ran: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Run the commands before the block, and those after it whatever happens; SettledError if one before fails."""
        names = (*self.hooks.before, *self.hooks.after)
        if unknown := [name for name in names if name not in self.configured.hooks]:
            said = f"this machine's configuration defines no command {', '.join(unknown)}"
            raise SettledError(refused("configuration", "payload_unsupported", said))
        try:
            for name in self.hooks.before:
                self._before(name)
            yield
        finally:
            for name in self.hooks.after:
                self._run(name, "after", None)

    @property
    def complaints(self) -> list[str]:
        """Return a sentence for each command after the work that failed: the backup is good, something else is not."""
        failed = (one for one in self.ran if one["when"] == "after" and one["exit_code"] != 0)
        return [f"the command {one['name']} after the work ended with exit code {one['exit_code']}" for one in failed]

    def _before(self, name: str) -> None:
        code, stopped = self._run(name, "before", self.desk)
        if stopped is not None and stopped != "timeout":
            raise SettledError(of_restore(Facts(code or 1, Output(), stopped)))
        if code != 0 or stopped is not None:
            how = "took too long" if stopped is not None else f"ended with exit code {code}"
            said = f"the command {name} {how}: {self.ran[-1]['output']}"
            raise SettledError(refused("source", "source_command_failed", said))

    def _run(self, name: str, when: Literal["before", "after"], desk: Desk | None) -> tuple[int, str | None]:
        command = self.configured.hooks[name]
        self.desk.log(f"command {name} {when} the work")
        self.desk.measure({"phase": f"command {name}", "title": f"command {name}"}, {})
        began = clock.now()
        said: deque[str] = deque(maxlen=_LINES)
        code, stopped = self._ended(command, name, desk, said)
        self.ran.append(
            {
                "name": name,
                "when": when,
                "exit_code": code,
                "timed_out": stopped == "timeout",
                "seconds": round(clock.now() - began, 1),
                "output": "\n".join(clean(line) for line in said)[-_LONGEST:],
            }
        )
        return code, stopped

    def _ended(self, command: Command, name: str, desk: Desk | None, said: deque[str]) -> tuple[int, str | None]:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        variables = environment(self.environ, {"AGENTSTORE_HOOK": name})
        with Child(command.argv, folder=folder, environ=variables, ends_by=SIGTERM) as child:
            return child.follow(desk, said.append, said.append, Limit(command.timeout_s, "timeout"))
