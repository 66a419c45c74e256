"""A job under a live claim, its runner, and both storages: a folder, and a real S3 server over a folder."""

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from django.core.files.storage import storages
from django.test import Client
from django.utils import timezone
from PIL import Image

from artifacts.services.storage import PREFIX
from artifacts.services.uploads import Attached, attach
from jobs.models import AgentJob
from jobs.services.execution import Caller
from tests.factories import AgentJobFactory, TokenFactory

S3_KEY, S3_SECRET = "AKIDTEST", "secret-of-the-test-server"
STARTED = re.compile(r"Starting s3 server on \[(.*)/\]")
FILES = "artifacts.services.file_storage.PrivateFileStorage"
S3 = "artifacts.services.s3_storage.PrivateS3Storage"


@dataclass
class S3Server:
    """A running server; a bucket is a folder in `root`."""

    root: Path
    url: str


@contextmanager
def s3_serving(root: Path, *options: str) -> Iterator[S3Server]:
    """`rclone serve s3` over a folder; with a key pair among the options it checks signatures like S3 itself."""
    command = [
        str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", "127.0.0.1:0",
        "--dir-cache-time", "2ms", *options, str(root),  # at 0 it spins on a whole core
    ]  # fmt: skip
    # Its log goes to a file: a pipe that nobody reads would stop the server when it is full.
    log = root.with_name(f"{root.name}.log")
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stderr=errors, env={**os.environ, "HOME": str(root)}) as server,
    ):
        try:
            while not (started := STARTED.search(log.read_text())):
                if server.poll() is not None:
                    pytest.fail(f"rclone did not start: {log.read_text()}")
            yield S3Server(root=root, url=started[1])
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server that the tests share; it refuses what is not signed by its key pair."""
    with s3_serving(tmp_path_factory.mktemp("s3"), "--auth-key", f"{S3_KEY},{S3_SECRET}") as server:
        yield server


@dataclass
class Store:
    """The storage of a test, and the folder in which its objects lie as files."""

    backend: Any
    folder: Path
    is_s3: bool

    @property
    def keys(self) -> list[str]:
        """Every object, as the storage lists it."""
        return [found.key for found in self.backend.objects(PREFIX)]

    @property
    def files(self) -> list[Path]:
        """Every file on disk."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def age(self, key: str, age: timedelta) -> None:
        """Make an object look as if it were stored so long ago."""
        then = (timezone.now() - age).timestamp()
        os.utime(self.folder / key, (then, then))


on_both_storages = pytest.mark.parametrize("store", ["folder", "s3"], indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Store:
    """An empty storage: a folder, or what `on_both_storages` asks for."""
    options: dict[str, Any]
    kind = getattr(request, "param", "folder")
    if kind == "folder":
        folder, backend = tmp_path / "artifacts", FILES
        options = {"location": folder, "file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        bucket, backend = f"bucket-{uuid4().hex[:12]}", S3
        folder = server.root / bucket
        folder.mkdir()
        options = s3_options(server, bucket)
    settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": backend, "OPTIONS": options}}
    return Store(backend=storages["artifacts"], folder=folder, is_s3=kind == "s3")


def s3_options(server: S3Server, bucket: str) -> dict[str, Any]:
    """What an installation would set."""
    return {
        "bucket_name": bucket, "endpoint_url": server.url, "access_key": S3_KEY, "secret_key": S3_SECRET,
        "region_name": "us-east-1", "addressing_style": "path",
    }  # fmt: skip


@dataclass
class Runner:
    """A runner that holds one job."""

    caller: Caller
    bearer: str
    job: AgentJob
    claim_id: UUID

    def attach(self, name: str, content: bytes, **other: Any) -> Attached:
        """Attach a file through the service."""
        said = {
            "caller": self.caller, "job_id": self.job.pk, "claim_id": self.claim_id, "name": name,
            "length": len(content), "sha256": hashlib.sha256(content).hexdigest(), "stream": io.BytesIO(content),
        }  # fmt: skip
        return attach(**said | other)

    def put(self, name: str | None, content: bytes, *, job_id: object = None, **headers: str | None) -> Any:
        """Attach a file over HTTP; `headers` replace the right ones, None leaves one out."""
        said: dict[str, str | None] = {
            "HTTP_AUTHORIZATION": f"Bearer {self.bearer}",
            "HTTP_AGENTSTORE_CLAIM_ID": str(self.claim_id),
            "HTTP_CONTENT_DIGEST": content_digest(content),
            "CONTENT_TYPE": "image/png",
        } | headers
        query = "" if name is None else f"?name={quote(name, safe='')}"
        return Client().generic(
            "PUT", f"/api/v1/jobs/{job_id or self.job.pk}/artifacts{query}", content,
            **{header: value for header, value in said.items() if value is not None},  # type: ignore[arg-type]
        )  # fmt: skip

    def listed(self, job_id: object = None) -> Any:
        """Ask over HTTP what is there."""
        return Client().get(
            f"/api/v1/jobs/{job_id or self.job.pk}/artifacts", HTTP_AUTHORIZATION=f"Bearer {self.bearer}"
        )


def content_digest(content: bytes) -> str:
    """The header of RFC 9530."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def new_runner() -> Runner:
    """A runner with a token and a running job of its own."""
    token = TokenFactory()
    job = AgentJobFactory(agent=token.agent)
    claim_id = uuid4()
    AgentJob.objects.claim(claim_id, agent=token.agent.principal_key, kinds=["echo"], digest="d", row_id=job.pk)
    job.refresh_from_db()
    caller = Caller(agent=token.agent, token_id=token.pk)
    return Runner(caller=caller, bearer=token.bearer, job=job, claim_id=claim_id)


@pytest.fixture
def runner(db: None, store: Store) -> Runner:
    """A runner that holds a running job."""
    return new_runner()


@pytest.fixture
def other_runner(db: None, store: Store) -> Runner:
    """Another agent's runner."""
    return new_runner()


@pytest.fixture
def finish() -> Callable[[Runner], None]:
    """End a runner's job with its own result."""

    def finish(runner: Runner) -> None:
        AgentJob.objects.filter(pk=runner.job.pk).update(
            status="done", finished_at=timezone.now(), ended_by="runner", result_digest="d"
        )

    return finish


def picture(image_format: str = "PNG", size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    """A real image."""
    buffer = io.BytesIO()
    Image.new(mode, size, 90).save(buffer, image_format, **options)
    return buffer.getvalue()
