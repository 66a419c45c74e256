"""A machine with restic, a configuration and a repository, for the handlers in this process."""

import os
import re
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentstore_runner.backup.backing_up import BackupHandler
from agentstore_runner.backup.maintaining import ListingHandler, MaintenanceHandler
from agentstore_runner.backup.restoring import RestoreHandler
from agentstore_runner.handlers import Handler, Report, Work, by_kind

PASSWORD = "correct-horse-battery"
BACKEND_KEY = "AKsecretsecretsecret"
INSTALL = "restic is not installed; on Debian: apt-get install restic"
LOCK = re.compile("[0-9a-f]{64}")


class Bell:
    """A desk that stops the work once a condition holds, and remembers what it was told."""

    def __init__(self, stop_when: Callable[["Bell"], bool] = lambda bell: False, reason: str = "cancel") -> None:
        self._stop_when = stop_when
        self._reason = reason
        self.measured: list[tuple[dict[str, Any], dict[str, int]]] = []
        self.logged: list[str] = []

    def stopped(self) -> str | None:
        return self._reason if self._stop_when(self) else None

    def wait(self, seconds: float) -> str | None:
        threading.Event().wait(min(seconds, 0.02))
        return self.stopped()

    def progress(self, done: int, total: int, title: str) -> None:
        self.logged.append(title)

    def measure(self, progress: Mapping[str, int | str], counters: Mapping[str, int]) -> None:
        self.measured.append((dict(progress), dict(counters)))

    def attach(self, path: Path, *, name: str, content_type: str) -> None:
        raise AssertionError("a backup attaches no file")

    def log(self, message: str) -> None:
        self.logged.append(message)


class Waiter(Bell):
    """A desk with a clock of its own, on which nothing takes time but to be patient for a second or longer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait(self, seconds: float) -> str | None:
        self._now += seconds if seconds >= 1 else 0
        return super().wait(seconds)


def at_work(bell: Bell) -> bool:
    """Say whether restic has told of its work."""
    return any(progress["phase"] in ("backing up", "restoring") for progress, _ in bell.measured)


class Lab:
    """One machine; `restic` runs the engine as its administrator would."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder = folder
        self.repository = repository
        self.config = folder / "config"
        self.source = folder / "source"
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            "AGENTSTORE_RUNNER_CONFIG": str(self.config),
            "RESTIC_CACHE_DIR": str(folder / "cache"),
        }
        self.source.mkdir()
        self.configure()
        self.credential("main-repo", f'password = "{PASSWORD}"\n[environment]\nAWS_ACCESS_KEY_ID = "{BACKEND_KEY}"\n')

    def configure(self, text: str = "") -> None:
        self.config.mkdir(exist_ok=True)
        file = self.config / "backups.toml"
        file.write_text(text)
        file.chmod(0o600)

    def wrap(self, script: str) -> None:
        """Let the handlers meet a restic that runs this shell script first."""
        wrapper = self.folder / "restic"
        wrapper.write_text(f'#!/bin/sh\n{script}\nexec restic "$@"\n')
        wrapper.chmod(0o700)
        self.configure(f'restic = "{wrapper}"\n')

    def credential(self, name: str, text: str) -> Path:
        (self.config / "credentials").mkdir(exist_ok=True)
        file = self.config / "credentials" / f"{name}.toml"
        file.write_text(text)
        file.chmod(0o600)
        return file

    def fill(self, **sizes: int) -> dict[str, bytes]:
        content = {name: os.urandom(size) for name, size in sizes.items()}
        for name, data in content.items():
            (self.source / name).write_bytes(data)
        return content

    def located(self, **more: Any) -> dict[str, Any]:
        return {"engine": "restic", "path": str(self.repository), "credential_ref": "main-repo", **more}

    def backup(self, *paths: Path, **settings: Any) -> dict[str, Any]:
        task_id = str(uuid.uuid4())
        hooks, tell = settings.pop("hooks", {}), settings.pop("tell", "full")
        return {
            "version": 1,
            "requires": [],
            "type": "backup",
            "task_id": task_id,
            "source": {
                "host": "web-1",
                "paths": [str(path) for path in paths or (self.source,)],
                "excludes": settings.pop("excludes", []),
            },
            "repository": self.located(**settings.pop("repository", {})),
            "parent_backup": settings.pop("parent", None),
            "settings": {"tags": ["job:j", f"task:{task_id}"], "lock_wait_s": 0, **settings},
            "report": {"progress_s": 1, "paths": tell},
            "hooks": hooks,
        }

    def restore(self, snapshot: str, target: Path | None, **restore: Any) -> dict[str, Any]:
        settings = restore.pop("settings", {})
        place = {"mode": "scratch"} if target is None else {"mode": "directory", "path": str(target)}
        return {
            "version": 1,
            "type": "restore",
            "task_id": "t",
            "repository": self.located(**restore.pop("repository", {})),
            "settings": settings,
            "report": {"progress_s": 1},
            "restore": {
                "backup_id_in_repository": snapshot,
                "target": place,
                "overwrite": "never",
                "verify": "content",
                **restore,
            },
        }

    def do(self, kind: str, spec: dict[str, Any], bell: Bell | None = None) -> Report:
        """Let the handler of a kind work, in a scratch folder that is empty again afterwards."""
        made: list[Handler] = [
            BackupHandler(environ=self.environ),
            RestoreHandler(environ=self.environ),
            MaintenanceHandler(environ=self.environ),
            ListingHandler(environ=self.environ),
        ]
        scratch = self.folder / f"scratch-{uuid.uuid4().hex}"
        scratch.mkdir()
        work = Work("id", "root", kind, spec, 1, 600.0, scratch)
        report = by_kind(made)[kind].run(work, bell or Bell())
        shutil.rmtree(scratch)
        return report

    def saved(self) -> str:
        """Back the source up by hand and return the snapshot."""
        before = set((self.repository / "snapshots").iterdir())
        self.restic("backup", "--host=web-1", str(self.source))
        (made,) = set((self.repository / "snapshots").iterdir()) - before
        return made.name

    def restic(self, *arguments: str) -> str:
        environ = {**self.environ, "RESTIC_PASSWORD": PASSWORD, "RESTIC_REPOSITORY": str(self.repository)}
        return subprocess.run(
            ["restic", *arguments], env=environ, check=True, capture_output=True, text=True
        ).stdout  # fmt: skip

    def wait_for_lock(self) -> None:
        wait_for(self.locks)

    def locks(self) -> list[str]:
        """Return the locks that hold; restic writes each under another name first."""
        return [path.name for path in (self.repository / "locks").iterdir() if LOCK.fullmatch(path.name)]


def wait_for(condition: Callable[[], Any]) -> None:
    """Wait for something that another process does; nothing that happens within half a minute fails."""
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "it never happened"
        threading.Event().wait(0.02)
