"""The runner's door for files: every header it needs, every answer it gives."""

import hashlib
import io
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from artifacts.models import JobArtifact
from tests.artifacts.conftest import Runner, Store, content_digest, picture

pytestmark = pytest.mark.django_db

PROBLEM = "application/problem+json"


def test_a_new_file_is_201_and_the_same_again_200_with_the_same_answer(runner: Runner) -> None:
    first, again = runner.put("a.png", picture()), runner.put("a.png", picture())
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == {
        "id": str(JobArtifact.objects.get().pk), "name": "a.png", "content_type": "image/png",
        "size_bytes": len(picture()), "sha256": hashlib.sha256(picture()).hexdigest(),
        "stored_sha256": hashlib.sha256(picture()).hexdigest(), "masked": 0, "sensitive": False, "verified": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ({"CONTENT_LENGTH": ""}, 411, "length_required"),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, 411, "length_required"),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}, 411, "length_required"),
        ({"CONTENT_LENGTH": "-1"}, 400, "invalid_length"),
        ({"CONTENT_LENGTH": "١٢"}, 400, "invalid_length"),
        ({"CONTENT_LENGTH": "9" * 5000}, 413, "too_large"),
        ({"CONTENT_LENGTH": str(2**31)}, 413, "too_large"),
        ({"CONTENT_LENGTH": "2"}, 422, "digest_mismatch"),
        ({"CONTENT_TYPE": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"CONTENT_TYPE": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"HTTP_CONTENT_ENCODING": "gzip"}, 415, "unsupported_media_type"),
        ({"HTTP_CONTENT_DIGEST": content_digest(b"other")}, 422, "digest_mismatch"),
        ({"HTTP_CONTENT_DIGEST": None}, 400, "invalid"),
        ({"HTTP_CONTENT_DIGEST": "sha-256=:AAAA:"}, 400, "invalid"),
        ({"HTTP_CONTENT_DIGEST": "sha-512=:AAAA:"}, 400, "invalid"),
        ({"HTTP_CONTENT_DIGEST": "sha-256=:" + "=" * 44 + ":"}, 400, "invalid"),
        ({"HTTP_CONTENT_DIGEST": "x" * 10_000}, 400, "invalid"),
        ({"HTTP_AGENTSTORE_CLAIM_ID": None}, 400, "invalid"),
        ({"HTTP_AGENTSTORE_CLAIM_ID": "nobody"}, 400, "invalid"),
        ({"HTTP_AGENTSTORE_CLAIM_ID": str(uuid4())}, 409, "lease_lost"),
        ({"HTTP_AUTHORIZATION": None}, 401, "unauthenticated"),
        ({"HTTP_AUTHORIZATION": "Bearer ags_r_wrong"}, 401, "unauthenticated"),
    ],
    ids=range(22),
)  # fmt: skip
def test_each_wrong_header_has_its_own_answer_and_stores_nothing(
    runner: Runner, store: Store, said: dict[str, str | None], status: int, code: str
) -> None:
    response = runner.put("a.bin", b"0123456789", **said)
    assert (response.status_code, response["Content-Type"]) == (status, PROBLEM)
    assert response.json()["code"] == code
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_a_body_shorter_than_its_length_stores_nothing(runner: Runner, store: Store) -> None:
    cut: dict[str, Any] = {"CONTENT_LENGTH": "500", "wsgi.input": io.BytesIO(b"0123456789")}
    response = runner.put("a.bin", b"0123456789", **cut)
    assert (response.status_code, response.json()["code"]) == (400, "incomplete")
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_every_fault_of_a_request_is_named_at_once(runner: Runner) -> None:
    response = runner.put(None, b"x", HTTP_AGENTSTORE_CLAIM_ID="?", HTTP_CONTENT_DIGEST="?")
    assert [error["pointer"] for error in response.json()["errors"]] == [
        "/name", "/headers/Agentstore-Claim-Id", "/headers/Content-Digest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/html", "image/svg+xml", "image/png\r\nX: 1", "x" * 5000, "a/b; c=\x00"],
    ids=range(7),
)
def test_the_content_type_that_a_runner_says_changes_nothing(runner: Runner, content_type: str | None) -> None:
    response = runner.put("a.png", picture(), CONTENT_TYPE=content_type)
    assert (response.status_code, response.json()["content_type"]) == (201, "image/png")


def test_a_digest_may_stand_among_those_of_other_algorithms(runner: Runner) -> None:
    both = f"sha-512=:AAAA:, {content_digest(b'x')}"
    assert runner.put("a", b"x", HTTP_CONTENT_DIGEST=both).status_code == 201


@pytest.mark.parametrize("name", ["%00", "%0d%0aX:1", "..%2fx", "%ed%a0%80%00", "a&name=b"])
def test_a_name_that_no_client_library_would_write_is_400_all_the_same(runner: Runner, name: str) -> None:
    response = Client().generic(
        "PUT", f"/api/v1/jobs/{runner.job.pk}/artifacts?name={name}", b"x",
        HTTP_AUTHORIZATION=f"Bearer {runner.bearer}", HTTP_AGENTSTORE_CLAIM_ID=str(runner.claim_id),
        HTTP_CONTENT_DIGEST=content_digest(b"x"),
    )  # fmt: skip
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/name")


def test_other_bytes_under_a_used_name_are_409_with_what_is_stored(runner: Runner) -> None:
    runner.put("a", b"one")
    response = runner.put("a", b"two")
    assert (response.status_code, response.json()["code"]) == (409, "artifact_mismatch")
    assert response.json()["stored"]["sha256"] == hashlib.sha256(b"one").hexdigest()


def test_after_the_end_of_the_job_the_answer_is_410(runner: Runner, finish: Callable[[Runner], None]) -> None:
    finish(runner)
    response = runner.put("a", b"x")
    assert (response.status_code, response.json()["code"]) == (410, "ended")


def test_another_agents_job_is_404_for_every_method(runner: Runner, other_runner: Runner) -> None:
    other_runner.put("secret.png", picture())
    for response in (
        runner.put("a", b"x", job_id=other_runner.job.pk),
        runner.put("a", b"x", job_id=other_runner.job.pk, HTTP_AGENTSTORE_CLAIM_ID=str(other_runner.claim_id)),
        runner.put("a", b"x", job_id=uuid4()),
        runner.listed(other_runner.job.pk),
        runner.listed(uuid4()),
    ):
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_a_runner_reads_what_is_there_and_can_delete_nothing(runner: Runner, store: Store) -> None:
    stored = runner.put("a.png", picture()).json()
    assert runner.listed().json() == {"artifacts": [stored]}
    for method in ("DELETE", "PATCH", "POST"):
        path = f"/api/v1/jobs/{runner.job.pk}/artifacts?name=a.png"
        response = Client().generic(method, path, HTTP_AUTHORIZATION=f"Bearer {runner.bearer}")
        assert (response.status_code, response["Content-Type"]) == (405, PROBLEM)
    assert len(store.keys) == 1


def test_a_limit_is_413_with_its_number(runner: Runner, settings: Any) -> None:
    settings.ARTIFACT_MAX_BYTES = 3
    response = runner.put("a", b"four")
    assert (response.status_code, response.json()["code"], response.json()["limit"]) == (413, "too_large", 3)


def test_a_large_body_is_never_held_in_memory_by_django(runner: Runner, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert runner.put("a", b"x" * 100_000).status_code == 201


def test_a_client_that_goes_away_is_no_fault_of_the_server(runner: Runner) -> None:
    class Gone(io.BytesIO):
        def read(self, *size: Any) -> bytes:
            raise OSError("client went away")

    response = runner.put("a", b"x" * 10, **{"wsgi.input": Gone()})  # type: ignore[arg-type]
    assert (response.status_code, response.json()["code"]) == (400, "incomplete")
