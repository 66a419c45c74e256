"""Files: what an upload and an opening take of the server, and how much memory a large one needs."""

import base64
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from agentstore.config import MIB
from agentstore.supervisor import Parts
from bench.ground import HOME, Database, Used, Web
from bench.memory import Peak
from bench.over_http import enqueue, prepared
from bench.report import Report

PORT = 8480
ROUNDS = 5
OPENINGS = 50
GIB = 1024 * MIB
BLOCK = os.urandom(MIB)  # like a picture: no text that would be masked, nothing that could be compressed
LINE = b"2026-11-30T10:00:00Z INFO GET /api/products?q=lamp&page=2 200 12ms token_count=17\n"
S3 = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret"}


class Files:
    """A runner that holds one job of one web server after the other, and a person who looks at what it attached."""

    def __init__(self, web: Web, made: Mapping[str, Any]) -> None:
        self.web, self._made = web, made
        self._job = self._claim_id = ""

    def claim(self) -> None:
        """Take a job that has no files yet."""
        self._claim_id = str(uuid4())
        asked = {"claim_id": self._claim_id, "kinds": ["echo"], "runner": {"name": "bench", "version": "1.0.0"}}
        self._job = self.web.send("POST", "jobs/claim", asked, self._made["bearer"])["id"]

    def upload(self, blocks: Iterable[bytes], size: int, sha256: bytes) -> bytes:
        """Attach one file; the content of the answer."""
        headers = {
            "Authorization": f"Bearer {self._made['bearer']}", "Agentstore-Claim-Id": self._claim_id,
            "Content-Type": "application/octet-stream", "Content-Length": str(size),
            "Content-Digest": f"sha-256=:{base64.b64encode(sha256).decode()}:",
        }  # fmt: skip
        path = f"/api/v1/jobs/{self._job}/artifacts?{urlencode({'name': f'{uuid4()}.bin'})}"
        answer, content = self.web.exchange("PUT", path, blocks, headers)
        if answer.status != 201:
            raise SystemExit(f"A file of {size} bytes was answered with {answer.status}: {content[:500]!r}")
        return content

    def uploads(self, content: bytes, count: int) -> Used:
        """Attach the same bytes under so many names."""
        sha256 = hashlib.sha256(content).digest()
        meter = self.web.meter()
        for _ in range(count):
            self.upload([content], len(content), sha256)
        return Used(cpu=meter.microseconds() / count, seconds=0)

    def openings(self, artifact: str, count: int) -> Used:
        """Open the same file so many times."""
        headers = {"Cookie": f"sessionid={self._made['session']}"}
        meter = self.web.meter()
        for _ in range(count):
            answer, content = self.web.exchange("GET", f"/artifacts/{artifact}/open", None, headers)
            if answer.status != 302:
                raise SystemExit(f"Opening was answered with {answer.status}: {content[:500]!r}")
        return Used(cpu=meter.microseconds() / count, seconds=0)

    def peak_of_large(self) -> float:
        """Attach one GiB; the MiB of memory that it took."""
        digest = hashlib.sha256()
        for _ in range(GIB // MIB):
            digest.update(BLOCK)
        peak = Peak(self.web.pid)
        self.upload((BLOCK for _ in range(GIB // MIB)), GIB, digest.digest())
        return peak.mebibytes()


def measure(report: Report, database: Database) -> None:
    """Uploads against their floor, openings against a plain view, and one GiB to both storages."""
    made, environment = prepared(database)
    enqueue(database, 3 * ROUNDS + 10)
    environment |= {"AGENTSTORE_ARTIFACT_MAX_BYTES": str(GIB), "AGENTSTORE_ARTIFACT_MAX_JOB_BYTES": str(4 * GIB)}
    folder = HOME / "bare"
    folder.mkdir()
    parts = Parts()
    try:
        ours = Files(Web(parts, PORT, environment, "agentstore.wsgi:application"), made)
        _memory(report, ours, "folder")
        with_bare = environment | {"BENCH_FILES": str(folder)}
        bare = Files(Web(parts, PORT + 1, with_bare, "bench.bare_files:application"), made)
        _uploads(report, ours, bare)
        plain_settings = environment | {"DJANGO_SETTINGS_MODULE": "bench.plain_settings"}
        plain = Files(Web(parts, PORT + 2, plain_settings, "agentstore.wsgi:application"), made)
        _openings(report, database, ours, plain)
        in_bucket = environment | S3 | {"AGENTSTORE_S3_ENDPOINT": _bucket(parts, "bench-files"),
                                        "AGENTSTORE_S3_BUCKET": "bench-files"}  # fmt: skip
        _memory(report, Files(Web(parts, PORT + 3, in_bucket, "agentstore.wsgi:application"), made), "S3")
    finally:
        parts.stop()


def _memory(report: Report, files: Files, storage: str) -> None:
    """On a server that has seen one small file, so that its modules are loaded and nothing larger was held."""
    files.claim()
    files.uploads(BLOCK[:1024], 1)
    report.figure(f"memory of the server for 1 GiB, {storage} storage", files.peak_of_large(), "MiB", "<= 32")


def _uploads(report: Report, ours: Files, bare: Files) -> None:
    text = LINE * (64 * 1024 // len(LINE))
    for name, content, count, goal in (
        ("64 KiB", BLOCK[: 64 * 1024], 20, "<= 40"),
        ("64 KiB of text, which is masked", text, 5, ""),
        ("8 MiB", BLOCK * 8, 2, "<= 2.5"),
    ):
        rounds = []
        for _ in range(ROUNDS):
            ours.claim()
            ours.uploads(content, 1)
            rounds.append((ours.uploads(content, count), bare.uploads(content, count)))
        report.figure(f"upload of {name}", median(one.cpu for one, _ in rounds), "µs of CPU")
        mine, floor = ([pair[side] for pair in rounds] for side in (0, 1))
        report.cpu_ratio(f"upload of {name} / read, digested, written and synced by bare WSGI", mine, floor, goal)


def _openings(report: Report, database: Database, ours: Files, plain: Files) -> None:
    ((artifact,),) = database.run("SELECT id::text FROM agent_job_artifacts ORDER BY size_bytes LIMIT 1")
    sides = (ours, plain)
    for side in sides:
        side.openings(artifact, 20)
    rounds = [[side.openings(artifact, OPENINGS) for side in sides] for _ in range(ROUNDS)]
    mine, theirs = ([one[side] for one in rounds] for side in (0, 1))
    report.figure("opening of a file", median(used.cpu for used in mine), "µs of CPU")
    report.cpu_ratio("opening of a file / plain Django view with a permission and an insert", mine, theirs, "<= 1.5")


def _bucket(parts: Parts, name: str) -> str:
    """The address of an S3 server over a folder, with an empty bucket."""
    root = HOME / "s3"
    (root / name).mkdir(parents=True)
    command = (
        str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", f"127.0.0.1:{PORT + 4}",
        "--dir-cache-time", "2ms", "--auth-key", ",".join(S3.values()), str(root),
    )  # fmt: skip
    with (HOME / "s3.log").open("wb") as log:
        parts.start("rclone", command, environment={**os.environ, "HOME": str(root)}, log=log)
    parts.wait_for_answer("127.0.0.1", PORT + 4)
    return f"http://127.0.0.1:{PORT + 4}"
