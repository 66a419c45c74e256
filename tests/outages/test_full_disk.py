"""A disk that is full: writes are refused and nothing is half done, reads go on, and the same request works later."""

import os
import random
import string
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.outages.installation import Database, add_agent, add_jobs, ask, web

TABLESPACE_BYTES = 16 * 1024 * 1024


def noise(length: int) -> str:
    """Text that no compression makes smaller, of words that nobody could take for a secret."""
    letters = random.Random(1).choices(string.ascii_lowercase, k=length)
    letters[::8] = " " * len(letters[::8])
    return "".join(letters)


@pytest.fixture
def small_disk(home: Path, postgres: Database) -> Iterator[Path]:
    """A file system on which the jobs lie, and nothing else."""
    folder = home / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={TABLESPACE_BYTES}", "tmpfs", folder],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    owner = Path(postgres.socket).stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    folder.chmod(0o700)
    home.chmod(0o711)  # the server's account passes through
    try:
        with postgres.connect("postgres") as superuser:
            superuser.execute("TRUNCATE agent_jobs CASCADE")
            superuser.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
            superuser.execute("ALTER TABLE agent_jobs SET TABLESPACE small")
        yield folder
        with postgres.connect("postgres") as superuser:
            superuser.execute("ALTER TABLE agent_jobs SET TABLESPACE pg_default")
            superuser.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all that is free."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return filler
    return filler


def test_a_full_disk_refuses_writes_keeps_reads_and_recovers(home: Path, postgres: Database, small_disk: Path) -> None:
    with postgres.connect() as connection, web(home, postgres.url, workers=1) as server:
        agent, bearer = add_agent(connection)
        add_jobs(connection, agent, 3)

        def call(method: str, path: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
            return ask(method, server.port, f"/api/v1/{path}", bearer=bearer, body=body)

        claim_id = str(uuid.uuid4())
        claim = {"claim_id": claim_id, "kinds": ["echo"], "runner": {"name": "test", "version": "1.0.0"}}
        assert call("POST", "jobs/claim", claim)[0] == 201
        [[job]] = postgres.ask("SELECT id::text FROM agent_jobs WHERE claim_id = %s", claim_id)
        # More than any page has room for, and nothing that compression makes small.
        results = {"said": noise(800_000)}
        result = {"claim_id": claim_id, "status": "done", "results": results}

        filler = fill(small_disk)
        status, headers, _ = call("PUT", f"jobs/{job}/result", result)
        assert (status, headers["content-type"]) == (503, "application/problem+json")
        assert int(headers["retry-after"]) > 0
        assert postgres.ask("SELECT status, results FROM agent_jobs WHERE id = %s", job) == [("running", None)]
        assert call("GET", "agents/me")[0] == 200
        assert ask("GET", server.port, "/readyz")[0] == 200
        with pytest.raises(psycopg.errors.DiskFull):
            add_jobs(connection, agent, 100_000)

        filler.unlink()
        assert call("PUT", f"jobs/{job}/result", result)[0] == 200
        assert postgres.ask("SELECT status, results FROM agent_jobs WHERE id = %s", job) == [("done", results)]
