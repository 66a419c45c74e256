"""How long evidence is kept: per kind, never under a hold, batch by batch, and the audit trail says what went."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from artifacts.models import ArtifactRemoval, JobArtifact
from artifacts.services import purging
from artifacts.services.purging import Purged, purge
from artifacts.services.sweeping import sweep
from jobs.models import AgentJob, AuditEvent, JobKind, LegalHold
from jobs.services import legal_holds
from jobs.services.errors import AlreadyHeld, Invalid, NotFound, NotHeld
from tests.artifacts.conftest import Runner, Store, on_both_storages
from tests.factories import AgentJobFactory

pytestmark = pytest.mark.django_db

NOTHING = Purged(jobs=0, files=0)
DAY = timedelta(days=1)


@pytest.fixture
def kind(db: None) -> JobKind:
    """Keeps jobs for thirty days and their files for ten."""
    return JobKind.objects.create(name="echo", keep_jobs_days=30, keep_files_days=10)


def ended(job: AgentJob, age: timedelta, **values: Any) -> AgentJob:
    """A job that ended so long ago."""
    then = timezone.now() - age
    AgentJob.objects.filter(pk=job.pk, status="queued").update(status="running")
    AgentJob.objects.filter(pk=job.pk).update(**{"status": "done", "ended_by": "runner", "finished_at": then} | values)
    return job


def aged(artifact: JobArtifact, age: timedelta) -> JobArtifact:
    """A file that came so long ago."""
    JobArtifact.objects.filter(pk=artifact.pk).update(created_at=timezone.now() - age)
    return artifact


def chain(age: timedelta) -> list[AgentJob]:
    """Three attempts, of which the last one ended so long ago."""
    first = AgentJobFactory()
    rows = [first]
    for number in range(2):
        ended(rows[-1], age + DAY * (3 - number), status="failed", error="e", failure_class="network")
        again = AgentJob.objects.retry(rows[-1])
        assert again is not None
        rows.append(again)
    ended(rows[-1], age)
    return rows


@on_both_storages
def test_a_job_past_its_days_goes_with_all_attempts_rows_and_bytes(
    runner: Runner, store: Store, kind: JobKind, finish: Callable[[Runner], None]
) -> None:
    runner.attach("a.png", b"bytes")
    ended(runner.job, DAY * 31)
    attempts = chain(DAY * 31)
    assert purge() == Purged(jobs=2, files=0)
    assert not AgentJob.objects.exists()
    assert sweep().removed == 1
    assert store.keys == []
    told = {event.subject_id: event for event in AuditEvent.objects.filter(tag="job_purged")}
    assert set(told) == {runner.job.pk, attempts[0].pk}
    assert told[attempts[0].pk].details["attempts"] == 3
    one = told[runner.job.pk]
    assert (one.actor, one.reason) == ("agentstore", "kept for 30 days")
    assert one.details["kind"] == "echo"
    assert (one.details["files"], one.details["bytes"], one.details["status"]) == (1, 5, "done")


def test_a_job_within_its_days_stays(kind: JobKind) -> None:
    ended(AgentJobFactory(), DAY * 29)
    assert purge() == NOTHING


def test_a_kind_without_days_and_an_unknown_kind_keep_everything(db: None) -> None:
    JobKind.objects.create(name="kept")
    for name in ("kept", "unknown"):
        ended(AgentJobFactory(kind=name), DAY * 9999)
    assert purge() == NOTHING
    assert AgentJob.objects.count() == 2


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_every_way_to_end_is_purged_by_its_own_time(kind: JobKind, status: str) -> None:
    more = {"error": "e", "failure_class": "network"} if status == "failed" else {}
    ended(AgentJobFactory(), DAY * 31, status=status, **more)
    assert purge().jobs == 1


def test_a_row_that_plain_sql_ended_without_a_time_counts_from_its_last_change(kind: JobKind) -> None:
    job = ended(AgentJobFactory(), DAY, finished_at=None)
    assert purge() == NOTHING
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
        cursor.execute("UPDATE agent_jobs SET updated_at = now() - interval '31 days' WHERE id = %s", [job.pk])
        cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
    assert purge().jobs == 1


@pytest.mark.parametrize("status", ["queued", "running"])
def test_work_that_goes_on_is_never_purged_however_old(runner: Runner, kind: JobKind, status: str) -> None:
    job = AgentJobFactory(queued_at=timezone.now() - DAY * 99) if status == "queued" else runner.job
    aged(JobArtifact.objects.create(job=job, name="a", storage_path="x", sensitive=True), DAY * 99)
    assert purge() == NOTHING


def test_a_chain_whose_latest_attempt_waits_stays_whole(kind: JobKind) -> None:
    first = ended(AgentJobFactory(), DAY * 99, status="failed", error="e", failure_class="network")
    AgentJob.objects.retry(first)
    assert purge() == NOTHING
    assert AgentJob.objects.count() == 2


def test_files_go_before_their_job_and_the_audit_trail_names_them(runner: Runner, store: Store, kind: JobKind) -> None:
    aged(runner.attach("old.bin", b"\0bytes").artifact, DAY * 11)
    kept = runner.attach("new.bin", b"\0").artifact
    ended(runner.job, DAY)
    assert purge() == Purged(jobs=0, files=1)
    assert sweep().removed == 1
    assert store.keys == [kept.storage_path]
    (event,) = AuditEvent.objects.filter(tag="files_purged")
    assert (event.subject_id, event.reason) == (runner.job.pk, "kept for 10 days")
    assert event.details == {"files": 1, "bytes": 6, "names": ["old.bin"]}


def test_sensitive_files_live_for_seven_days_whatever_their_kind_says(runner: Runner, store: Store) -> None:
    for name, age in (("six.har", DAY * 6), ("eight.har", DAY * 8), ("eight.bin", DAY * 8)):
        aged(runner.attach(name, b"\0" + name.encode()).artifact, age)
    ended(runner.job, DAY)
    assert purge() == Purged(jobs=0, files=1)
    assert set(JobArtifact.objects.values_list("name", flat=True)) == {"six.har", "eight.bin"}


def test_a_large_purge_goes_batch_by_batch_and_leaves_the_rest_to_the_next_turn(
    kind: JobKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "BATCH", 2)
    monkeypatch.setattr(purging, "BATCHES", 3)
    for _ in range(7):
        ended(AgentJobFactory(), DAY * 31)
    assert [purge().jobs for _ in range(3)] == [6, 1, 0]


@on_both_storages
def test_a_hold_keeps_a_job_and_its_files_from_the_clock_and_from_plain_sql(
    runner: Runner, store: Store, kind: JobKind
) -> None:
    aged(runner.attach("a.har", b"\0bytes").artifact, DAY * 99)
    ended(runner.job, DAY * 99)
    legal_holds.place_hold(job_id=runner.job.pk, by="ada", reason="court order 7")
    assert purge() == NOTHING
    for table in ("agent_jobs", "agent_job_artifacts"):
        with (
            pytest.raises(IntegrityError, match="under a legal hold"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"DELETE FROM {table}")
    legal_holds.release_hold(job_id=runner.job.pk, by="ada", reason="settled")
    assert purge() == Purged(jobs=1, files=1)


def test_a_hold_on_one_attempt_covers_the_chain_and_its_attempts_to_come(kind: JobKind) -> None:
    attempts = chain(DAY * 99)
    legal_holds.place_hold(job_id=attempts[1].pk, by="ada", reason="r")
    assert purge() == NOTHING
    with pytest.raises(IntegrityError), transaction.atomic():
        attempts[2].delete()
    assert LegalHold.objects.get().root_id == attempts[0].pk


def test_a_batch_that_meets_a_new_hold_deletes_nothing_and_the_next_one_goes_around_it(
    kind: JobKind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held, free = ended(AgentJobFactory(), DAY * 99), ended(AgentJobFactory(), DAY * 99)
    legal_holds.place_hold(job_id=held.pk, by="ada", reason="r")
    # As seen by a purge that began before the hold.
    blind = purging.JOBS.replace("AND NOT EXISTS (SELECT FROM legal_holds hold WHERE hold.root_id = job.root_id)", "")
    assert blind != purging.JOBS
    with monkeypatch.context() as patch:
        patch.setattr(purging, "JOBS", blind)
        assert purge() == NOTHING
    assert "agent_jobs_held" in caplog.text
    assert purge().jobs == 1
    assert list(AgentJob.objects.all()) == [held]
    assert free.pk


def test_a_hold_is_placed_once_released_once_and_both_are_written_down(runner: Runner) -> None:
    job = runner.job.pk
    with pytest.raises(NotHeld):
        legal_holds.release_hold(job_id=job, by="ada", reason="r")
    legal_holds.place_hold(job_id=job, by="ada", reason="why")
    with pytest.raises(AlreadyHeld):
        legal_holds.place_hold(job_id=job, by="bob", reason="r")
    legal_holds.release_hold(job_id=job, by="bob", reason="done")
    told = [(event.tag, event.actor, event.reason) for event in AuditEvent.objects.order_by("id")]
    assert told == [("hold_placed", "ada", "why"), ("hold_released", "bob", "done")]
    assert not LegalHold.objects.exists()


def test_a_hold_needs_a_reason_and_a_job(runner: Runner) -> None:
    with pytest.raises(Invalid):
        legal_holds.place_hold(job_id=runner.job.pk, by="ada", reason=" ")
    with pytest.raises(NotFound):
        legal_holds.place_hold(job_id=runner.claim_id, by="ada", reason="r")
    assert not AuditEvent.objects.exists()


def test_only_holds_and_retries_stand_in_the_way_of_a_purge(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE contype = 'f' AND confrelid = 'agent_jobs'::regclass AND confdeltype NOT IN ('c', 'n')"
        )
        restricting = sorted(table for table, _ in cursor.fetchall())
    assert restricting == ["agent_jobs", "legal_holds"]


def test_the_bytes_of_purged_files_wait_in_the_outbox_until_the_storage_is_back(
    runner: Runner, store: Store, kind: JobKind
) -> None:
    runner.attach("a", b"x")
    ended(runner.job, DAY * 31)
    purge()
    assert ArtifactRemoval.objects.count() == 1
    assert len(store.keys) == 1
