"""What becomes of a result: judged, repaired, cut, redacted, and followed by a retry where its class asks for one."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils.dateparse import parse_datetime

from jobs.engine.failure_classes import RULES, FailureClass
from jobs.models import AuditEvent, JobKind
from jobs.services import governance
from jobs.services.reports import CUT, MAX_ERROR, MAX_RESULT_BYTES
from tests.api.runner_client import JOBS, TASKS, Held, Queue, Runner


@pytest.mark.parametrize("failure_class", FailureClass)
def test_the_failure_class_decides_whether_an_attempt_follows(
    runner: Runner, queue: Queue, failure_class: FailureClass
) -> None:
    stored = FailureClass.INTERNAL if failure_class is FailureClass.LOST else failure_class
    held = queue.held(runner)
    answer = held.finish(status="failed", error="no", failure_class=failure_class).json()
    row = held.stored()
    assert (answer["status"], row.failure_class) == ("failed", stored)
    if not RULES[stored].delays:
        assert answer["retry"] is None
        return
    retry = queue.model.objects.get(pk=answer["retry"]["id"])
    assert (retry.attempt, retry.root_id) == (2, row.root_id)
    assert (parse_datetime(answer["retry"]["not_before"] or "") or None) == retry.not_before


@pytest.mark.parametrize("word", ["lost", "no_such_class", "", "TRANSIENT", "x" * 5000])
def test_a_class_that_the_server_does_not_assign_is_stored_as_internal(runner: Runner, queue: Queue, word: str) -> None:
    held = queue.held(runner)
    assert held.finish(status="failed", failure_class=word).status_code == 200
    row = held.stored()
    assert row.failure_class == "internal"
    assert (row.details or {}).get("reported_class", "")[:100] == word[:100]


def test_a_failure_without_a_reason_gets_one(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    held.finish(status="failed")
    row = held.stored()
    assert (row.failure_class, getattr(row, row.lifecycle.error)) == ("internal", "The runner gave no reason.")


def test_a_long_error_is_cut_with_a_mark(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    assert held.finish(status="failed", error="\N{SNOWMAN}" * 300_000).status_code == 200
    row = held.stored()
    error = getattr(row, row.lifecycle.error)
    assert (len(error), error[-len(CUT) :]) == (MAX_ERROR, CUT)


def test_results_that_are_too_large_are_refused_for_their_content_and_the_work_can_still_end(runner: Runner) -> None:
    held = JOBS.held(runner)
    answer = held.finish(results={"x": "y" * MAX_RESULT_BYTES})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/results")
    assert held.finish(status="failed", failure_class="internal", error="too large").status_code == 200


def test_a_secret_in_a_result_is_redacted_and_noted(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    held.finish(status="failed", error="Authorization: Bearer abcdefghijklmnop0123", details={"password": "hunter2!"})
    row = held.stored()
    kept = json.dumps([row.details, getattr(row, row.lifecycle.error)])
    assert "hunter2!" not in kept
    assert "abcdefghijklmnop0123" not in kept
    assert AuditEvent.objects.filter(subject_id=row.pk, tag="unredacted").count() == 1


def test_done_after_a_cancel_is_stored_as_it_happened_and_noted(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    governance.cancel(queue.model.objects.all(), held.row.pk, by="ada", reason="stop")
    assert held.finish().json()["status"] == queue.good
    assert AuditEvent.objects.filter(subject_id=held.row.pk, tag="done_after_cancel").count() == 1


def test_a_failure_after_a_cancel_is_never_retried(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    governance.cancel(queue.model.objects.all(), held.row.pk, by="ada", reason="stop")
    assert held.finish(status="failed", failure_class="transient").json()["retry"] is None


# -- jobs of a kind whose results the server judges ----------------------------------------


@pytest.fixture
def check_run(runner: Runner) -> Held:
    JobKind.objects.get_or_create(name="uat.quick-task")
    row = JOBS.make(runner.agent)
    JOBS.model.objects.filter(pk=row.pk).update(kind="uat.quick-task")
    body = runner.claim_body(JOBS, kinds=["uat.quick-task"])
    assert runner.send("POST", "jobs/claim", body).status_code == 201
    return Held(queue=JOBS, runner=runner, row=row, claim=body)


@pytest.mark.parametrize("results", [None, {}, {"schema": "x"}, {"checks": []}, {"checks": 5}, {"checks": [None]}])
def test_results_that_cannot_be_judged_are_refused_and_the_job_stays_held(check_run: Held, results: Any) -> None:
    answer = check_run.finish(results=results)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert all(fault["pointer"].startswith("/results") for fault in answer.json()["errors"])
    assert check_run.stored().status == "running"
    assert check_run.finish(status="failed", error="refused").status_code == 200


# -- tasks ----------------------------------------

COUNTERS = {"bytes_processed": 10, "bytes_written": 5, "files_processed": 2, "files_skipped": 0}


def counters(held: Held) -> dict[str, int]:
    row = held.stored()
    return {name: getattr(row, name) for name in COUNTERS}


def test_the_envelope_of_a_task_carries_its_payload(runner: Runner) -> None:
    held = TASKS.held(runner, task_payload={"version": 1, "settings": {"max_runtime_s": 60}})
    envelope = held.repeat_claim().json()
    assert (envelope["task_type"], envelope["payload"]["version"]) == ("backup", 1)
    start, end = (parse_datetime(envelope[name]) for name in ("server_time", "deadline"))
    assert start is not None
    assert end is not None
    assert (end - start).total_seconds() <= 60


def test_starting_a_task_is_noted_once(runner: Runner) -> None:
    held = TASKS.held(runner)
    assert held.stored().status == "claimed"
    assert held.start().status_code == 200
    first = held.stored()
    assert (first.status, first.started_at is not None) == ("running", True)
    assert held.start().status_code == 200
    assert held.stored().started_at == first.started_at


def test_counters_never_shrink_in_a_heartbeat_and_the_result_replaces_them(runner: Runner) -> None:
    held = TASKS.held(runner)
    held.beat(counters=COUNTERS)
    held.beat(counters={"bytes_processed": 3, "files_processed": 9})
    assert counters(held) == COUNTERS | {"files_processed": 9}
    held.beat()
    assert counters(held) == COUNTERS | {"files_processed": 9}
    held.finish(counters={"bytes_processed": 1, "files_skipped": 0})
    assert counters(held) == COUNTERS | {"files_processed": 9, "bytes_processed": 1}


def test_the_largest_counter_is_stored(runner: Runner) -> None:
    held = TASKS.held(runner)
    assert held.beat(counters={"bytes_written": 2**63 - 1}).status_code == 200
    assert held.stored().bytes_written == 2**63 - 1


def test_a_task_that_skipped_files_has_not_succeeded(runner: Runner) -> None:
    held = TASKS.held(runner)
    answer = held.finish(counters={"files_skipped": 1})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/counters/files_skipped")
    assert held.finish(status="partial_failure", counters={"files_skipped": 1}).status_code == 200
    assert (held.stored().status, held.stored().failure_class) == ("partial_failure", "internal")


def test_files_that_a_heartbeat_counted_as_skipped_exclude_success_too(runner: Runner) -> None:
    held = TASKS.held(runner)
    held.beat(counters={"files_skipped": 4})
    answer = held.finish()
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/counters/files_skipped")
    assert held.finish(counters={"files_skipped": 0}).json()["status"] == "succeeded"


def test_a_backup_that_succeeded_names_its_snapshot_or_says_that_nothing_changed(runner: Runner) -> None:
    held = TASKS.held(runner)
    answer = held.finish(backup_id_in_repository=None)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/backup_id_in_repository")
    assert held.finish(backup_id_in_repository=None, details={"unchanged_parent": "c4d9"}).status_code == 200


def test_a_restore_needs_no_snapshot(runner: Runner) -> None:
    row = TASKS.make(runner.agent)
    TASKS.model.objects.filter(pk=row.pk).update(task_type="restore")
    body = runner.claim_body(TASKS, task_types=["backup", "restore"])
    assert runner.send("POST", "tasks/claim", body).json()["task_type"] == "restore"
    held = Held(queue=TASKS, runner=runner, row=row, claim=body)
    assert held.finish(backup_id_in_repository=None).status_code == 200


def test_a_partial_failure_is_never_retried_by_itself(runner: Runner) -> None:
    answer = TASKS.held(runner).finish(status="partial_failure", failure_class="transient").json()
    assert (answer["status"], answer["retry"]) == ("partial_failure", None)


def test_no_path_of_this_machine_is_in_an_answer(runner: Runner) -> None:
    answer = runner.send("POST", "jobs/claim", b"{")
    assert str(Path(__file__).parents[2]) not in answer.content.decode()
