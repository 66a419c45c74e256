"""Uploads at once, through connections of their own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from artifacts.models import JobArtifact
from artifacts.services import uploads
from artifacts.services.refusals import ArtifactMismatch, OverLimit
from artifacts.services.uploads import Attached
from jobs.engine.errors import Ended
from jobs.models import AgentJob
from tests.artifacts.conftest import Runner, Store, new_runner

pytestmark = pytest.mark.django_db(transaction=True)

AT_ONCE = 6


@pytest.fixture
def runner(transactional_db: None, store: Store) -> Runner:
    """A runner whose job every connection sees."""
    return new_runner()


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], Attached]]], list[Any]]:
    """Run uploads so that every one has stored its bytes before the first writes its row; answers or refusals."""

    def together(acts: list[Callable[[], Attached]]) -> list[Any]:
        barrier, write_row = threading.Barrier(len(acts)), uploads.write_row

        def waiting(*args: Any, **values: Any) -> JobArtifact:
            barrier.wait(timeout=60)
            return write_row(*args, **values)

        monkeypatch.setattr(uploads, "write_row", waiting)

        def act(number: int) -> Any:
            try:
                return acts[number]()
            except (ArtifactMismatch, OverLimit, Ended) as refusal:
                return refusal
            finally:
                connection.close()

        with ThreadPoolExecutor(len(acts)) as pool:
            return list(pool.map(act, range(len(acts))))

    return together


def test_one_file_sent_many_times_at_once_is_one_row_and_one_object(
    runner: Runner, store: Store, together: Callable[..., list[Any]]
) -> None:
    answers = together([lambda: runner.attach("a", b"same")] * AT_ONCE)
    assert sorted(answer.is_new for answer in answers) == [False] * (AT_ONCE - 1) + [True]
    assert len({answer.artifact.pk for answer in answers}) == 1
    assert store.keys == [JobArtifact.objects.get().storage_path]


def test_of_different_files_under_one_name_the_first_stays_and_the_others_are_refused(
    runner: Runner, store: Store, together: Callable[..., list[Any]]
) -> None:
    answers = together([partial(runner.attach, "a", str(number).encode()) for number in range(AT_ONCE)])
    assert sum(isinstance(answer, ArtifactMismatch) for answer in answers) == AT_ONCE - 1
    row = JobArtifact.objects.get()
    assert store.keys == [row.storage_path]


def test_the_number_of_files_is_never_exceeded_by_simultaneous_ones(
    runner: Runner, store: Store, together: Callable[..., list[Any]], settings: Any
) -> None:
    settings.ARTIFACT_MAX_FILES = 2
    answers = together([partial(runner.attach, str(number), b"x") for number in range(AT_ONCE)])
    assert sum(isinstance(answer, OverLimit) for answer in answers) == AT_ONCE - 2
    assert len(store.keys) == JobArtifact.objects.count() == 2


def test_a_result_that_commits_first_leaves_an_upload_without_row_and_object(
    runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_row = uploads.write_row

    def finish() -> None:
        AgentJob.objects.filter(pk=runner.job.pk).update(
            status="done", finished_at=timezone.now(), ended_by="runner", result_digest="d"
        )
        connection.close()

    def late(*args: Any, **values: Any) -> JobArtifact:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(finish).result()
        return write_row(*args, **values)

    monkeypatch.setattr(uploads, "write_row", late)
    with pytest.raises(Ended):
        runner.attach("a", b"x")
    assert (store.files, JobArtifact.objects.count()) == ([], 0)
