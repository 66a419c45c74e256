"""One repository as this task may use it: every call of restic, with its credential, its locks and its limits."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentstore_runner import clock
from agentstore_runner.backup import causes
from agentstore_runner.backup.child import Child, Limit, environment
from agentstore_runner.backup.credentials import Credential
from agentstore_runner.backup.engine import Engine
from agentstore_runner.backup.outcome import Facts, Outcome, of_restore, refused
from agentstore_runner.backup.output import Output
from agentstore_runner.contract.backup import Repository
from agentstore_runner.handlers import Desk

_LOCK_PAUSES_S = (5.0, 10.0, 20.0, 30.0)
NO_LIMIT_S = 365 * 86_400.0
_AFTERWARDS_S = 120.0


class SettledError(Exception):
    """The outcome is known before the work itself could begin."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


@dataclass(frozen=True)
class Ended:
    """One call of restic that has ended."""

    code: int
    stopped: str | None
    output: Output
    lines: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        """Say whether another process holds the repository."""
        if self.code == 0 or self.stopped is not None:
            return False
        return causes.of_end(self.code, self.output).code == "repository_locked"

    @property
    def failure(self) -> Outcome:
        """Return the outcome of a call on the way to the work that did not end well."""
        return of_restore(Facts(self.code or 1, self.output, self.stopped))


class Session:
    """The repository with everything that a call of restic needs."""

    def __init__(
        self,
        engine: Engine,
        repository: Repository,
        credential: Credential,
        *,
        scratch: Path,
        desk: Desk,
        environ: Mapping[str, str],
    ) -> None:
        self.engine = engine
        self._repository = repository
        self._credential = credential
        self._scratch = scratch
        self._desk = desk
        self._environ = environ

    def call(
        self,
        arguments: Sequence[str],
        output: Output,
        *,
        stall_s: float = NO_LIMIT_S,
        stdout: Callable[[str], None] | None = None,
        tell: Callable[[Output], None] = lambda _: None,
        obedient: bool = True,
    ) -> Ended:
        """Run restic to its end; lines of stdout go to `stdout` instead of `output` if that is given.

        A call that is not obedient looks after what has been done already: nothing but its time limit stops it.
        One that had to be killed left its lock, which would stop maintenance by other agents: it is removed.
        """

        def said(line: str) -> None:
            output.take(line, complaint=False)
            tell(output)

        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        with (
            self._password() as descriptor,
            Child(
                [self.engine.path, *arguments],
                folder=folder,
                environ=self._variables(descriptor),
                descriptors=(descriptor,),
            ) as child,
        ):
            limit = Limit(stall_s if obedient else _AFTERWARDS_S, "stalled", lambda: output.signs)
            desk = self._desk if obedient else None
            code, stopped = child.follow(desk, stdout or said, lambda line: output.take(line, complaint=True), limit)
        if obedient and stopped is not None and code == -signal.SIGKILL:
            self.ask("unlock", obedient=False)
        return Ended(code, stopped, output)

    def ask(self, *arguments: str, obedient: bool = True) -> Ended:
        """Run a short command and keep what it prints."""
        lines: list[str] = []
        ended = self.call(arguments, Output(), stdout=lines.append, obedient=obedient)
        return Ended(ended.code, ended.stopped, ended.output, tuple(lines))

    def answer(self, *arguments: str, obedient: bool = True) -> Any:
        """Return the JSON document that a command prints; SettledError if it fails or is stopped."""
        ended = self.ask(*arguments, obedient=obedient)
        if ended.code != 0 or ended.stopped is not None:
            raise SettledError(ended.failure)
        try:
            return json.loads("\n".join(ended.lines))
        except (ValueError, RecursionError):
            raise SettledError(
                refused("internal", f"restic_exit_{ended.code}", f"restic {arguments[0]} printed no JSON")
            ) from None

    def identify(self) -> str:
        """Return the repository's own id, after making the repository if that is wanted; SettledError otherwise."""
        try:
            found = self.answer("cat", "config", "--no-lock")
        except SettledError as settled:
            if settled.outcome.code != "repository_missing" or not self._repository.init_if_missing:
                raise
            # A repository that was known once has gone: making a new one would hide that.
            if self._repository.expected_id is not None:
                raise
            made = self.ask("init")
            if made.code != 0 or made.stopped is not None:
                raise SettledError(made.failure) from None
            found = self.answer("cat", "config", "--no-lock")
        engine_id = str(found.get("id", "")) if isinstance(found, dict) else ""
        expected = self._repository.expected_id
        if expected is not None and engine_id != expected:
            said = f"the repository there is {engine_id[:8]}, and {expected[:8]} was expected"
            raise SettledError(refused("configuration", "repository_changed", said))
        return engine_id

    def patiently(self, call: Callable[[], Ended], wait_s: float) -> Ended:
        """Repeat a call while another process holds the repository, for at most so many seconds of waiting.

        A lock that a dead process of this machine left is removed first; a living one's never is.
        """
        ended = call()
        if not ended.locked:
            return ended
        self.ask("unlock")
        began, pauses = clock.now(), iter(_LOCK_PAUSES_S)
        ended = call()
        while ended.locked and (left := began + wait_s - clock.now()) > 0:
            self._desk.measure({"phase": "waiting for a lock", "title": "waiting for a lock"}, {})
            if (reason := self._desk.wait(min(next(pauses, _LOCK_PAUSES_S[-1]), left))) is not None:
                return Ended(ended.code, reason, Output())
            ended = call()
        return ended

    def snapshots(self, *filters: str, obedient: bool = True) -> list[dict[str, Any]]:
        """Return the snapshots of the repository, without a lock; SettledError if they cannot be listed."""
        found = self.answer("snapshots", "--json", "--no-lock", *filters, obedient=obedient)
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def _variables(self, descriptor: int) -> dict[str, str]:
        """Return restic's environment: what is in it shows in no list of processes."""
        given = {
            **self._credential.environment,
            "RESTIC_REPOSITORY": self._repository.location,
            "RESTIC_PASSWORD_FILE": f"/dev/fd/{descriptor}",
            # The default is up to sixty lines a second.
            "RESTIC_PROGRESS_FPS": "1",
        }
        return environment(self._environ, given)

    @contextmanager
    def _password(self) -> Iterator[int]:
        """Give the password through a pipe that is full before restic starts and closed behind it."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            with open(writer, "wb") as file:
                file.write(self._credential.password.encode())
            yield reader
        finally:
            os.close(reader)
