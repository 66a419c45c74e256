"""Files on their way in, on both storages: bytes, row, and who may."""

import hashlib
import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.storage import storages
from django.db import OperationalError, connection
from django.utils import timezone

from artifacts.models import JobArtifact
from artifacts.services import uploads
from artifacts.services.refusals import (
    ArtifactMismatch,
    DigestMismatch,
    Incomplete,
    OverLimit,
    StorageUnavailable,
)
from artifacts.services.uploads import artifacts_of
from jobs.engine.errors import Ended, LeaseLost, UnknownRow
from jobs.models import AgentJob
from jobs.services import governance, maintenance
from tests.artifacts.conftest import Runner, Store, on_both_storages, picture

pytestmark = pytest.mark.django_db


@on_both_storages
def test_a_file_is_stored_byte_for_byte_under_a_key_that_owes_nothing_to_its_name(runner: Runner, store: Store) -> None:
    content = picture()
    attached = runner.attach("файл …/screenshot".replace("/", " ") + ".png", content)
    row = JobArtifact.objects.get()
    assert attached.is_new
    assert (row.size_bytes, row.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert row.content_type == "image/png"
    assert store.keys == [row.storage_path]
    assert row.storage_path.startswith(f"jobs/{runner.job.pk}/")
    assert "screenshot" not in row.storage_path
    with store.backend.open(row.storage_path) as file:
        assert file.read() == content


@on_both_storages
def test_an_empty_file_is_a_file(runner: Runner, store: Store) -> None:
    assert runner.attach("empty.log", b"").artifact.size_bytes == 0
    assert len(store.keys) == 1


@on_both_storages
def test_a_file_larger_than_memory_blocks_arrives_whole(runner: Runner, store: Store) -> None:
    content = bytes(range(256)) * 4096 * 5 + b"end"
    key = runner.attach("big.bin", content).artifact.storage_path
    with store.backend.open(key) as file:
        assert hashlib.sha256(file.read()).hexdigest() == hashlib.sha256(content).hexdigest()


@on_both_storages
def test_the_same_bytes_again_find_their_row_and_leave_no_second_object(runner: Runner, store: Store) -> None:
    first = runner.attach("a.png", picture())
    again = runner.attach("a.png", picture())
    assert not again.is_new
    assert again.artifact == first.artifact
    assert len(store.keys) == 1


def test_other_bytes_under_a_used_name_are_refused_and_change_nothing(runner: Runner, store: Store) -> None:
    first = runner.attach("a.png", picture())
    with pytest.raises(ArtifactMismatch) as refusal:
        runner.attach("a.png", b"other")
    assert refusal.value.artifact == first.artifact
    assert store.keys == [first.artifact.storage_path]


def test_one_name_may_be_used_in_two_jobs_with_different_bytes(
    runner: Runner, other_runner: Runner, store: Store
) -> None:
    runner.attach("a.png", b"one")
    other_runner.attach("a.png", b"two")
    assert len(store.keys) == 2


@on_both_storages
def test_lost_bytes_come_back_with_the_same_file_under_the_id_that_reports_refer_to(
    runner: Runner, store: Store
) -> None:
    lost = runner.attach("a.png", picture()).artifact
    store.backend.delete(lost.storage_path)
    JobArtifact.objects.update(missing_at=timezone.now(), thumbnail_path="")
    healed = runner.attach("a.png", picture())
    row = JobArtifact.objects.get()
    assert healed.is_new
    assert (row.pk, row.missing_at, row.thumbnail_path) == (lost.pk, None, None)
    assert store.keys == [row.storage_path]


@pytest.mark.parametrize("name", ["", " ", "\t", ".", "..", "a/b", "/etc/x", "..\\x", "a\r\nX: 1", "nul\0", "x" * 256,
                                  "line\u2028separator", "esc\x1b[31m", "del\x7f", "c1\x85"])  # fmt: skip
def test_a_name_that_could_be_a_path_or_break_a_header_is_refused_before_any_byte_is_read(
    runner: Runner, store: Store, name: str
) -> None:
    response = runner.put(name, picture())
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/name"
    assert store.files == []


@pytest.mark.parametrize("name", ["файл.png", 'a"b.png', "x\u202egnp.exe", "👩\u200d🚀.png", "%2e%2e%2fx", "C:x", "con",
                                  "x" * 255, "a b  c", "-rf", "~", "$(id)", "<script>.png"])  # fmt: skip
def test_any_other_name_is_text_and_stays_as_it_is(runner: Runner, store: Store, name: str) -> None:
    response = runner.put(name, b"bytes")
    assert response.status_code == 201
    assert response.json()["name"] == name
    assert all(path.is_relative_to(store.folder / "jobs" / str(runner.job.pk)) for path in store.files)
    assert len(store.files) == 1


def test_a_body_that_ends_early_leaves_nothing(runner: Runner, store: Store) -> None:
    content = b"x" * 1000
    with pytest.raises(Incomplete):
        runner.attach("a.bin", content, stream=io.BytesIO(content[:400]))
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_a_connection_that_breaks_in_mid_body_leaves_nothing(runner: Runner, store: Store) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError

    with pytest.raises(Incomplete):
        runner.attach("a.bin", b"x" * 1000, stream=Broken())
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_bytes_that_do_not_have_the_announced_digest_leave_nothing(runner: Runner, store: Store) -> None:
    with pytest.raises(DigestMismatch):
        runner.attach("a.bin", b"x", sha256="0" * 64)
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_no_more_than_the_announced_length_is_ever_read(runner: Runner) -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1, /) -> bytes:
            assert size > 0
            self.given += size
            return b"x" * size

    endless = Endless()
    runner.attach("a.bin", b"x" * 3_000_000, stream=endless)
    assert endless.given == 3_000_000


def test_a_file_over_the_limit_is_refused_unread_with_the_number(runner: Runner, settings: Any) -> None:
    settings.ARTIFACT_MAX_BYTES = 1000
    unread = io.BytesIO(b"x" * 1001)
    with pytest.raises(OverLimit, match="at most 1,000 bytes") as refusal:
        runner.attach("a.bin", b"x" * 1001, stream=unread)
    assert (refusal.value.limit, unread.tell()) == (1000, 0)


def test_a_size_that_the_contract_cannot_hold_is_refused_whatever_the_limit(runner: Runner, settings: Any) -> None:
    settings.ARTIFACT_MAX_BYTES = settings.ARTIFACT_MAX_JOB_BYTES = 2**40
    with pytest.raises(OverLimit, match="32 bits") as refusal:
        runner.attach("a.bin", b"", length=2**31)
    assert refusal.value.limit == 2**31 - 1


def test_a_job_holds_so_many_files_and_a_repetition_of_the_last_is_still_answered(
    runner: Runner, settings: Any, store: Store
) -> None:
    settings.ARTIFACT_MAX_FILES = 2
    for name in ("a", "b"):
        runner.attach(name, b"x")
    assert not runner.attach("b", b"x").is_new
    with pytest.raises(OverLimit, match="at most 2 files") as refusal:
        runner.attach("c", b"x")
    assert refusal.value.limit == 2
    assert len(store.keys) == 2


def test_a_job_holds_so_many_bytes(runner: Runner, settings: Any, store: Store) -> None:
    settings.ARTIFACT_MAX_JOB_BYTES = 10
    runner.attach("a", b"12345678")
    with pytest.raises(OverLimit, match="10 bytes together"):
        runner.attach("b", b"123")
    runner.attach("c", b"12")
    assert len(store.keys) == 2


def test_another_agents_job_does_not_exist_for_an_upload(runner: Runner, other_runner: Runner, store: Store) -> None:
    with pytest.raises(UnknownRow):
        runner.attach("a", b"x", job_id=other_runner.job.pk, claim_id=other_runner.claim_id)
    assert store.files == []


def test_another_claim_of_the_same_agent_cannot_attach(runner: Runner) -> None:
    with pytest.raises(LeaseLost):
        runner.attach("a", b"x", claim_id=uuid4())


def test_a_job_that_waits_has_no_holder(runner: Runner) -> None:
    job = AgentJob.objects.create(agent=runner.caller.agent, kind="echo")
    with pytest.raises(LeaseLost):
        runner.attach("a", b"x", job_id=job.pk)


def test_after_its_result_a_job_takes_no_more_files(runner: Runner, finish: Callable[[Runner], None]) -> None:
    finish(runner)
    with pytest.raises(Ended):
        runner.attach("a", b"x")


def test_after_the_reaper_a_job_takes_no_more_files(runner: Runner) -> None:
    AgentJob.objects.update(heartbeat_at=timezone.now() - timedelta(days=1))
    maintenance.reap()
    with pytest.raises(LeaseLost):
        runner.attach("a", b"x")


def test_a_cancel_request_still_lets_evidence_in(runner: Runner) -> None:
    governance.cancel(rows=AgentJob.objects.all(), row_id=runner.job.pk, by="ada", reason="enough")
    assert runner.attach("a", b"x").is_new


class Lapsing(io.BytesIO):
    """A body during which the claim ends."""

    def __init__(self, content: bytes, end: Callable[[], None]) -> None:
        super().__init__(content)
        self.end = end

    def read(self, size: int | None = -1, /) -> bytes:
        self.end()
        return super().read(size)


@on_both_storages
def test_a_claim_that_ends_while_the_body_arrives_gets_no_row_and_leaves_no_object(
    runner: Runner, store: Store, finish: Callable[[Runner], None]
) -> None:
    with pytest.raises(Ended):
        runner.attach("a", b"x" * 10, stream=Lapsing(b"x" * 10, lambda: finish(runner)))
    assert (store.files, JobArtifact.objects.count()) == ([], 0)


def test_files_of_a_job_are_listed_for_its_agent_only(runner: Runner, other_runner: Runner) -> None:
    runner.attach("b", b"2")
    runner.attach("a", b"1")
    assert [row.name for row in artifacts_of(caller=runner.caller, job_id=runner.job.pk)] == ["a", "b"]
    with pytest.raises(UnknownRow):
        artifacts_of(caller=other_runner.caller, job_id=runner.job.pk)


# -- the storage or the database fails at each step


@on_both_storages
@pytest.mark.parametrize("step", ["before", "in the middle", "after"])
def test_a_storage_that_fails_at_any_step_leaves_no_row_and_the_repetition_succeeds(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    trouble, save = OSError("http://bucket/?X-Amz-Signature=deadbeef"), type(store.backend).save

    def failing(self: Any, name: str, content: Any, max_length: int | None = None) -> str:
        if step == "in the middle":
            content.read(4)
        if step == "after":  # stored, but the answer was lost
            save(self, name, content, max_length)
        raise trouble

    with monkeypatch.context() as patch:
        patch.setattr(type(store.backend), "save", failing)
        with pytest.raises(StorageUnavailable) as refusal:
            runner.attach("a", b"12345678")
        response = runner.put("a", b"12345678")
    assert JobArtifact.objects.count() == 0
    assert "Signature" not in str(refusal.value)
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert response["Retry-After"].isdigit()
    assert runner.attach("a", b"12345678").is_new


def test_a_database_that_fails_after_the_bytes_keeps_them_for_the_sweep_since_the_commit_may_have_happened(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_row = uploads.write_row

    def lost_reply(*args: Any, **values: Any) -> JobArtifact:
        write_row(*args, **values)
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "write_row", lost_reply)
        with pytest.raises(OperationalError):
            runner.attach("a", b"x")
    row = JobArtifact.objects.get()
    assert store.keys == [row.storage_path]
    assert not runner.attach("a", b"x").is_new


def test_an_object_that_cannot_be_discarded_does_not_hide_the_answer(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch, finish: Callable[[Runner], None]
) -> None:
    def failing(self: Any, name: str) -> None:
        raise OSError("away")

    monkeypatch.setattr(type(store.backend), "delete", failing)
    with pytest.raises(Ended):
        runner.attach("a", b"x" * 10, stream=Lapsing(b"x" * 10, lambda: finish(runner)))
    assert len(store.files) == 1  # the sweep's


def test_an_unreachable_storage_is_an_answer_and_not_a_fault(runner: Runner, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for artifacts in (
        {"BACKEND": "artifacts.services.file_storage.PrivateFileStorage", "OPTIONS": {"location": tmp_path / "file"}},
        {
            "BACKEND": "artifacts.services.s3_storage.PrivateS3Storage",
            "OPTIONS": {
                "bucket_name": "b", "endpoint_url": "http://127.0.0.1:9", "access_key": "a", "secret_key": "s",
                "region_name": "us-east-1",
            },
        },
    ):  # fmt: skip
        settings.STORAGES = {**settings.STORAGES, "artifacts": artifacts}
        assert runner.put("a", b"x").status_code == 503
    assert storages["artifacts"].client_config.read_timeout == 30
    assert JobArtifact.objects.count() == 0


def test_an_upload_takes_a_fixed_number_of_statements(runner: Runner, django_assert_num_queries: Any) -> None:
    runner.attach("first", b"x")
    assert connection.in_atomic_block
    # Claim, limits, room, same file; under the lock: claim, same file, room, look, insert, and two savepoints around.
    with django_assert_num_queries(15):
        runner.attach("second", b"x")
