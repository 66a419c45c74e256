"""`python -m agentstore.embedded_postgres url` prints the URI; `… run -- COMMAND` runs a command with the server up."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from agentstore import embedded_postgres
from agentstore.embedded_postgres import cluster, guardian, privileges

USAGE = "usage: python -m agentstore.embedded_postgres url | run -- COMMAND ..."


def main(words: list[str]) -> int:
    """Do what the arguments say and return the exit code; `guard` and `become` are for the package itself."""
    match words:
        case ["guard", folder, report, options]:
            return guardian.guard(Path(folder), int(report), json.loads(options))
        case ["become", parent, identity, *command]:
            privileges.become(int(parent), json.loads(identity), command)
    home = Path(os.environ.get("AGENTSTORE_HOME") or embedded_postgres.PACKAGES / "var")
    match words:
        case ["url"]:
            print(embedded_postgres.connection_url(home))
            return 0
        case ["run", "--", *command] if command:
            return _run(home, command)
    print(USAGE, file=sys.stderr)
    return 2


def _run(home: Path, command: list[str]) -> int:
    try:
        with embedded_postgres.server(home):
            # The clients that go with this server come first: pg_dump refuses a server that is newer than itself.
            path = f"{cluster.binaries()}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            process = subprocess.Popen(command, env={**os.environ, "PATH": path})
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda received, _: process.send_signal(received))
            code = process.wait()
    except (embedded_postgres.EmbeddedPostgresError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
