"""Rows and bytes against each other, on both storages."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.db import connection

from artifacts.models import ArtifactRemoval, JobArtifact
from artifacts.services import sweeping
from artifacts.services.refusals import StorageUnavailable
from artifacts.services.sweeping import Swept, sweep
from artifacts.services.thumbnails import make_thumbnails
from tests.artifacts.conftest import Runner, Store, new_runner, on_both_storages, picture

pytestmark = pytest.mark.django_db

NOTHING = Swept(removed=0, orphans=0, missing=0, found=0, refused=False)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def put_object(store: Store, key: str, age: timedelta) -> None:
    """An object that no row needs."""
    store.backend.save(key, ContentFile(b"x"))
    store.age(key, age)


@on_both_storages
def test_what_belongs_together_is_left_alone(runner: Runner, store: Store) -> None:
    for name in ("a.png", "b.png"):
        runner.attach(name, picture())
    make_thumbnails()
    before = store.keys
    for key in before:
        store.age(key, DAY * 30)
    assert len(before) == 4
    assert sweep() == NOTHING
    assert store.keys == before


@on_both_storages
def test_an_object_without_a_row_goes_after_a_day_and_not_before(runner: Runner, store: Store) -> None:
    kept = runner.attach("a", b"x").artifact.storage_path
    for key, age in (
        ("jobs/0/old", DAY + HOUR),
        ("jobs/0/young", DAY - HOUR),
        (f"{kept}.00000000.thumb.webp", DAY * 2),
    ):
        put_object(store, key, age)
    assert sweep(dry_run=True).orphans == 2
    assert len(store.keys) == 4
    assert sweep().orphans == 2
    assert store.keys == sorted(["jobs/0/young", kept])


def test_what_others_keep_in_the_same_storage_is_not_ours_to_sweep(runner: Runner, store: Store) -> None:
    put_object(store, "elsewhere/file", DAY * 9)
    assert sweep() == NOTHING
    assert len(store.files) == 1


def test_an_upload_that_still_runs_can_never_be_swept() -> None:
    with pytest.raises(ValueError, match="an hour"):
        sweep(older_than=timedelta(minutes=59))


@on_both_storages
def test_a_job_deleted_by_plain_sql_leaves_no_bytes_behind(runner: Runner, store: Store) -> None:
    runner.attach("a.png", picture())
    runner.attach("a.log", b"x")
    make_thumbnails()
    kept = new_runner().attach("b", b"x").artifact
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_jobs WHERE id = %s", [runner.job.pk])
    assert sweep(dry_run=True).removed == 3
    assert sweep() == Swept(removed=3, orphans=0, missing=0, found=0, refused=False)
    assert store.keys == [kept.storage_path]
    assert not ArtifactRemoval.objects.exists()


def test_a_storage_that_is_down_loses_no_key_of_a_deleted_row(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.attach("a", b"x")
    JobArtifact.objects.all().delete()

    def failing(*args: Any) -> None:
        raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.backend), "delete", failing)
        with pytest.raises(StorageUnavailable):
            sweep()
    assert ArtifactRemoval.objects.count() == 1
    assert sweep().removed == 1
    assert store.files == []


def test_bytes_that_another_row_still_names_are_kept(runner: Runner, store: Store) -> None:
    ours = runner.attach("a", b"x").artifact
    JobArtifact.objects.create(job=runner.job, name="copy", storage_path=ours.storage_path)
    ours.delete()
    assert sweep().removed == 0
    assert len(store.keys) == 1


def test_the_bytes_of_a_plain_sql_clients_row_are_that_clients_own(runner: Runner, store: Store) -> None:
    put_object(store, "theirs/file", DAY * 9)
    JobArtifact.objects.create(job=runner.job, name="a", storage_path="theirs/file").delete()
    assert not ArtifactRemoval.objects.exists()


@on_both_storages
def test_rows_whose_bytes_are_gone_say_so_until_the_bytes_are_back(runner: Runner, store: Store) -> None:
    rows = [runner.attach(name, name.encode()).artifact for name in "abcd"]
    first, last = min(rows, key=lambda row: row.storage_path), max(rows, key=lambda row: row.storage_path)
    for row in (first, last):
        store.backend.delete(row.storage_path)
    assert sweep(dry_run=True).missing == 2
    assert not JobArtifact.objects.exclude(missing_at=None).exists()
    assert sweep().missing == 2
    assert set(JobArtifact.objects.exclude(missing_at=None)) == {first, last}
    assert sweep() == NOTHING
    store.backend.save(first.storage_path, ContentFile(first.name.encode()))
    assert sweep(dry_run=True).found == 1
    assert sweep().found == 1
    assert list(JobArtifact.objects.exclude(missing_at=None)) == [last]


@pytest.mark.parametrize("page", [1, 2, 3])
def test_the_borders_of_pages_hide_nothing(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(sweeping, "PAGE", page)
    rows = [runner.attach(f"{number}.png", picture(size=(number + 1, 9))).artifact for number in range(7)]
    make_thumbnails()
    for key in store.keys:
        store.age(key, DAY * 2)
    assert sweep() == NOTHING
    for row in rows[::2]:
        store.backend.delete(row.storage_path)
    rows[1].delete()
    assert sweep() == Swept(removed=2, orphans=0, missing=4, found=0, refused=False)
    assert sweep() == NOTHING


def test_a_row_that_came_after_the_list_of_objects_is_not_called_missing(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = type(store.backend).objects

    def late(self: Any, prefix: str) -> Any:
        yield from list(objects(self, prefix))
        runner.attach("late", b"x")

    monkeypatch.setattr(type(store.backend), "objects", late)
    assert sweep().missing == 0


def test_a_database_that_is_not_the_storages_own_sweeps_nothing(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sweeping, "SUSPICIOUS", 3)
    runner.attach("a", b"x")
    for number in range(4):
        put_object(store, f"jobs/other/{number}", DAY * 2)
    swept = sweep()
    assert (swept.orphans, swept.refused) == (4, True)
    assert len(store.keys) == 5
    assert "Is this the database of this storage?" in caplog.text
    for name in "bcdefgh":
        runner.attach(name, b"x")
    assert not sweep().refused
    assert len(store.keys) == 8


def test_a_storage_that_lists_nothing_marks_rows_and_removes_none(runner: Runner, store: Store) -> None:
    key = runner.attach("a", b"x").artifact.storage_path
    store.folder.rename(store.folder.with_name("unmounted"))
    assert sweep().missing == 1
    store.folder.with_name("unmounted").rename(store.folder)
    assert sweep().found == 1
    assert store.keys == [key]


@on_both_storages
def test_objects_come_in_the_order_of_their_bytes(store: Store) -> None:
    names = ["jobs/a/x", "jobs/a.b", "jobs/a-b/x", "jobs/B/x", "jobs/a/x.thumb", "jobs/a/X", "jobs/é/x", "jobs/a0"]
    for name in names:
        store.backend.save(name, ContentFile(b"x"))
    assert store.keys == sorted(names, key=str.encode)


def test_the_table_of_removals_is_closed_to_everyone_but_its_owner(db: None) -> None:
    tables = ["agent_job_artifacts", "artifact_removals"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relrowsecurity", [tables])
        assert sorted(name for (name,) in cursor.fetchall()) == tables


def swept_by_command(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("sweep_artifacts", "--json", *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@on_both_storages
def test_the_command_tells_what_it_would_do_and_then_does_it(runner: Runner, store: Store) -> None:
    lost = runner.attach("lost", b"1").artifact
    store.backend.delete(lost.storage_path)
    runner.attach("gone", b"2").artifact.delete()
    put_object(store, "jobs/0/orphan", DAY * 2)
    expected = {"removed": 1, "orphans": 1, "missing": 1, "found": 0, "refused": False}
    before = store.keys
    assert swept_by_command("--dry-run") == expected
    assert store.keys == before
    assert swept_by_command() == expected
    assert store.keys == []
    lost.refresh_from_db()
    assert lost.missing_at


def test_the_command_spares_what_is_younger_than_it_is_told(runner: Runner, store: Store) -> None:
    put_object(store, "jobs/0/young", HOUR * 2)
    assert swept_by_command("--older-than", "3h")["orphans"] == 0
    assert swept_by_command("--older-than", "1h")["orphans"] == 1
    with pytest.raises(CommandError, match="use at least 1h"):
        swept_by_command("--older-than", "59m")
