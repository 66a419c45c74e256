"""The demo, for real: all processes, a browser, two jobs, the evidence opened over HTTP, and nothing left behind."""

import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from agentstore_runner.uat import chromium

REPOSITORY = Path(__file__).resolve().parent.parent
DEADLINE = 240  # seconds; only a demo that hangs needs them

needs_chromium = pytest.mark.skipif(chromium.find(os.environ) is None, reason=f"no Chromium: {chromium.INSTALL_HINT}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def demo(home: Path, port: int, *words: str, **variables: str) -> subprocess.Popen[str]:
    (home / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")}
    # The browser's processes, too, carry the home's path in their environment: that is how leftovers are found.
    own = {"AGENTSTORE_HOME": str(home), "TMPDIR": str(home / "tmp"), "PORT": str(port), **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", *words],
        cwd=REPOSITORY,
        env={**kept, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(home: Path) -> dict[int, str]:
    """Return ids and command lines of processes that have the home's path in their arguments or environment."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if os.fsencode(home) in words + variables:
            found[int(process.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], DEADLINE)
    os.close(descriptor)
    assert ended


@needs_chromium
def test_the_demo_runs_both_jobs_and_its_evidence_can_be_opened_unchanged(home: Path, port: int) -> None:
    process = demo(home, port, "--once")
    said, told = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, told
    browser, api, *kept = (json.loads(line) for line in said.splitlines())
    assert {**browser, "job": ""} == {
        "job": "", "status": "done", "verdict": "pass", "checks": 2, "artifacts": 1, "sha256_ok": True,
    }  # fmt: skip
    assert {**api, "job": ""} == {
        "job": "", "status": "done", "verdict": "risk", "checks": 3, "artifacts": 0, "sha256_ok": True,
    }  # fmt: skip
    files = {"backup": "succeeded", "restore": "succeeded", "files": 4, "identical": True}
    assert kept == ([files] if shutil.which("restic") else [])
    sent = set(re.findall(r"uploaded \S+, sha256 ([0-9a-f]{64})", (home / "demo" / "runner.log").read_text()))
    files = [path for path in (home / "artifacts").rglob("*") if path.is_file()]
    stored = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert len(sent) == 1
    assert sent <= stored
    assert processes_of(home) == {}


@needs_chromium
def test_the_demo_serves_beside_a_taken_port_until_ctrl_c_and_leaves_nothing_running(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        process = demo(home, taken)
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if "Look around" in line:
                break
        process.send_signal(signal.SIGINT)
        said, rest = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, told + rest
    assert f"Port {taken} is taken" in told
    assert said == ""
    assert "Traceback" not in told + rest
    assert processes_of(home) == {}
    for name in ("admin-password", "runner.token"):
        assert stat.S_IMODE((home / "demo" / name).stat().st_mode) == 0o600
    assert (home / "demo" / "admin-password").read_text() in told


@pytest.mark.soak
@needs_chromium
def test_a_demo_that_is_killed_takes_its_processes_along_and_the_next_one_starts_afresh(home: Path, port: int) -> None:
    killed = demo(home, port)
    assert killed.stderr is not None
    told = ""
    for line in killed.stderr:
        told += line
        if ": running" in line:
            break
    parts = processes_of(home)
    killed.kill()
    killed.communicate()
    for pid in parts:
        wait_for_end(pid)
    assert processes_of(home) == {}, told

    process = demo(home, port, "--no-serve")
    said, told = process.communicate(timeout=DEADLINE)

    assert (process.returncode, said) == (0, ""), told
    assert (home / "demo" / "runner.log").read_text().count(": claimed: uat.quick-task") == 2
    assert processes_of(home) == {}


@pytest.mark.soak
def test_without_chromium_the_demo_says_how_to_get_it_and_runs_the_api_job(home: Path, port: int) -> None:
    process = demo(home, port, "--once", AGENTSTORE_CHROMIUM="/nowhere/chromium")
    said, told = process.communicate(timeout=DEADLINE)

    assert process.returncode == 1, told
    assert chromium.INSTALL_HINT in told
    assert [json.loads(line).get("verdict") for line in said.splitlines() if "verdict" in line] == ["risk"]
    assert processes_of(home) == {}


def test_the_demo_refuses_a_production_installation_in_one_sentence(home: Path, port: int) -> None:
    production = {"PRODUCTION": "1", "SECRET_KEY": "0123456789abcdef" * 4, "ALLOWED_HOSTS": "jobs.example.org"}
    process = demo(home, port, "--once", **production)
    said, told = process.communicate(timeout=DEADLINE)

    assert (process.returncode, said) == (1, "")
    assert told == "PRODUCTION is set: the demo makes a login and agents, which belong in no real installation.\n"


def test_a_second_demo_of_one_home_is_refused_in_one_sentence(home: Path, port: int) -> None:
    (home / "demo").mkdir(exist_ok=True)
    with (home / "demo" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = demo(home, port, "--once")
        said, told = process.communicate(timeout=DEADLINE)

    assert (process.returncode, said) == (1, "")
    assert told == f"A demo runs already with {home}: stop it, or set AGENTSTORE_HOME.\n"
