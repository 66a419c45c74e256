"""Agents as machines with restic and a runner of their own, and what a run that they worked on must look like."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from jobs.models import AgentTask, BackupJobRun, BackupSnapshot
from jobs.services import maintenance
from jobs.services.backups import launching, registry
from tests.factories import AgentFactory, TokenFactory
from tests.outages.installation import wait_until

PASSWORD = "correct-horse-battery"
WHOLE = re.compile("[0-9a-f]{64}")  # restic writes each file under another name first
LEASE = 120  # seconds; the runner beats every five of them
LONG_AGO = timedelta(hours=1)
UNFINISHED = ("pending", "running")


def database_url() -> str:
    """Where the database of this test is, for a server of its own."""
    said = connection.settings_dict
    password = f":{quote(said['PASSWORD'])}" if said["PASSWORD"] else ""
    where = {"host": said["HOST"], "port": said["PORT"]}
    options = urlencode({name: value for name, value in where.items() if value})
    return f"postgresql://{said['USER']}{password}@/{said['NAME']}?{options}"


class Machine:
    """One agent's machine: folders to back up, a configuration that alone knows the password, a runner.

    While its file `slow` exists restic writes too slowly to end, while `held` exists a backup waits before it begins.
    """

    def __init__(self, folder: Path, key: str, repository: Path) -> None:
        self.key, self.repository = key, repository
        self.folder = folder / key
        self.source = self.folder / "source"
        self.source.mkdir(parents=True)
        self.slow, self.held, self._at_work = (self.folder / name for name in ("slow", "held", "at-work"))
        agent = AgentFactory(principal_key=key, lease_seconds=LEASE)
        self._bearer = TokenFactory(agent=agent).bearer
        self._log = self.folder / "runner.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._configure()
        self.set_password(PASSWORD)

    def _configure(self) -> None:
        wrapper = self.folder / "restic"
        wrapper.write_text(
            "#!/bin/sh\n"
            f'[ "$1" != backup ] || echo $$ > {self._at_work}\n'
            f'[ "$1" != backup ] || while [ -e {self.held} ]; do sleep 0.1; done\n'
            f'[ ! -e {self.slow} ] || set -- --limit-upload=30 "$@"\n'
            'exec restic "$@"\n'
        )
        wrapper.chmod(0o700)
        (self.folder / "config" / "credentials").mkdir(parents=True)
        file = self.folder / "config" / "backups.toml"
        file.write_text(f'restic = "{wrapper}"\n')
        file.chmod(0o600)

    def set_password(self, password: str) -> None:
        """Say by which password this machine opens the repository."""
        file = self.folder / "config" / "credentials" / "main.toml"
        file.write_text(f'password = "{password}"\n')
        file.chmod(0o600)

    def fill(self, **sizes: int) -> None:
        """Put files of random bytes into the source."""
        for name, size in sizes.items():
            (self.source / name).write_bytes(os.urandom(size))

    def start(self, port: int, *words: str, by: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
        """A runner process that does one task, started by the program `by` if that is given."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        secret = {"AGENTSTORE_TOKEN": self._bearer, "AGENTSTORE_RUNNER_CONFIG": str(self.folder / "config")}
        command = [
            *by, sys.executable, "-m", "agentstore_runner", "run", "--once", "--tasks",
            "--server", f"http://127.0.0.1:{port}", "--name", self.key, "--state", str(self.folder / "state"),
        ]  # fmt: skip
        with self._log.open("ab") as log:
            cache = {"RESTIC_CACHE_DIR": str(self.folder / "cache")}
            process = subprocess.Popen([*command, *words], env={**kept, **secret, **cache}, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def work(self, port: int, *words: str, by: tuple[str, ...] = ()) -> int:
        """Let a runner do one task, if one waits; its exit code."""
        return self.start(port, *words, by=by).wait(120)

    @property
    def log(self) -> str:
        """What its runners said."""
        return self._log.read_text() if self._log.exists() else ""

    def engine(self) -> int:
        """Wait until a backup of restic is held here, or writes into the repository; its process id."""
        wait_until(lambda: self._at_work.exists() and self._at_work.read_text(), "restic begins")
        if not self.held.exists():
            data = self.repository / "data"
            wait_until(lambda: any(not WHOLE.fullmatch(path.name) for path in data.glob("*/*")), "restic writes")
        return int(self._at_work.read_text())

    def end(self) -> None:
        """Leave no process behind."""
        for path in (self.held, self.slow):
            path.unlink(missing_ok=True)
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def machine(folder: Path, key: str, repository: Path) -> Iterator[Machine]:
    """A machine, whose processes end with the block; what they said is printed when the test fails."""
    made = Machine(folder, key, repository)
    try:
        yield made
    finally:
        made.end()
        print(made.log)


def define(*machines: Machine, paths: tuple[Path, ...] = (), attempts: int = 3) -> UUID:
    """Register the repository of these machines, and a backup job with a source on each; returns the job's id."""
    repository = registry.register_repository(
        registry.RepositoryDefinition(name="main", location=str(machines[0].repository), credential_ref="main"),
        by="ada",
    )
    job_id = registry.register_job(
        registry.JobDefinition(name="nightly", repository=repository, max_attempts=attempts), by="ada"
    )
    for one in machines:
        found = [str(path) for path in (one.source, *paths)]
        registry.add_source(
            registry.SourceDefinition(name=one.key, host=one.key, paths=found), job_id=job_id, agent=one.key, by="ada"
        )
    return job_id


def launch(job_id: UUID) -> UUID:
    """Launch a run of a job; returns its id."""
    return launching.launch_backup(job_id=job_id, by="ada").run_id


def locks(repository: Path) -> list[str]:
    """The locks that hold."""
    return [path.name for path in (repository / "locks").iterdir() if WHOLE.fullmatch(path.name)]


def reap(run_id: UUID) -> int:
    """Let an hour pass in which nobody beat, and close what fell silent; how many tasks that were."""
    AgentTask.objects.filter(job_run=run_id, status="running").update(heartbeat_at=Now() - LONG_AGO)
    return maintenance.reap().tasks


def hurry(run_id: UUID) -> None:
    """Let the pause of waiting retries be over."""
    assert AgentTask.objects.filter(job_run=run_id, status="pending", not_before__gt=Now()).update(not_before=None)


def is_alive(pid: int) -> bool:
    """Whether a process works; one that ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def copy_of(template: Path, to: Path) -> Path:
    """A repository of one's own."""
    return Path(shutil.copytree(template, to))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One task of a run: its state, and why it failed; `complete` is what the catalogue says of its snapshot."""

    status: str
    failure_class: str | None = None
    code: str | None = None
    complete: bool | None = None  # None: there is no snapshot of it


DONE = Attempt(status="succeeded", complete=True)
WAITS = Attempt(status="pending")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a run has come to, for its tasks in their order, for the catalogue, and for people."""

    run: str
    attempts: tuple[Attempt, ...]
    skipped: int = 0
    orphans: int = 0  # snapshots that lie in the repository and that nobody may count on
    says: tuple[str, ...] = ()

    def check(self, run_id: UUID, people: Client, repository: Path) -> None:
        """Compare it with the rows, with the files of the repository, and with the page of the run."""
        run = BackupJobRun.objects.get(pk=run_id)
        tasks = list(AgentTask.objects.filter(job_run=run).order_by("attempt", "job_source__name"))
        catalogue = {one.task_id: one for one in BackupSnapshot.objects.all()}
        found = tuple(
            Attempt(
                status=task.status, failure_class=task.failure_class, code=task.error_code,
                complete=catalogue[task.pk].complete if task.pk in catalogue else None,
            )
            for task in tasks
        )  # fmt: skip
        assert found == self.attempts, [(task.error_message, task.details) for task in tasks]
        is_open = run.status in UNFINISHED
        assert (run.status, run.files_skipped, run.completed_at is None) == (self.run, self.skipped, is_open)
        saved = {path.name for path in (repository / "snapshots").iterdir()}
        known = {one.engine_id for one in catalogue.values()}
        assert known <= saved
        assert len(saved - known) == self.orphans
        assert is_open or not locks(repository)
        self._check_page(run, tasks, people)

    def _check_page(self, run: BackupJobRun, tasks: list[AgentTask], people: Client) -> None:
        page = people.get(reverse("admin:jobs_backupjobrun_change", args=[run.pk])).text
        is_live = int(run.status in UNFINISHED)
        assert f'data-live="{is_live}" data-state="{run.get_status_display()}"' in page
        for task in AgentTask.objects.filter(job_run=run).latest_attempts():
            told = [task.error_code, task.backup_id_in_repository and f'title="{task.backup_id_in_repository}"']
            told += [f"at least {task.files_skipped}" if task.files_skipped else ""]
            assert [one for one in told if one and one not in page] == []
        assert [words for words in self.says if words not in page] == []
