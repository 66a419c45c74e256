"""Large files straight to the bucket: the server of the bucket itself refuses what was not permitted."""

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from agentstore_runner import direct_uploads as sender
from agentstore_runner.bearer import Bearer
from agentstore_runner.client import Client as RunnerClient
from django.core.wsgi import get_wsgi_application
from django.test import Client
from django.utils import timezone

from artifacts.models import JobArtifact
from artifacts.services import direct_uploads
from artifacts.services.direct_uploads import Begun, Verified, begin, complete, verify
from artifacts.services.masking import LARGEST_MASKED
from artifacts.services.refusals import DigestMismatch
from artifacts.services.sweeping import sweep
from artifacts.services.uploads import Attached
from tests.artifacts.conftest import Runner, Store, on_both_storages
from tests.artifacts.test_masking import trace

pytestmark = pytest.mark.django_db

on_s3 = pytest.mark.parametrize("store", ["s3"], indirect=True)
BYTES = b"\xff\x00binary" * ((LARGEST_MASKED // 8) + 1)
DIGEST = hashlib.sha256(BYTES).hexdigest()


def begun(runner: Runner, content: bytes = BYTES, **other: Any) -> Begun:
    said = {
        "caller": runner.caller, "job_id": runner.job.pk, "claim_id": runner.claim_id, "name": "big.bin",
        "size": len(content), "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    found = begin(**said | other)
    assert isinstance(found, Begun)
    return found


def put(upload: Begun, content: bytes = BYTES, *, method: str = "PUT", url: str = "", **headers: str) -> int:
    """What the bucket's server says."""
    said = dict(upload.request.headers) | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.request(method, url or upload.request.url, content=content, headers=said).status_code


def completed(runner: Runner, upload: Begun) -> Attached:
    return complete(caller=runner.caller, job_id=runner.job.pk, claim_id=runner.claim_id, upload=upload.upload)


def post(runner: Runner, path: str, **body: Any) -> Any:
    return Client(headers={"Authorization": f"Bearer {runner.bearer}"}).post(
        f"/api/v1/jobs/{runner.job.pk}/artifacts/{path}",
        json.dumps({"claim_id": str(runner.claim_id), **body}),
        content_type="application/json",
    )


@on_s3
def test_a_large_file_goes_to_the_bucket_and_gets_its_row_when_it_is_there(runner: Runner, store: Store) -> None:
    asked = post(runner, "uploads", name="big.bin", size_bytes=len(BYTES), sha256=DIGEST)
    assert asked.status_code == 201
    permitted = asked.json()
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in permitted["url"]
    assert not JobArtifact.objects.exists()
    sent = httpx2.request(permitted["method"], permitted["url"], content=BYTES, headers=permitted["headers"])
    assert sent.status_code == 200
    done = post(runner, "uploads/complete", upload=permitted["upload"])
    again = post(runner, "uploads/complete", upload=permitted["upload"])
    assert (done.status_code, again.status_code) == (201, 200)
    assert done.json() == again.json()
    assert (done.json()["sha256"], done.json()["verified"]) == (DIGEST, False)
    row = JobArtifact.objects.get()
    assert (row.size_bytes, row.content_type, store.keys) == (
        len(BYTES),
        "application/octet-stream",
        [row.storage_path],
    )
    assert post(runner, "uploads", name="big.bin", size_bytes=len(BYTES), sha256=DIGEST).status_code == 200


REFUSED: dict[str, Callable[[Begun], int]] = {
    "unsigned": lambda upload: put(upload, url=upload.request.url.partition("?")[0]),
    "tampered": lambda upload: put(upload, url=upload.request.url[:-4] + "0000"),
    "another key": lambda upload: put(upload, url=upload.request.url.replace("/jobs/", "/jobs/x", 1)),
    "another method": lambda upload: put(upload, b"", method="DELETE", Content_Length="0"),
    "read back": lambda upload: put(upload, b"", method="GET", Content_Length="0"),
    "another type": lambda upload: put(upload, Content_Type="text/html"),
    "another size": lambda upload: put(upload, BYTES + b"x", Content_Length=str(len(BYTES) + 1)),
    "another digest": lambda upload: put(upload, x_amz_checksum_sha256="x" * 43 + "="),
    "overwriting": lambda upload: put(upload, If_None_Match="other"),
}


@on_s3
@pytest.mark.parametrize("what", REFUSED)
def test_the_bucket_itself_refuses_what_was_not_permitted(runner: Runner, store: Store, what: str) -> None:
    assert REFUSED[what](begun(runner)) in (400, 403, 404)
    assert store.files == []


@on_s3
def test_an_address_that_has_lapsed_is_refused(runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_uploads, "SECONDS", -1)
    assert put(begun(runner)) in (400, 403)
    assert store.files == []


@on_s3
def test_nothing_is_completed_before_the_bytes_are_there(runner: Runner, store: Store) -> None:
    answer = post(runner, "uploads/complete", upload=begun(runner).upload)
    assert (answer.status_code, answer.json()["code"]) == (400, "incomplete")
    assert not JobArtifact.objects.exists()


@on_s3
def test_other_bytes_of_the_same_size_are_found_by_maintenance_and_never_called_verified(
    runner: Runner, store: Store
) -> None:
    upload = begun(runner)
    assert put(upload, b"y" * len(BYTES)) == 200  # this server signs the checksum and does not look at the bytes
    row = completed(runner, upload).artifact
    assert verify() == Verified(verified=0, refused=0)  # its address has not lapsed yet
    JobArtifact.objects.update(created_at=timezone.now() - timedelta(seconds=direct_uploads.SECONDS + 1))
    assert verify() == Verified(verified=0, refused=1)
    row.refresh_from_db()
    assert row.missing_at
    assert row.verified_at is None
    assert store.keys == []
    assert sweep().found == 0


@on_s3
def test_maintenance_reads_a_file_once_and_calls_it_verified(runner: Runner, store: Store) -> None:
    upload = begun(runner)
    put(upload)
    completed(runner, upload)
    JobArtifact.objects.update(created_at=timezone.now() - timedelta(hours=1))
    assert verify() == Verified(verified=1, refused=0)
    assert verify() == Verified(verified=0, refused=0)
    assert JobArtifact.objects.get().verified_at


def kept_checksum(store: Store, monkeypatch: pytest.MonkeyPatch, checksum: str) -> None:
    """A server that keeps checksums, as S3 itself does; this one answers for the head of the object only."""
    client = store.backend.connection.meta.client
    head = client.head_object

    def with_checksum(**named: Any) -> Any:
        return head(**named) | {"ChecksumSHA256": checksum, "ChecksumType": "FULL_OBJECT"}

    monkeypatch.setattr(client, "head_object", with_checksum)


@on_s3
def test_a_checksum_that_the_storage_keeps_verifies_at_once(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begun(runner)
    put(upload)
    kept_checksum(store, monkeypatch, upload.request.headers["x-amz-checksum-sha256"])
    assert completed(runner, upload).artifact.verified_at


@on_s3
def test_a_checksum_that_differs_is_refused_and_leaves_nothing(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begun(runner)
    put(upload)
    kept_checksum(store, monkeypatch, "A" * 43 + "=")
    with pytest.raises(DigestMismatch):
        completed(runner, upload)
    assert store.keys == []


@on_s3
def test_an_upload_that_nobody_completes_is_swept_after_a_day(runner: Runner, store: Store) -> None:
    put(begun(runner))
    (key,) = store.keys
    assert sweep().orphans == 0
    store.age(key, timedelta(days=2))
    assert sweep().orphans == 1
    assert store.keys == []


@on_s3
@pytest.mark.parametrize(
    ("name", "content", "is_sensitive"),
    [
        ("dump.txt", b"text\n" * (LARGEST_MASKED // 5 + 1), True),
        ("evidence.zip", b"PK\x03\x04" + b"\0" * LARGEST_MASKED + trace()[-200:], True),
        ("session.har", BYTES, True),
        ("disk.img", BYTES, False),
    ],
)
def test_what_nobody_masked_is_sensitive(
    runner: Runner, store: Store, name: str, content: bytes, is_sensitive: bool
) -> None:
    upload = begun(runner, content, name=name)
    assert put(upload, content) == 200
    assert completed(runner, upload).artifact.sensitive is is_sensitive


@on_s3
def test_a_lost_lease_ends_the_permission_too(runner: Runner, store: Store, finish: Callable[[Runner], None]) -> None:
    upload = begun(runner)
    put(upload)
    finish(runner)
    answer = post(runner, "uploads/complete", upload=upload.upload)
    assert (answer.status_code, answer.json()["code"]) == (410, "ended")
    assert post(runner, "uploads", name="b", size_bytes=len(BYTES), sha256=DIGEST).status_code == 410
    assert not JobArtifact.objects.exists()


@on_s3
def test_an_upload_of_another_job_is_worth_nothing(runner: Runner, other_runner: Runner, store: Store) -> None:
    upload = begun(other_runner)
    put(upload)
    answer = post(runner, "uploads/complete", upload=upload.upload)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/upload")
    assert post(runner, "uploads/complete", upload=upload.upload + "x").status_code == 400


@on_s3
@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"size_bytes": LARGEST_MASKED}, 400, "/size_bytes"),
        ({"size_bytes": -1}, 400, "/size_bytes"),
        ({"size_bytes": "9"}, 400, "/size_bytes"),
        ({"size_bytes": 2**31}, 413, None),
        ({"size_bytes": 2**64}, 400, "/size_bytes"),
        ({"name": "a/b"}, 400, "/name"),
        ({"name": "x" * 256}, 400, "/name"),
        ({"sha256": "A" * 64}, 400, "/sha256"),
        ({"sha256": None}, 400, "/sha256"),
        ({"sensitive": "yes"}, 400, "/sensitive"),
    ],
)
def test_what_cannot_be_permitted_says_why(
    runner: Runner, store: Store, body: dict[str, Any], status: int, pointer: str | None
) -> None:
    answer = post(runner, "uploads", **{"name": "big.bin", "size_bytes": len(BYTES), "sha256": DIGEST} | body)
    assert answer.status_code == status
    if pointer:
        assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_folder_takes_no_direct_uploads_and_says_so(runner: Runner, store: Store) -> None:
    answer = post(runner, "uploads", name="big.bin", size_bytes=len(BYTES), sha256=DIGEST)
    assert (answer.status_code, answer.json()["code"]) == (409, "direct_unavailable")


@pytest.mark.django_db(transaction=True)
@on_both_storages
def test_the_runner_sends_large_files_the_way_that_its_server_offers(
    runner: Runner, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "LEAST", LARGEST_MASKED + 1)
    file = tmp_path / "big.bin"
    file.write_bytes(BYTES)
    application = get_wsgi_application()
    client = RunnerClient("http://testserver", Bearer(runner.bearer), transport=httpx2.WSGITransport(app=application))
    answer = sender.send(client, str(runner.job.pk), str(runner.claim_id), file, name="big.bin")
    if not store.is_s3:
        assert answer is None
        return
    assert answer is not None
    assert answer.status == 201
    again = sender.send(client, str(runner.job.pk), str(runner.claim_id), file, name="big.bin")
    assert again is not None
    assert again.status == 200
    assert JobArtifact.objects.get().sha256 == DIGEST


@on_s3
def test_the_runners_token_never_reaches_the_bucket(runner: Runner, store: Store) -> None:
    upload = begun(runner)
    assert "authorization" not in {name.lower() for name in upload.request.headers}
    assert runner.bearer not in repr(upload)
    assert urlsplit(upload.request.url).query not in repr(upload)
