"""Faults in the middle of a real backup: a runner, a server or an agent goes away, and every state stays true."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from jobs.models import AgentTask, AuditEvent, BackupJobRun, Schedule, Uptime
from jobs.services import schedule_registry
from tests.backups.machines import (
    DONE,
    LONG_AGO,
    WAITS,
    Attempt,
    Machine,
    Truth,
    database_url,
    define,
    hurry,
    is_alive,
    launch,
    locks,
    reap,
)
from tests.outages.installation import Web, maintenance, wait_until, web

pytestmark = [pytest.mark.lengthy, pytest.mark.django_db(transaction=True)]
LOST = Attempt(status="failed", failure_class="lost", code="heartbeat_lost")
RUNS = Attempt(status="running")


@pytest.fixture
def machine(new_machine: Callable[[str], Machine]) -> Machine:
    """A machine with something to back up."""
    made = new_machine("web-1")
    made.fill(a=3_000_000)  # one pack: restic 0.14 removes no lock while it writes two
    return made


def kill(server: Web) -> None:
    """End a web server at once, with its workers."""
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()


def test_a_cancel_in_mid_run_ends_restic_without_a_lock_and_without_a_snapshot(
    machine: Machine, server: Web, people: Client
) -> None:
    machine.slow.touch()
    run = launch(define(machine))
    runner = machine.start(server.port)
    engine = machine.engine()
    Truth(run="running", attempts=(RUNS,)).check(run, people, machine.repository)

    form = {"_form_submitted": "on", "reason": "wrong night"}
    people.post(reverse("admin:jobs_backupjobrun_cancel", args=[run]), form)
    Truth(run="running", attempts=(RUNS,), says=("A cancel was requested by ada.",)).check(
        run, people, machine.repository
    )

    assert runner.wait(120) == 1
    assert not is_alive(engine)
    gone = Attempt(status="cancelled", code="cancelled_by_admin")
    Truth(run="cancelled", attempts=(gone,), says=("wrong night",)).check(run, people, machine.repository)


def test_restic_dies_with_its_killed_runner_and_the_next_one_does_the_backup(
    machine: Machine, server: Web, people: Client
) -> None:
    machine.slow.touch()
    run = launch(define(machine))
    runner = machine.start(server.port)
    engine = machine.engine()

    runner.kill()
    runner.wait()
    wait_until(lambda: not is_alive(engine), "restic ends")
    assert locks(machine.repository) == []

    machine.slow.unlink()
    assert machine.work(server.port) == 0, "it reports what its predecessor left, and does the retry"
    killed = Attempt(status="failed", failure_class="interrupted", code="agent_shutdown")
    Truth(run="succeeded", attempts=(killed, DONE)).check(run, people, machine.repository)


def test_a_server_that_is_killed_in_mid_run_costs_the_run_nothing(machine: Machine, home: Path, people: Client) -> None:
    machine.held.touch()
    run = launch(define(machine))
    with web(home, database_url(), workers=1) as before:
        runner = machine.start(before.port)
        machine.engine()
        kill(before)
    Truth(run="running", attempts=(RUNS,)).check(run, people, machine.repository)
    machine.held.unlink()
    wait_until(lambda: "not acknowledged" in machine.log, "the runner notices")

    with web(home, database_url(), workers=1, port=before.port):
        assert runner.wait(120) == 0
    Truth(run="succeeded", attempts=(DONE,)).check(run, people, machine.repository)


def test_the_late_result_of_an_agent_that_fell_silent_is_refused_and_its_retry_counts(
    machine: Machine, home: Path, people: Client
) -> None:
    machine.held.touch()
    run = launch(define(machine))
    with web(home, database_url(), workers=1) as before:
        runner = machine.start(before.port)
        machine.engine()
        kill(before)  # the agent is not heard
    assert reap(run) == 1
    assert reap(run) == 0
    Truth(run="running", attempts=(LOST, WAITS), says=("Tried again",)).check(run, people, machine.repository)

    machine.held.unlink()
    wait_until(lambda: "ended after" in machine.log, "the lost attempt ends")
    with web(home, database_url(), workers=1, port=before.port):
        assert runner.wait(120) == 4, "its report is kept on disk"
        late = AuditEvent.objects.get(tag="late_result")
        assert late.subject_id == AgentTask.objects.get(job_run=run, attempt=1).pk
        Truth(run="running", attempts=(LOST, WAITS), orphans=1).check(run, people, machine.repository)

        hurry(run)
        assert machine.work(before.port) == 0
    Truth(run="succeeded", attempts=(LOST, DONE), orphans=1).check(run, people, machine.repository)


def test_two_control_servers_launch_a_due_run_once_and_lose_and_finish_each_source_once(
    new_machine: Callable[[str], Machine], server: Web, home: Path, people: Client
) -> None:
    steady, fickle = new_machine("a-steady"), new_machine("b-fickle")
    for one in (steady, fickle):
        one.fill(a=3000)
    fickle.held.touch()
    schedule = schedule_registry.create_schedule(
        schedule_registry.BackupDefinition(
            name="nightly", backup_job=define(steady, fickle), expression="7 2 * * *"
        ), by="ada",
    )  # fmt: skip
    with ExitStack() as stack:
        second = stack.enter_context(web(home, database_url(), workers=1))
        for _ in range(2):
            stack.enter_context(maintenance(home, database_url()))
        Schedule.objects.update(settled_at=Now() - 48 * LONG_AGO, next_due_at=Now() - 47 * LONG_AGO)
        wait_until(BackupJobRun.objects.exists, "a loop launches the run")
        run = BackupJobRun.objects.get().pk
        runner = fickle.start(second.port)
        assert steady.work(server.port) == 0
        fickle.engine()
        runner.kill()
        runner.wait()
        # Both loops find it silent at the same time; silence before the start of the loops does not count.
        Uptime.objects.update(up_since=Now() - 2 * LONG_AGO)
        AgentTask.objects.filter(job_run=run, status="running").update(heartbeat_at=Now() - LONG_AGO)
        wait_until(AgentTask.objects.filter(job_run=run, attempt=2).exists, "the lost attempt is tried again")
        Truth(run="running", attempts=(DONE, LOST, WAITS)).check(run, people, steady.repository)

        fickle.held.unlink()
        hurry(run)
        assert fickle.work(server.port) == 0
        Truth(run="succeeded", attempts=(DONE, LOST, DONE), says=("2: 2 succeeded",)).check(
            run, people, steady.repository
        )
    assert schedule.slots.filter(outcome="enqueued").count() == 1
    assert BackupJobRun.objects.count() == 1
