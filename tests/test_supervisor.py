"""The whole installation as one command."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentstore.config import REPOSITORY
from agentstore.embedded_postgres.place import Place
from tests.test_embedded_postgres import ending, processes


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Share one installation: the first supervisor migrates it."""
    with tempfile.TemporaryDirectory(prefix="ags-") as folder:
        yield Path(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def supervisor(home: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    environment = {
        "PATH": os.environ["PATH"],
        "AGENTSTORE_HOME": str(home),
        "PORT": str(port),
        "AGENTSTORE_WORKERS": "1",
    }
    command = [sys.executable, "-m", "agentstore.supervisor"]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        try:
            yield child
        finally:
            child.kill()
            child.wait()
            with Place.of(home).lock("guard") as guard:
                guard.take()  # after a kill: until the server has stopped
            errors.seek(0)
            print(errors.read())


def child_with(process: "subprocess.Popen[str]", word: str) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return next(int(pid) for pid in children if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_everything(home: Path, number: signal.Signals) -> None:
    port = free_port()
    with supervisor(home, port) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"agentstore is at http://127.0.0.1:{port}/ (Ctrl-C stops it)\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            assert json.load(answer).items() >= {"database": "ok", "migrations": "ok"}.items()
        with ending(child_with(running, "granian"), child_with(running, "maintain")):
            running.send_signal(number)
        assert running.wait() == 0
    assert not processes(str(home / "postgres"))


def test_it_ends_with_an_error_when_a_part_ends_by_itself(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with supervisor(home, free_port()) as running:
        assert running.stdout is not None
        running.stdout.readline()
        with ending(child_with(running, "granian")):
            os.kill(child_with(running, "maintain"), signal.SIGKILL)
        assert running.wait() == 1
    assert "The maintenance loop ended by itself" in capfd.readouterr().out


def test_its_parts_do_not_outlive_it(home: Path) -> None:
    with supervisor(home, free_port()) as running:
        assert running.stdout is not None
        running.stdout.readline()
        with ending(child_with(running, "granian"), child_with(running, "maintain")):
            running.kill()


def test_a_port_that_is_taken_is_refused_instead_of_shared(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, supervisor(home, other.getsockname()[1]) as running:
        assert running.wait() == 1
    assert "set HOST or PORT" in capfd.readouterr().out
