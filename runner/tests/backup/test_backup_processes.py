"""Whole runners that do tasks: against the stand-in of the API, with signals and the kill that nobody can catch."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from agentstore_runner.claiming import Exit
from harness import Process
from lab import BACKEND_KEY, PASSWORD, Lab, wait_for
from standin import Row, StandIn
from test_work import CANCEL

pytestmark = pytest.mark.lengthy
Launch = Callable[..., Process]


@pytest.fixture
def tasks(launch: Launch, lab: Lab) -> Callable[[], Process]:
    environ = {name: lab.environ[name] for name in ("AGENTSTORE_RUNNER_CONFIG", "RESTIC_CACHE_DIR")}
    return lambda: launch("run", "--once", "--kinds", "", **environ)


def slow(lab: Lab, server: StandIn) -> Row:
    lab.fill(a=20_000_000)
    return server.add_task(spec=lab.backup(limit_upload_kib=200))


def works(server: StandIn, row: Row) -> None:
    """Wait until restic itself has told of its work."""
    server.until(lambda: any((beat.get("progress") or {}).get("phase") == "backing up" for beat in row.beats))


def restic_processes(lab: Lab) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RESTIC_REPOSITORY={lab.repository}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_a_backup_and_its_restore_go_through_the_whole_protocol_without_a_secret(
    server: StandIn, lab: Lab, tasks: Callable[[], Process]
) -> None:
    content = lab.fill(a=5000, b=10)
    backup = server.add_task(spec=lab.backup())
    first = tasks()
    assert first.code() == Exit.OK, first.log
    snapshot = backup.result["backup_id_in_repository"]
    restore = server.add_task("restore", spec=lab.restore(snapshot, lab.folder / "target"))
    second = tasks()
    assert second.code() == Exit.OK, second.log

    assert (backup.status, restore.status) == ("succeeded", "succeeded")
    assert backup.claim["capabilities"]
    assert {"backup", "restore"} == set(backup.claim["task_types"])
    target = lab.folder / "target" / str(lab.source).lstrip("/")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == content
    said = first.log + second.log + json.dumps([call.body for call in server.calls])
    assert PASSWORD not in said
    assert BACKEND_KEY not in said


def test_a_cancel_in_the_middle_is_confirmed_and_leaves_no_lock(
    server: StandIn, lab: Lab, tasks: Callable[[], Process]
) -> None:
    row = slow(lab, server)
    process = tasks()
    works(server, row)
    row.cancel = CANCEL

    assert process.code() == Exit.NOT_DONE
    assert (row.status, row.result["error_code"]) == ("cancelled", "cancelled_by_admin")
    assert (lab.locks(), restic_processes(lab)) == ([], [])


def test_a_stop_of_the_runner_interrupts_restic_once_and_is_reported(
    server: StandIn, lab: Lab, tasks: Callable[[], Process]
) -> None:
    row = slow(lab, server)
    process = tasks()
    works(server, row)
    process.popen.send_signal(signal.SIGTERM)

    assert process.code() == 128 + signal.SIGTERM
    assert (row.result["failure_class"], row.result["error_code"]) == ("interrupted", "agent_shutdown")
    assert (lab.locks(), restic_processes(lab)) == ([], [])


def test_restic_ends_with_a_runner_that_is_killed_and_the_next_one_reports_it(
    server: StandIn, lab: Lab, tasks: Callable[[], Process]
) -> None:
    row = slow(lab, server)
    process = tasks()
    works(server, row)
    assert restic_processes(lab)
    process.popen.kill()
    process.popen.wait()

    wait_for(lambda: not restic_processes(lab))
    assert lab.locks() == []
    assert json.loads(lab.restic("snapshots", "--json")) == []
    tasks().code()
    assert (row.status, row.result["error_code"]) == ("failed", "agent_shutdown")
