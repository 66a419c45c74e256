"""A storage that fails in every way: what is shown verifies, what failed said so, and the sweep leaves no orphan."""

import hashlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.config import Config
from django.core.files.storage import storages
from django.db import connection

from agentstore.config import REPOSITORY
from artifacts.models import JobArtifact
from artifacts.services.refusals import StorageUnavailable
from artifacts.services.sweeping import Swept, sweep
from tests.artifacts.conftest import (
    FILES,
    S3,
    Runner,
    S3Server,
    Store,
    new_runner,
    s3_options,
    s3_server,
    store,
)
from tests.outages.s3_faults import FAULTS, FaultyStorage

__all__ = ["s3_server", "store"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)

UPLOADS, AT_ONCE, JOBS = 1000, 8, 10
DISK_BYTES = 2 * 1024 * 1024
OLD = timedelta(days=2)


def content_of(number: int) -> bytes:
    """Bytes that tell one upload from all others, from a few to some thousand."""
    return (f"file {number}\0".encode() * (1 + number % 700))[: 20 + 9 * number]


def uploaded(runners: list[Runner], numbers: range) -> Counter[str]:
    """Upload files at once, through connections of their own; what came of them."""

    def one(number: int) -> str:
        try:
            runners[number % len(runners)].attach(f"{number}.bin", content_of(number))
        except StorageUnavailable as refusal:
            return str(refusal)
        finally:
            connection.close()
        return "stored"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(pool.map(one, numbers))


def assert_every_row_verifies(backend: Any) -> int:
    """Read the bytes of every row; how many there are."""
    rows = list(JobArtifact.objects.all())
    for row in rows:
        with backend.open(row.storage_path) as file:
            found = file.read()
        assert (hashlib.sha256(found).hexdigest(), len(found)) == (row.sha256, row.size_bytes)
    return len(rows)


@pytest.mark.parametrize("uploads", [250, pytest.param(UPLOADS, marks=pytest.mark.soak)])
def test_uploads_to_a_bucket_that_fails_lose_nothing_and_leave_nothing(
    uploads: int, s3_server: S3Server, settings: Any
) -> None:
    bucket = f"faulty-{uploads}"
    (s3_server.root / bucket).mkdir()
    with FaultyStorage(s3_server.url, seed=7) as faulty:
        hurried = Config(read_timeout=1, connect_timeout=1, retries={"total_max_attempts": 1})
        options = {**s3_options(s3_server, bucket), "endpoint_url": faulty.url, "client_config": hurried}
        settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": S3, "OPTIONS": options}}
        runners = [new_runner() for _ in range(JOBS)]
        outcome = uploaded(runners, range(uploads))
        assert set(outcome) == {"stored", "The storage cannot answer now; ask again."}
        assert set(faulty.met) == {*FAULTS, "none"}
        faulty.fails = False
        held = Store(backend=storages["artifacts"], folder=s3_server.root / bucket, is_s3=True)
        assert assert_every_row_verifies(held.backend) == outcome["stored"]
        lost_replies = len(held.keys) - outcome["stored"]
        assert lost_replies > 0
        assert sweep().orphans == 0  # all of them are young
        for key in held.keys:
            held.age(key, OLD)
        assert sweep() == Swept(removed=0, orphans=lost_replies, missing=0, found=0, refused=False)
        assert sorted(held.keys) == sorted(JobArtifact.objects.values_list("storage_path", flat=True))
        # What failed can be sent again, and what was stored finds itself.
        assert uploaded(runners, range(uploads)) == Counter(stored=uploads)
        assert assert_every_row_verifies(held.backend) == len(held.keys) == uploads


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for few files."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_uploads_one_by_one_and_takes_them_when_there_is_room(
    small_disk: Path, settings: Any
) -> None:
    options = {"location": small_disk / "artifacts"}
    settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": FILES, "OPTIONS": options}}
    held = Store(backend=storages["artifacts"], folder=small_disk / "artifacts", is_s3=False)
    runners = [new_runner() for _ in range(JOBS)]
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    outcome = uploaded(runners, range(UPLOADS))
    assert set(outcome) == {"stored", "The storage cannot answer now; ask again."}
    assert assert_every_row_verifies(held.backend) == outcome["stored"]
    assert len(held.files) == outcome["stored"]  # no beginnings of files
    refused = runners[0].put("one-more.bin", bytes(DISK_BYTES))
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused["Retry-After"]
    for key in held.keys:
        held.age(key, OLD)
    sweep()
    assert sorted(held.keys) == sorted(JobArtifact.objects.values_list("storage_path", flat=True))
    filler.unlink()
    failed = UPLOADS - outcome["stored"]
    assert uploaded(runners, range(UPLOADS))["stored"] >= min(UPLOADS, outcome["stored"] + failed // 4)
    assert assert_every_row_verifies(held.backend) == JobArtifact.objects.count()


CRASH = """
import hashlib, io, os, signal, sys, uuid
import django
django.setup()
from artifacts.services import uploads
from artifacts.services.file_storage import PrivateFileStorage
from jobs.models import Agent
from jobs.services.execution import Caller

point, agent, job, claim, token = sys.argv[1:]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
save, write_row = PrivateFileStorage._save, uploads.write_row
match point:
    case "before the bytes":
        PrivateFileStorage._save = die
    case "in the bytes":
        class Cut(io.BytesIO):
            def read(self, size=-1):
                return super().read(size) if self.tell() == 0 else die()
            def chunks(self, size=None):
                yield b"con"
                die()
        PrivateFileStorage._save = lambda self, name, content: save(self, name, Cut(b"content"))
    case "before the row":
        uploads.write_row = die
    case "after the row":
        uploads.write_row = lambda *given, **named: (write_row(*given, **named), die())
content = b"content"
uploads.attach(
    caller=Caller(agent=Agent.objects.get(principal_key=agent), token_id=uuid.UUID(token)), job_id=uuid.UUID(job),
    claim_id=uuid.UUID(claim), name="a.bin", length=len(content), sha256=hashlib.sha256(content).hexdigest(),
    stream=io.BytesIO(content),
)
"""
# point: (objects and rows after the crash, orphans that the sweep finds when the file was sent again)
POINTS = {
    "before the bytes": (0, 0, 0),
    "in the bytes": (1, 0, 1),
    "before the row": (1, 0, 1),
    "after the row": (1, 1, 0),
}


def database_url() -> str:
    """This test's own database, for another process."""
    entry = connection.settings_dict
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    server = {word: str(entry[name]) for name, word in names.items() if entry.get(name)}
    return f"postgresql:///{entry['NAME']}?{urlencode(server)}"


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_at_any_point_of_an_upload_leaves_nothing_that_a_sweep_does_not_mend(
    point: str, store: Store, tmp_path: Path
) -> None:
    runner = new_runner()
    told = [runner.caller.agent.principal_key, str(runner.job.pk), str(runner.claim_id), str(runner.caller.token_id)]
    killed = subprocess.run(
        [sys.executable, "-c", CRASH, point, *told],
        cwd=REPOSITORY,
        env={
            **os.environ, "DATABASE_URL": database_url(), "AGENTSTORE_HOME": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "agentstore.settings",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    objects, rows, orphans = POINTS[point]
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (len(store.keys), JobArtifact.objects.count()) == (objects, rows)
    assert runner.attach("a.bin", b"content").is_new is not bool(rows)
    for key in store.keys:
        store.age(key, OLD)
    assert sweep() == Swept(removed=0, orphans=orphans, missing=0, found=0, refused=False)
    assert store.keys == [JobArtifact.objects.get().storage_path]
    assert assert_every_row_verifies(store.backend) == 1
