"""Real backups with the restic that is installed: what is reported is what happened."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner import clock
from agentstore_runner.backup import child
from lab import BACKEND_KEY, PASSWORD, Bell, Lab, Waiter, at_work

pytestmark = pytest.mark.lengthy


@pytest.fixture
def unprivileged(lab: Lab) -> None:
    """Make restic meet permissions, also where the tests run as root."""
    if os.geteuid() != 0:
        return
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "restic"]
    tried = shutil.which("setpriv") and subprocess.run([*command, "version"], capture_output=True, check=False)
    if not tried or tried.returncode != 0:
        pytest.skip("these tests run as root, and setpriv cannot take root's privileges away here")
    lab.wrap(f'exec {" ".join(command)} "$@"')


def test_a_backup_is_saved_with_its_host_its_tags_and_true_counters(lab: Lab) -> None:
    content = lab.fill(a=5000, b=70_000)
    lab.fill(**{"c.tmp": 10, "#d": 10, "$HOME": 10})
    spec = lab.backup(excludes=["*.tmp", "#d", "$HOME"])

    report = lab.do("backup", spec)

    assert (report.status, report.error, report.failure_class, report.error_code) == ("succeeded", None, None, None)
    assert report.counters["bytes_processed"] == sum(map(len, content.values()))
    assert (report.counters["files_processed"], report.counters["files_skipped"]) == (2, 0)
    assert report.counters["bytes_written"] > 0
    (snapshot,) = json.loads(lab.restic("snapshots", "--json"))
    assert (report.snapshot, snapshot["hostname"]) == (snapshot["id"], "web-1")
    assert set(snapshot["tags"]) == set(spec["settings"]["tags"])
    config = json.loads(lab.restic("cat", "config"))
    assert report.details["engine_repository_id"] == config["id"]
    assert lab.locks() == []


def test_no_secret_reaches_the_report_the_desk_or_the_list_of_processes(lab: Lab) -> None:
    seen = lab.folder / "seen"
    lab.wrap(f'echo "$@" >> {seen}\nenv >> {seen}.env')
    lab.environ["UAT_SHOP_PASSWORD"] = "of-the-tests-only"
    lab.fill(**{PASSWORD: 10})
    bell = Bell()

    report = lab.do("backup", lab.backup(), bell)

    assert report.status == "succeeded"
    assert PASSWORD not in seen.read_text() + str(report.details) + str(bell.measured)
    environment = Path(f"{seen}.env").read_text()
    assert BACKEND_KEY in environment
    assert PASSWORD not in environment
    assert "of-the-tests-only" not in environment
    assert report.redactor is not None
    assert PASSWORD not in report.redactor.text(f"open {PASSWORD}: {BACKEND_KEY}")
    assert BACKEND_KEY not in report.redactor.text(f"open {PASSWORD}: {BACKEND_KEY}")


@pytest.mark.parametrize(("tell", "told"), [("full", "locked"), ("none", "")])
def test_what_cannot_be_read_makes_a_partial_failure_with_the_items(
    lab: Lab, unprivileged: None, tell: str, told: str
) -> None:
    lab.fill(a=10, locked=10)
    (lab.source / "locked").chmod(0)

    report = lab.do("backup", lab.backup(tell=tell))

    assert (report.status, report.failure_class, report.error_code) == (
        "partial_failure",
        "source",
        "source_unreadable",
    )
    assert (report.counters["files_skipped"], report.counters["files_processed"]) == (1, 1)
    assert report.snapshot is not None
    assert len(report.snapshot) == 64
    (item,) = report.details["items"]
    assert item["path"].endswith(told)
    assert "locked" in item["path"] or tell == "none"


def test_a_source_that_cannot_be_read_at_all_is_a_failure_although_there_is_a_snapshot(
    lab: Lab, unprivileged: None
) -> None:
    lab.source.chmod(0)

    report = lab.do("backup", lab.backup())
    lab.source.chmod(0o700)

    assert (report.status, report.error_code) == ("failed", "source_unreadable")


@pytest.mark.parametrize(("missing_only", "status", "skipped"), [(False, "partial_failure", 1), (True, "failed", 1)])
def test_a_path_that_does_not_exist_is_never_overlooked(
    lab: Lab, missing_only: bool, status: str, skipped: int
) -> None:
    lab.fill(a=10)
    gone = lab.folder / "gone"

    report = lab.do("backup", lab.backup(*([gone] if missing_only else [lab.source, gone])))

    assert (report.status, report.error_code) == (status, "source_missing")
    assert (report.counters["files_skipped"], report.details["missing"]) == (skipped, [str(gone)])


def test_an_empty_source_is_a_failure_unless_it_may_be_empty(lab: Lab) -> None:
    assert lab.do("backup", lab.backup()).error_code == "empty_source"
    assert lab.do("backup", lab.backup(allow_empty=True)).status == "succeeded"


def test_a_source_that_is_a_link_is_followed_and_a_broken_one_is_missing(lab: Lab) -> None:
    lab.fill(a=10)
    link, broken = lab.folder / "link", lab.folder / "broken"
    link.symlink_to(lab.source)
    broken.symlink_to(lab.folder / "nowhere")

    assert lab.do("backup", lab.backup(link)).counters["files_processed"] == 1
    assert lab.do("backup", lab.backup(broken)).error_code == "source_missing"


@pytest.mark.parametrize(
    ("repository", "credential", "failure_class", "code"),
    [
        ({}, 'password = "another-password"', "configuration", "wrong_password"),
        ({"path": "/nonexistent/repository"}, None, "configuration", "repository_missing"),
        ({"path": "rest:http://127.0.0.1:9/"}, None, "transient", "backend_unreachable"),
        ({"expected_id": "ab" * 32}, None, "configuration", "repository_changed"),
        (
            {"path": "/nonexistent/x", "expected_id": "ab" * 32, "init_if_missing": True},
            None,
            "configuration",
            "repository_missing",
        ),
        ({"credential_ref": "unknown"}, None, "configuration", "credential_missing"),
    ],
)
def test_a_repository_that_cannot_be_used_is_named(
    lab: Lab, repository: dict[str, Any], credential: str | None, failure_class: str, code: str
) -> None:
    lab.fill(a=10)
    if credential is not None:
        lab.credential("main-repo", credential)

    report = lab.do("backup", lab.backup(repository=repository))

    assert (report.status, report.failure_class, report.error_code) == ("failed", failure_class, code)
    assert report.error


def test_a_missing_repository_is_made_if_that_is_wanted(lab: Lab) -> None:
    lab.fill(a=10)
    shutil.rmtree(lab.repository)

    report = lab.do("backup", lab.backup(repository={"init_if_missing": True}))

    assert report.status == "succeeded"
    assert report.details["engine_repository_id"] == json.loads(lab.restic("cat", "config"))["id"]


def test_a_command_before_the_work_may_make_what_is_backed_up(lab: Lab) -> None:
    dump = lab.folder / "dump"
    lab.configure(
        f'[hooks.dump]\ncommand = ["sh", "-c", "echo data > {dump}"]\n'
        f'[hooks.clean]\ncommand = ["sh", "-c", "rm {dump}; exit 3"]\n'
    )

    report = lab.do("backup", lab.backup(dump, hooks={"before": ["dump"], "after": ["clean"]}))

    assert (report.status, report.counters["files_processed"], dump.exists()) == ("succeeded", 1, False)
    assert [one["name"] for one in report.details["hooks"]] == ["dump", "clean"]
    assert "exit code 3" in report.details["warnings"][0]


def test_an_unknown_parent_is_dropped_and_a_shrunken_source_is_told(lab: Lab) -> None:
    lab.fill(a=10)
    spec = lab.backup(parent="deadbeef", previous={"files": 10, "bytes": 10}, shrink_warn_percent=50)

    report = lab.do("backup", spec)

    assert report.status == "succeeded"
    assert [warning.split()[0] + warning.split()[-1] for warning in report.details["warnings"]] == [
        "theone",
        "thebackup",
    ]


def test_a_full_disk_is_said_and_leaves_a_usable_repository(lab: Lab, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(small)], capture_output=True, check=False, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system may be mounted here: {mounted.stderr.strip()}")
    try:
        lab.repository = shutil.copytree(lab.repository, small / "repository")
        lab.fill(a=12_000_000)

        report = lab.do("backup", lab.backup())

        assert (report.status, report.failure_class, report.error_code) == ("failed", "resource", "no_space")
        assert lab.locks() == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    ("reason", "status", "failure_class", "code"),
    [("cancel", "cancelled", None, "cancelled_by_admin"), ("shutdown", "failed", "interrupted", "agent_shutdown")],
)
def test_a_backup_that_is_stopped_in_the_middle_leaves_no_lock_and_no_snapshot(
    lab: Lab, reason: str, status: str, failure_class: str | None, code: str
) -> None:
    lab.fill(a=20_000_000)

    report = lab.do("backup", lab.backup(limit_upload_kib=200), Bell(at_work, reason))

    assert (report.status, report.failure_class, report.error_code) == (status, failure_class, code)
    assert (report.snapshot, lab.locks()) == (None, [])


def test_an_engine_that_had_to_be_killed_leaves_no_lock(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.5)
    lab.fill(a=20_000_000)
    pid = lab.folder / "pid"
    lab.wrap(f'[ "$1" != backup ] || echo $$ > {pid}')

    def hangs_with_its_lock(bell: Bell) -> bool:
        if not lab.locks():
            return False
        os.kill(int(pid.read_text()), signal.SIGSTOP)
        return True

    report = lab.do("backup", lab.backup(limit_upload_kib=100), Bell(hangs_with_its_lock))

    assert (report.status, report.error_code) == ("cancelled", "cancelled_by_admin")
    assert (report.snapshot, lab.locks()) == (None, [])


def test_an_engine_that_hangs_is_ended_and_said_to_have_stalled(lab: Lab) -> None:
    lab.fill(a=10)
    lab.wrap('[ "$1" != backup ] || exec sleep 600')

    report = lab.do("backup", lab.backup(stall_s=1))

    assert (report.status, report.failure_class, report.error_code) == ("failed", "timeout", "stalled")


@contextmanager
def holding_a_lock(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    """A backup of somebody else that goes on for longer than the test."""
    lab.fill(a=20_000_000)
    environ = {**lab.environ, "RESTIC_PASSWORD": PASSWORD, "RESTIC_REPOSITORY": str(lab.repository)}
    command = ["restic", "backup", "--limit-upload=100", str(lab.source)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            lab.wait_for_lock()
            yield process
        finally:
            process.kill()  # one that is stopped would never end


def prune(lab: Lab) -> dict[str, Any]:
    return {"version": 1, "repository": lab.located(), "prune": True, "lock_wait_s": 5}


def test_a_lock_of_a_living_process_is_waited_for_left_alone_and_reported(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding_a_lock(lab) as process:
        process.send_signal(signal.SIGSTOP)
        bell = Waiter()
        monkeypatch.setattr(clock, "now", bell.now)

        report = lab.do("backup.maintenance", prune(lab), bell)

        assert (report.status, report.failure_class, report.details["code"]) == (
            "failed",
            "locked",
            "repository_locked",
        )
        assert any(progress["phase"] == "waiting for a lock" for progress, _ in bell.measured)
        assert len(lab.locks()) == 1


def test_a_stale_lock_of_this_machine_does_not_stop_maintenance(lab: Lab) -> None:
    with holding_a_lock(lab) as process:
        process.kill()

    report = lab.do("backup.maintenance", prune(lab))

    assert (report.status, lab.locks()) == ("done", [])
