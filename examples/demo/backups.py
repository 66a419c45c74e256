"""The demo's backup: a folder of its own goes through restic into a repository, and comes back byte by byte."""

import hashlib
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from examples.demo import cast
from jobs.models import AgentTask, BackupJob, BackupJobRun, BackupRepository, BackupSnapshot
from jobs.services import governance
from jobs.services.backups import launching, registry
from jobs.services.errors import AlreadyEnded

INSTALL_HINT = "apt-get install -y restic"
NAME, SOURCE, CREDENTIAL = "Demo documents", "documents", "demo"
OPEN = (BackupJobRun.Status.PENDING, BackupJobRun.Status.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the demo, which has one task."""

    title: str
    run_id: UUID
    root_id: UUID

    def latest(self) -> AgentTask:
        """Return the latest attempt of its task."""
        task = AgentTask.objects.chain(self.root_id).last()
        assert task is not None
        return task

    def status(self) -> str:
        """Return what the run has come to."""
        return BackupJobRun.objects.get(pk=self.run_id).status


def is_possible() -> bool:
    """Whether there is a restic."""
    return shutil.which("restic") is not None


def configuration(folder: Path) -> Path:
    """Return the runner's configuration, which alone knows the password of the repository."""
    place = folder / "runner-configuration" / "credentials"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    credential = place / f"{CREDENTIAL}.toml"
    if not credential.exists():
        cast.write_secret(credential, f'password = "{secrets.token_urlsafe(12)}"\n')
    return place.parent


def documents(folder: Path) -> Path:
    """Return a folder with files of every sort that a backup meets."""
    place = folder / SOURCE
    (place / "invoices" / "2026").mkdir(parents=True, exist_ok=True)
    (place / "read me.txt").write_text("Backed up by the demo.\n")
    (place / "invoices" / "2026" / "Müller & Søn.csv").write_text("number;amount\n1;19.90\n" * 500)
    (place / "picture.bin").write_bytes(
        b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(9000))
    )
    (place / "empty").touch()
    return place


def back_up(folder: Path) -> Run:
    """Define the demo's backup job where it is not there yet, and launch it."""
    repository = BackupRepository.objects.filter(name=NAME).first()
    repository_id = repository.pk if repository else registry.register_repository(
        registry.RepositoryDefinition(
            name=NAME, location=str(folder / "repository"), credential_ref=CREDENTIAL, init_if_missing=True
        ),
        by=cast.BY,
    )  # fmt: skip
    job = BackupJob.objects.filter(name=NAME).first()
    job_id = job.pk if job else registry.register_job(
        registry.JobDefinition(name=NAME, repository=repository_id), by=cast.BY
    )  # fmt: skip
    if job is None:
        source = registry.SourceDefinition(name=SOURCE, paths=[str(documents(folder))], host="demo")
        registry.add_source(source, job_id=job_id, agent=cast.AGENT, by=cast.BY)
    documents(folder)
    launched = launching.launch_backup(job_id=job_id, by=cast.BY)
    return Run(title="Backup of a folder", run_id=launched.run_id, root_id=launched.task_ids[0])


def restore(backup: Run, to: Path) -> Run:
    """Launch the restore of what a backup made, into a folder that is not there yet."""
    shutil.rmtree(to, ignore_errors=True)
    snapshot = BackupSnapshot.objects.get(task=backup.latest())
    launched = launching.launch_restore(
        snapshot_id=snapshot.pk, target=launching.Target(agent=cast.AGENT, path=str(to)), by=cast.BY,
        reason="The demo compares what comes back with what went in.",
    )  # fmt: skip
    return Run(title="Restore of it", run_id=launched.run_id, root_id=launched.task_ids[0])


def is_identical(folder: Path, to: Path) -> bool:
    """Whether every file came back with its bytes, and none besides."""
    before, after = documents(folder), to.joinpath(*documents(folder).resolve().parts[1:])
    names = {path.relative_to(before) for path in before.rglob("*")}
    return names == {path.relative_to(after) for path in after.rglob("*")} and all(
        (before / name).is_dir() or (before / name).read_bytes() == (after / name).read_bytes() for name in names
    )


def clear_stage() -> None:
    """Close what an interrupted demo left: nobody works on it any more."""
    for task_id in AgentTask.objects.unfinished().filter(job_run__created_by=cast.BY).values_list("pk", flat=True):
        with suppress(AlreadyEnded):
            governance.force_cancel(AgentTask.objects.all(), task_id, by=cast.BY, reason="That demo has ended.")
