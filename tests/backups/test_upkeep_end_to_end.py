"""Maintenance by the clock and restore drills from end to end: a real server, real runners, real restic."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from jobs.models import AgentJob, AgentTask, BackupJob, BackupJobRun, BackupRepository, BackupSnapshot
from jobs.services import shipped_kinds
from jobs.services.backups import drilling, upkeep
from tests.backups.machines import Machine, define, launch, locks
from tests.outages.installation import Web

pytestmark = [pytest.mark.lengthy, pytest.mark.django_db(transaction=True)]
NewMachine = Callable[[str], Machine]


def back_up(machine: Machine, port: int, **files: int) -> None:
    machine.fill(**files)
    launch(BackupJob.objects.get().pk)
    machine.work(port)


def rehearse(machine: Machine, port: int) -> AgentTask:
    """The drill that is due now, done."""
    BackupJobRun.objects.update(created_at=F("created_at") - timedelta(days=2))
    BackupSnapshot.objects.filter(verified_at__isnull=False).update(verified_at=Now() - timedelta(days=2))
    assert drilling.launch_due().launched == 1
    machine.work(port)
    return AgentTask.objects.filter(job_run__trigger="drill").latest("created_at")


def test_a_drill_proves_that_a_backup_comes_back_and_later_that_it_does_not_any_more(
    server: Web, new_machine: NewMachine, people: Client
) -> None:
    web_1 = new_machine("web-1")
    define(web_1, attempts=1)
    BackupJob.objects.update(drill_every_days=1, drill_files=3)
    back_up(web_1, server.port, **{f"f{number}": 300_000 for number in range(5)})

    unprepared = rehearse(web_1, server.port)
    assert (unprepared.status, unprepared.error_code) == ("failed", "drill_folder_unusable")
    assert BackupSnapshot.objects.get().verified_at is None

    folder = web_1.folder / "drills"
    folder.mkdir(mode=0o700)
    with (web_1.folder / "config" / "backups.toml").open("a") as file:
        file.write(f'drill_folder = "{folder}"\n')
    good = rehearse(web_1, server.port)
    assert (good.status, good.details["plan"]["files"]) == ("succeeded", 3), good.error_message
    assert good.files_processed >= 3
    assert BackupSnapshot.objects.get().verified_ok is True

    for pack in (web_1.repository / "data").glob("*/*"):
        pack.chmod(0o600)
        if pack.stat().st_size > 100_000:
            pack.write_bytes(b"\0" * pack.stat().st_size)
    bad = rehearse(web_1, server.port)
    assert bad.failure_class == "repository", (bad.status, bad.error_message)
    assert BackupSnapshot.objects.get().verified_ok is False
    assert BackupRepository.objects.get().damaged_at
    assert list(folder.iterdir()) == []
    page = people.get(reverse("admin:jobs_backupjob_change", args=[BackupJob.objects.get().pk]))
    assert page.context["sources"][0]["drill_url"].endswith(f"{bad.job_run_id}/change/")


def test_what_retention_lets_go_is_gone_from_the_repository_once_the_clock_has_maintained_it(
    server: Web, new_machine: NewMachine, people: Client
) -> None:
    shipped_kinds.sync_kinds()
    web_1 = new_machine("web-1")
    define(web_1)
    BackupJob.objects.update(retention={"keep_last": 1})
    for size in (1000, 2000):
        back_up(web_1, server.port, a=size)
    agent = AgentTask.objects.first().agent  # type: ignore[union-attr]  # there are two
    BackupRepository.objects.update(
        maintenance_agent=agent, maintenance_every_days=1, maintenance_from=Now() - timedelta(days=1)
    )

    assert upkeep.enqueue_due().enqueued == 1
    web_1.work(server.port)

    job = AgentJob.objects.get()
    assert (job.status, job.verdict) == ("done", "pass"), job.error
    old, new = BackupSnapshot.objects.order_by("taken_at")
    assert (old.forgotten_at is None, new.forgotten_at is None) == (False, True)
    assert saved(web_1.repository) == {new.engine_id}
    assert locks(web_1.repository) == []
    page = people.get(reverse("admin:jobs_backuprepository_change", args=[new.repository_id]))
    assert page.context["maintenance"][0]["came"] == "no damage found, 1 forgotten, pruned"


def saved(repository: Path) -> set[str]:
    return {path.name for path in (repository / "snapshots").iterdir()}
