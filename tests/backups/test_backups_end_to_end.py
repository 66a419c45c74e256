"""Backups and restores from end to end: a real server, real runners, real restic; rows, catalogue and pages agree."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from jobs.models import AgentTask, BackupJobRun, BackupSnapshot, Schedule
from jobs.services import maintenance, schedule_registry, scheduling, shipped_kinds
from jobs.services.backups import launching, listing
from tests.backups.machines import DONE, WAITS, Attempt, Machine, Truth, copy_of, define, hurry, launch, machine
from tests.outages.installation import Web

pytestmark = [pytest.mark.lengthy, pytest.mark.django_db(transaction=True)]
AWAY = timedelta(days=3)
NewMachine = Callable[[str], Machine]


def unprivileged() -> tuple[str, ...]:
    """The program that starts a runner without root's right to read everything."""
    if os.geteuid() != 0:
        return ()
    command = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    if not shutil.which("setpriv") or subprocess.run([*command, "true"], check=False).returncode != 0:
        pytest.skip("these tests run as root, and setpriv cannot take root's privileges away here")
    return command


def nothing(machine: Machine) -> tuple[Path, ...]:
    return ()


def a_file_that_is_locked(machine: Machine) -> tuple[Path, ...]:
    (machine.source / "b").chmod(0)
    return ()


def a_path_that_is_gone(machine: Machine) -> tuple[Path, ...]:
    return (machine.folder / "gone",)


def another_password(machine: Machine) -> tuple[Path, ...]:
    machine.set_password("another-password")
    return ()


def partial(code: str) -> Attempt:
    return Attempt(status="partial_failure", failure_class="source", code=code, complete=False)


@pytest.mark.parametrize(("wrong", "truth"), [
    (nothing, Truth(run="succeeded", attempts=(DONE,), says=("1: 1 succeeded",))),
    (a_file_that_is_locked, Truth(
        run="partial_failure", attempts=(partial("source_unreadable"),), skipped=1,
        says=("1: 1 partial", "/source/b", "the source is missing, unreadable or empty"),
    )),
    (a_path_that_is_gone, Truth(
        run="partial_failure", attempts=(partial("source_missing"),), skipped=1, says=("1: 1 partial", "/gone"),
    )),
    (another_password, Truth(
        run="failed", says=("1: 1 failed", "wrong password", "needs a person"),
        attempts=(Attempt(status="failed", failure_class="configuration", code="wrong_password"),),
    )),
])  # fmt: skip
def test_what_came_of_a_backup_is_told_alike_by_rows_catalogue_and_page(
    wrong: Callable[[Machine], tuple[Path, ...]], truth: Truth, server: Web, new_machine: NewMachine, people: Client
) -> None:
    machine = new_machine("web-1")
    machine.fill(a=3000, b=50_000)
    run = launch(define(machine, paths=wrong(machine)))

    machine.work(server.port, by=unprivileged() if wrong is a_file_that_is_locked else ())

    truth.check(run, people, machine.repository)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little more than an empty repository."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, check=False, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system may be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_tried_again_and_the_backup_is_whole_once_there_is_room(
    server: Web, empty_repository: Path, small: Path, tmp_path: Path, people: Client, transactional_db: None
) -> None:
    full = Attempt(status="failed", failure_class="resource", code="no_space")
    with machine(tmp_path, "web-1", copy_of(empty_repository, small / "repository")) as web_1:
        web_1.fill(a=12_000_000)
        run = launch(define(web_1))
        web_1.work(server.port)
        waiting = Truth(run="running", attempts=(full, WAITS), says=("Tried again",))
        waiting.check(run, people, web_1.repository)

        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        hurry(run)
        web_1.work(server.port)
        Truth(run="succeeded", attempts=(full, DONE)).check(run, people, web_1.repository)


def test_a_snapshot_is_looked_into_and_what_is_chosen_there_comes_back_byte_by_byte_on_another_agent(
    server: Web, new_machine: NewMachine, people: Client, tmp_path: Path
) -> None:
    web_1, spare, target = new_machine("web-1"), new_machine("spare"), tmp_path / "target"
    web_1.fill(a=3000, b=50_000)
    launch(define(web_1))
    web_1.work(server.port)

    snapshot = BackupSnapshot.objects.get()
    shipped_kinds.sync_kinds()
    listing.enqueue_listing(snapshot_id=snapshot.pk, path=str(web_1.source), agent="spare", by="ada")
    assert spare.work(server.port) == 0
    page = people.get(reverse("admin:jobs_backupsnapshot_change", args=[snapshot.pk]))
    assert [(entry["name"], entry["size"]) for entry in page.context["entries"]] == [
        ("a", "2.9 KiB"),
        ("b", "48.8 KiB"),
    ]
    form = people.get(page.context["entries"][1]["restore_url"]).context["form"]
    assert form["include"].initial == [str(web_1.source / "b")]

    restored = launching.launch_restore(
        snapshot_id=snapshot.pk, include=form["include"].initial,
        target=launching.Target(agent="spare", path=str(target)), by="ada", reason="web-1 burnt down",
    ).run_id  # fmt: skip
    spare.work(server.port)

    there = target / str(web_1.source).lstrip("/")
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {"b": (web_1.source / "b").read_bytes()}
    says = ("web-1 burnt down", f"{target} on spare", "are left as they are", "complete, content verified")
    Truth(run="succeeded", attempts=(Attempt(status="succeeded"),), says=says).check(restored, people, web_1.repository)


def days_pass(run_id: UUID) -> None:
    """Let everything that is written down have happened days ago."""
    AgentTask.objects.filter(job_run=run_id).update(
        created_at=F("created_at") - AWAY, expires_at=F("expires_at") - AWAY
    )
    BackupJobRun.objects.filter(pk=run_id).update(created_at=F("created_at") - AWAY)
    Schedule.objects.update(settled_at=Now() - AWAY, next_due_at=Now() - AWAY + timedelta(seconds=1))


def test_an_agent_that_returns_after_days_does_one_backup_and_what_it_missed_stays_missed(
    server: Web, new_machine: NewMachine, people: Client
) -> None:
    laptop = new_machine("laptop")
    laptop.fill(a=3000)
    job = define(laptop)
    # Half an hour from now and from the time before: no time is so fresh that it is not caught up but on time.
    hourly = f"{(datetime.now(UTC).minute + 30) % 60} * * * *"
    schedule = schedule_registry.create_schedule(
        schedule_registry.BackupDefinition(name="every hour", backup_job=job, expression=hourly), by="ada"
    )
    missed = launch(job)
    days_pass(missed)
    for _ in range(2):  # a second loop, or a second turn, adds nothing
        maintenance.expire()
        scheduling.enqueue_due()

    Truth(run="missed", attempts=(Attempt(status="cancelled"),)).check(missed, people, laptop.repository)
    caught_up = BackupJobRun.objects.get(trigger="catch_up")
    assert schedule.slots.filter(outcome="enqueued").count() == 1
    laptop.work(server.port)
    Truth(run="succeeded", attempts=(DONE,), says=("caught up",)).check(caught_up.pk, people, laptop.repository)
    assert not AgentTask.objects.unfinished().exists()
