"""`python -m checks.pgbouncer COMMAND …` runs a command against the system's pgbouncer in transaction mode.

Behind it stands the embedded PostgreSQL. DATABASE_URL names the pooler, and server-bound statements are off: what a
connection remembers from one transaction to the next is lost here.
"""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

from agentstore import embedded_postgres

PORT = 6432  # only the name of a socket in a folder of its own
# As docs/operations.md tells.
CONFIGURATION = """
[databases]
* = host={server} user=agentstore

[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
unix_socket_mode = 0777
listen_port = {port}
auth_type = any
pool_mode = transaction
ignore_startup_parameters = options,extra_float_digits
max_client_conn = 400
default_pool_size = 12
min_pool_size = 0
reserve_pool_size = 4
server_idle_timeout = 5
server_login_retry = 1
query_wait_timeout = 5
logfile = {folder}/pgbouncer.log
"""
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
START_SECONDS = 20


def main(command: list[str]) -> int:
    """Return the exit code of the command, or 0 with a word when no pgbouncer is installed."""
    if program() is None:
        print("SKIPPED: the system has no pgbouncer. Install it with: apt-get install pgbouncer")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="ags-pb-"))
    try:
        with (
            embedded_postgres.server(folder, options=FAST),
            pooler(folder, Path(str(embedded_postgres.connection_settings(folder)["HOST"]))) as url,
        ):
            print(f"Through pgbouncer in transaction mode: {' '.join(command)}", flush=True)
            environment = {**os.environ, "DATABASE_URL": url, "AGENTSTORE_PREPARED_STATEMENTS": "0"}
            return subprocess.run(command, check=False, env=environment).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def program() -> str | None:
    """Where pgbouncer is, which Debian puts outside of the path of ordinary users."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")


@contextmanager
def pooler(folder: Path, server: Path) -> Iterator[str]:
    """Run pgbouncer in `folder` in front of the socket in the folder `server`; gives the URL to connect to."""
    configuration, log = folder / "pgbouncer.ini", folder / "pgbouncer.log"
    configuration.write_text(CONFIGURATION.format(folder=folder, server=server, port=PORT))
    # It refuses to run as root, like the server, whose account owns the socket that only this account may open.
    owner = pwd.getpwuid(server.stat().st_uid) if os.geteuid() == 0 else None
    if owner:
        for path in (folder, configuration):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    process = subprocess.Popen(
        [program() or "pgbouncer", "-q", str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=owner.pw_uid if owner else None,
        group=owner.pw_gid if owner else None,
        extra_groups=[] if owner else None,
    )
    try:
        end = monotonic() + START_SECONDS
        while not _listens(folder / f".s.PGSQL.{PORT}"):
            if process.poll() is not None or monotonic() > end:
                raise SystemExit(f"pgbouncer does not start: {log.read_text() if log.exists() else process.returncode}")
            sleep(0.05)
        yield f"postgresql://agentstore@/agentstore?host={quote(str(folder), safe='')}&port={PORT}"
    finally:
        process.terminate()
        process.wait()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
