"""`python -m checks.debian_postgres COMMAND …` runs a command against a throw-away cluster of the system's PostgreSQL.

DATABASE_URL names it. The embedded server is a newer major version: this shows that the oldest supported one works too.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROLE = "CREATE ROLE agentstore LOGIN CREATEDB NOSUPERUSER"
DATABASE = "CREATE DATABASE agentstore OWNER agentstore"
INSTALLED = Path("/usr/lib/postgresql")


def main(command: list[str]) -> int:
    """Return the exit code of the command, or 0 with a word when no PostgreSQL is installed."""
    versions = sorted(
        (int(path.name), path / "bin") for path in INSTALLED.glob("[0-9]*") if (path / "bin/initdb").exists()
    )
    if not versions:
        print("SKIPPED: the system has no PostgreSQL. Install it with: apt-get install postgresql")
        return 0
    version, binaries = versions[0]
    # PostgreSQL refuses to run as root.
    owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else None

    def run(name: str, *arguments: str) -> None:
        subprocess.run(
            [binaries / name, *arguments],
            check=True,
            cwd="/",
            stdout=subprocess.DEVNULL,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )

    folder = Path(tempfile.mkdtemp(prefix="ags-pg-"))
    data = folder / "data"
    settings = f"-c listen_addresses= -c fsync=off -c max_connections=200 -k {folder}"
    try:
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-o", settings, "-w", "start")
        try:
            for statement in (ROLE, DATABASE):
                run("psql", "-h", str(folder), "-U", "postgres", "-d", "postgres", "-qc", statement)
            print(f"Against PostgreSQL {version} of the system: {' '.join(command)}", flush=True)
            url = f"postgresql://agentstore@/agentstore?host={quote(str(folder), safe='')}"
            return subprocess.run(command, check=False, env={**os.environ, "DATABASE_URL": url}).returncode
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
