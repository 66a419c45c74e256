"""Text that arrives with credentials, files that are sensitive, and limits of a kind."""

import hashlib
import io
import json
import zipfile
from typing import Any

import pytest

from artifacts.models import JobArtifact
from artifacts.services import masking
from artifacts.services.refusals import ArtifactMismatch, OverLimit
from artifacts.services.thumbnails import make_thumbnails
from jobs.models import AuditEvent, JobKind
from tests.artifacts.conftest import Runner, Store, on_both_storages, picture
from tests.artifacts.test_views import OPEN, VIEW, opened, person

pytestmark = pytest.mark.django_db

SECRET = "ghp_" + "a1B2" * 9
LOG = f"line one\nAuthorization: Bearer {SECRET}\npassword=hunter2hunter2\n".encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kept(store: Store, row: JobArtifact) -> bytes:
    """What lies in the storage."""
    with store.backend.open(row.storage_path) as file:
        content: bytes = file.read()
        return content


@on_both_storages
@pytest.mark.parametrize("name", ["run.log", "page.html", "no-ending"])
def test_credentials_in_a_text_are_masked_before_it_is_kept(runner: Runner, store: Store, name: str) -> None:
    answer = runner.put(name, LOG)
    row = JobArtifact.objects.get()
    content = kept(store, row)
    assert SECRET.encode() not in content
    assert b"hunter2" not in content
    assert content.startswith(b"line one\n")
    assert (row.sha256, row.size_bytes, row.masked) == (sha256(content), len(content), 2)
    assert (answer.json()["sha256"], answer.json()["stored_sha256"]) == (sha256(LOG), sha256(content))
    (event,) = AuditEvent.objects.all()
    assert (event.tag, event.actor) == ("unredacted", runner.caller.agent.principal_key)
    assert event.details == {"count": 2, "name": name}


@on_both_storages
def test_the_same_text_again_is_the_same_file_and_another_is_not(runner: Runner, store: Store) -> None:
    first = runner.attach("run.log", LOG)
    again = runner.attach("run.log", LOG)
    assert (again.is_new, again.artifact) == (False, first.artifact)
    with pytest.raises(ArtifactMismatch):
        runner.attach("run.log", kept(store, first.artifact))
    assert len(store.keys) == 1
    assert AuditEvent.objects.count() == 1


def test_masked_json_is_still_json(runner: Runner, store: Store) -> None:
    row = runner.attach("a.json", json.dumps({"user": "ada", "password": "hunter2hunter2"}).encode()).artifact
    assert json.loads(kept(store, row)) == {"user": "ada", "password": "[REDACTED:key]"}


@pytest.mark.parametrize("content", [b"nothing secret here\n", b"\xff\xfe" + LOG, b"\0" + LOG, b""])
def test_what_holds_no_secret_or_is_no_text_is_kept_byte_for_byte(runner: Runner, store: Store, content: bytes) -> None:
    row = runner.attach("a.log", content).artifact
    assert kept(store, row) == content
    assert (row.sha256, row.masked, row.received_sha256) == (sha256(content), 0, None)
    assert not AuditEvent.objects.exists()


def test_a_text_too_long_to_be_masked_is_sensitive(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masking, "LARGEST_MASKED", len(LOG) - 1)
    row = runner.attach("run.log", LOG).artifact
    assert row.sensitive
    assert kept(store, row) == LOG


def trace() -> bytes:
    """An archive as Playwright writes its traces."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("trace.trace", "{}")
        archive.writestr("resources/page@1.jpeg", b"x" * 1000)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "is_sensitive"),
    [
        ("evidence.zip", trace(), True),
        ("session.HAR", b"{}", True),
        ("trace.zip", b"anything", True),
        ("a.zip", b"PK\x03\x04 of something else", False),
        ("notes.txt", b"trace.trace", False),
    ],
)
def test_records_of_a_browsers_session_are_sensitive_by_what_they_are(
    runner: Runner, name: str, content: bytes, is_sensitive: bool
) -> None:
    assert runner.put(name, content).json()["sensitive"] is is_sensitive


def test_a_runner_can_call_any_file_sensitive(runner: Runner) -> None:
    assert runner.put("a.png", picture(), HTTP_AGENTSTORE_SENSITIVE="1").json()["sensitive"] is True
    assert runner.put("b.png", picture(), HTTP_AGENTSTORE_SENSITIVE="0").json()["sensitive"] is False
    refused = runner.put("c.png", picture(), HTTP_AGENTSTORE_SENSITIVE="yes")
    assert refused.json()["errors"][0]["pointer"] == "/headers/Agentstore-Sensitive"
    assert make_thumbnails().made == 1


def test_a_sensitive_file_takes_a_permission_of_its_own(runner: Runner) -> None:
    row = runner.attach("a.har", b"\0").artifact
    assert opened(person(OPEN, VIEW), row).status_code == 403
    assert not AuditEvent.objects.exists()
    assert opened(person(OPEN, VIEW, "open_sensitive_jobartifact"), row).status_code == 302
    assert opened(person("open_sensitive_jobartifact"), row).status_code == 403
    assert AuditEvent.objects.count() == 1


LIMITS: list[tuple[dict[str, int], list[bytes], int, str]] = [
    ({"max_file_bytes": 10}, [b"x" * 10, b"x" * 11], 10, "A file may have at most 10 bytes."),
    ({"max_files": 1}, [b"x", b"y"], 1, "A job may have at most 1 files."),
    ({"max_job_bytes": 5}, [b"x" * 3, b"x" * 3], 5, "The files of a job may have at most 5 bytes together."),
]


@pytest.mark.parametrize(("limits", "contents", "number", "sentence"), LIMITS)
def test_a_kinds_own_limits_are_said_with_their_number(
    runner: Runner, limits: dict[str, int], contents: list[bytes], number: int, sentence: str
) -> None:
    JobKind.objects.create(name="echo", **limits)
    *fitting, last = contents
    for place, content in enumerate(fitting):
        assert runner.put(f"{place}.bin", content).status_code == 201
    refused = runner.put("last.bin", last)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert (refused.json()["limit"], refused.json()["detail"]) == (number, sentence)


def test_a_kind_cannot_allow_more_than_the_installation(runner: Runner, settings: Any) -> None:
    settings.ARTIFACT_MAX_BYTES = 10
    JobKind.objects.create(name="echo", max_file_bytes=1000)
    with pytest.raises(OverLimit, match="at most 10 bytes"):
        runner.attach("a", b"x" * 11)


def test_the_page_of_a_job_says_what_is_special_about_a_file(runner: Runner) -> None:
    runner.attach("run.log", LOG)
    runner.attach("a.har", b"\0")
    page = person(OPEN, VIEW).get(f"/admin/jobs/agentjob/{runner.job.pk}/change/").content.decode()
    assert "2 secrets masked on arrival" in page
    assert "sensitive, kept for 7 days" in page
