"""A job's evidence as one archive: everything in it verifies, and what is not in it is named."""

import hashlib
import io
import json
import zipfile
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from artifacts.models import JobArtifact
from artifacts.services import exporting
from artifacts.services.refusals import StorageUnavailable
from jobs.models import AgentJob, AuditEvent
from tests.artifacts.conftest import Runner, Store, on_both_storages, picture
from tests.artifacts.test_masking import LOG
from tests.artifacts.test_views import OPEN, VIEW, person

pytestmark = pytest.mark.django_db

ALL = "open_sensitive_jobartifact"


def fetched(client: Client, job_id: object) -> Any:
    return client.get(f"/artifacts/jobs/{job_id}/evidence.zip")


def archive(client: Client, job_id: object) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(fetched(client, job_id).getvalue()))


def document(found: zipfile.ZipFile, name: str) -> Any:
    return json.loads(found.read(name))


@on_both_storages
def test_everything_is_in_it_and_every_file_has_its_checksum(runner: Runner, store: Store) -> None:
    runner.attach("shot.png", picture())
    runner.attach("run.log", LOG)
    AgentJob.objects.filter(pk=runner.job.pk).update(results={"checks": [{"id": "a"}]})
    found = archive(person(OPEN, VIEW), runner.job.pk)
    assert found.testzip() is None
    listed = document(found, "artifacts.json")
    assert [entry["state"] for entry in listed] == ["included", "included"]
    sums = found.read("SHA256SUMS").decode().splitlines()
    assert len(sums) == 2
    for line in sums:
        digest, path = line.split("  ")
        assert hashlib.sha256(found.read(path)).hexdigest() == digest
    assert {entry["sha256"] for entry in listed} == {line[:64] for line in sums}
    assert document(found, "results/attempt-1.json") == {"checks": [{"id": "a"}]}
    assert document(found, "job.json")[0]["status"] == "running"
    happened = [line.get("status") or line["what"] for line in document(found, "timeline.json")]
    assert happened[:2] == ["queued", "running"]
    assert happened[-2:] == ["unredacted", "evidence_exported"]


def test_all_attempts_of_the_chain_are_in_it(runner: Runner, store: Store) -> None:
    runner.attach("a.bin", b"\0first")
    AgentJob.objects.filter(pk=runner.job.pk).update(status="failed", error="e", failure_class="internal")
    runner.job.refresh_from_db()
    again = AgentJob.objects.retry(runner.job)
    assert again is not None
    JobArtifact.objects.create(job=again, name="a.bin", storage_path="jobs/nowhere")
    found = archive(person(OPEN, VIEW), again.pk)
    assert [attempt["attempt"] for attempt in document(found, "job.json")] == [1, 2]
    states = {entry["attempt"]: entry["state"] for entry in document(found, "artifacts.json")}
    assert states == {1: "included", 2: "missing"}
    assert found.read("files/attempt-1/001-a.bin") == b"\0first"


def test_sensitive_files_are_named_and_withheld_from_those_who_may_not_open_them(runner: Runner) -> None:
    runner.attach("session.har", b"\0private")
    withheld = archive(person(OPEN, VIEW), runner.job.pk)
    assert document(withheld, "artifacts.json")[0]["state"] == "withheld"
    assert not any(b"private" in withheld.read(name) for name in withheld.namelist())
    assert document(archive(person(OPEN, VIEW, ALL), runner.job.pk), "artifacts.json")[0]["state"] == "included"
    told = AuditEvent.objects.filter(tag="evidence_exported").order_by("id")
    assert [event.details for event in told] == [
        {"files": 1, "sensitive": False},
        {"files": 1, "sensitive": True},
    ]


def test_bytes_that_changed_behind_our_back_are_called_different(runner: Runner, store: Store) -> None:
    row = runner.attach("a.bin", b"\0right").artifact
    (store.folder / row.storage_path).write_bytes(b"\0wrong")
    assert document(archive(person(OPEN, VIEW), runner.job.pk), "artifacts.json")[0]["state"] == "differs"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/x", "..\\x", "a\r\nb", "x" * 300, "\u202egnp.exe", "con", ""]
)
def test_no_name_leads_out_of_the_folder_that_the_archive_is_unpacked_in(runner: Runner, name: str) -> None:
    row = runner.attach("a.bin", b"\0").artifact
    JobArtifact.objects.filter(pk=row.pk).update(name=name)
    found = archive(person(OPEN, VIEW), runner.job.pk)
    (path,) = [path for path in found.namelist() if path.startswith("files/")]
    folder, attempt, file = path.split("/")
    assert (folder, attempt, file[:4]) == ("files", "attempt-1", "001-")
    assert "\\" not in file
    assert file.isprintable()


@pytest.mark.parametrize(
    ("permissions", "status"), [((), 403), ((VIEW,), 403), ((OPEN,), 403), ((OPEN, VIEW), 200), ((VIEW, ALL), 403)]
)
def test_only_those_who_may_open_evidence_take_it_along(
    runner: Runner, permissions: tuple[str, ...], status: int
) -> None:
    assert fetched(person(*permissions), runner.job.pk).status_code == status
    assert AuditEvent.objects.count() == (status == 200)


def test_strangers_are_sent_to_the_login_and_an_unknown_job_is_not_found(runner: Runner) -> None:
    assert fetched(Client(), runner.job.pk).status_code == 302
    assert fetched(person(OPEN, VIEW), uuid4()).status_code == 404
    assert person(OPEN, VIEW).head(f"/artifacts/jobs/{runner.job.pk}/evidence.zip").status_code == 405


def test_an_archive_is_kept_by_nobody_and_has_a_name_of_ours(runner: Runner) -> None:
    answer = fetched(person(OPEN, VIEW), runner.job.pk)
    assert answer["Content-Disposition"] == f'attachment; filename="evidence-{runner.job.pk}.zip"'
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_a_large_file_passes_block_by_block(runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "BLOCK", 1000)
    runner.attach("a.bin", b"\0" * 10_000)
    export = exporting.export(job_id=runner.job.pk, by="ada", sensitive=False)
    assert max(len(block) for block in export.blocks) < 6_000


def test_a_storage_that_fails_on_the_way_leaves_an_archive_without_its_end(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "BLOCK", 1000)
    runner.attach("a.bin", b"\0" * 10_000)
    part = type(store.backend).part

    def failing(self: Any, key: str, *, start: int, length: int) -> bytes:
        if start > 5000:
            raise OSError("away")
        found: bytes = part(self, key, start=start, length=length)
        return found

    monkeypatch.setattr(type(store.backend), "part", failing)
    export, sent = exporting.export(job_id=runner.job.pk, by="ada", sensitive=False), io.BytesIO()
    with pytest.raises(StorageUnavailable):
        sent.writelines(export.blocks)
    assert sent.tell() > 5000
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(sent)
