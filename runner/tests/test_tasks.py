"""Tasks beside jobs: the same care, the task's own words, and one of them at a time."""

import json
import uuid
from typing import Any

import pytest
from agentstore_runner.claiming import Exit
from agentstore_runner.handlers import Desk, Report, Work
from agentstore_runner.spool import Held, Spool
from agentstore_runner.tables import JOBS, TASKS
from harness import Runner, running
from standin import StandIn, refusal
from test_work import CANCEL, Given

SNAPSHOT = "ab" * 32
GOOD = Report("succeeded", counters={"files_processed": 3, "files_skipped": 0}, snapshot=SNAPSHOT, details={"x": 1})


def use(runner: Runner, work: Any) -> None:
    runner.task_handlers["backup"] = Given(work)


def test_a_task_is_claimed_started_measured_and_reported_in_its_own_words(server: StandIn, runner: Runner) -> None:
    row = server.add_task(spec={"version": 1})
    seen: list[Work] = []

    def work(work: Work, desk: Desk) -> Report:
        seen.append(work)
        desk.measure({"title": "etc", "files": 2}, {"files_processed": 2})
        server.until(lambda: row.beats and row.beats[-1].get("counters"))
        return GOOD

    use(runner, work)

    assert runner.run(capabilities=["backup.hooks"]) == Exit.OK
    assert row.claim["task_types"] == ["backup"]
    assert row.claim["capabilities"] == ["backup.hooks"]
    assert (seen[0].kind, seen[0].spec, row.started) == ("backup", {"version": 1}, 1)
    assert row.beats[-1] == {
        "claim_id": row.claim_id,
        "progress": {"title": "etc", "files": 2},
        "counters": {"files_processed": 2},
    }
    assert row.result == {
        "claim_id": row.claim_id,
        "status": "succeeded",
        "counters": {"files_processed": 3, "files_skipped": 0},
        "backup_id_in_repository": SNAPSHOT,
        "details": {"x": 1},
    }


def test_tasks_and_jobs_take_turns(server: StandIn, runner: Runner) -> None:
    rows = [server.add_task(), server.add_task(), server.add(), server.add()]
    order: list[str] = []

    def work(work: Work, desk: Desk) -> Report:
        order.append(work.kind)
        return GOOD if work.kind == "backup" else Report("done")

    use(runner, work)
    runner.handlers["test.echo"] = Given(work)
    ended = runner.start(once=False)
    server.until(lambda: all(row.status in ("done", "succeeded") for row in rows))
    runner.shutdown.request(15)

    ended()
    assert order == ["backup", "test.echo"] * 2


def test_a_task_of_another_process_does_not_keep_jobs_waiting(server: StandIn, runner: Runner) -> None:
    server.retry_after = "3600"
    server.add_task(status="running")
    use(runner, lambda work, desk: GOOD)
    job = server.add()

    assert runner.run() == Exit.OK
    assert job.status == "done"


def test_once_with_nothing_to_do_says_what_kept_it_from_work_and_forgets_both_claims(
    server: StandIn, runner: Runner
) -> None:
    use(runner, lambda work, desk: GOOD)

    assert runner.run() == Exit.OK
    server.add_task(status="running")
    assert runner.run() == Exit.REFUSED
    with Spool.opened(runner.state, server.url, runner.name) as spool:
        assert (spool.held(JOBS), spool.held(TASKS)) == (None, None)


def test_a_lost_answer_to_a_claim_costs_no_task(server: StandIn, runner: Runner) -> None:
    server.fail_next("claim", acts=True, how="drop")
    server.fail_next("start", acts=True, how="drop")
    row = server.add_task()
    use(runner, lambda work, desk: GOOD)

    assert runner.run() == Exit.OK
    assert (row.claims, row.status) == (1, "succeeded")


def test_a_task_that_is_gone_at_its_start_is_not_worked_on(server: StandIn, runner: Runner) -> None:
    row = server.add_task()
    server.fail_next(
        "start",
        acts=False,
        status=409,
        body=json.dumps({"code": "lease_lost"}).encode(),
        Content_Type="application/problem+json",
    )
    use(runner, lambda work, desk: pytest.fail("the handler was called"))

    assert runner.run() == Exit.LOST
    assert row.result is None


@pytest.mark.parametrize(
    ("cancel", "status", "code"), [(None, "failed", "agent_shutdown"), (CANCEL, "cancelled", "cancelled_by_admin")]
)
def test_a_task_that_an_earlier_process_left_is_reported(
    server: StandIn, runner: Runner, cancel: Any, status: str, code: str
) -> None:
    claim_id = str(uuid.uuid4())
    row = server.add_task(status="running", claim_id=claim_id, cancel=cancel)
    with Spool.opened(runner.state, server.url, runner.name) as spool:
        spool.hold(Held(claim_id, "", job_id=row.id, table="tasks"))
    use(runner, lambda work, desk: GOOD)

    runner.run()

    assert (row.status, row.result["error_code"]) == (status, code)


def test_a_cancelled_task_says_so_with_its_code(server: StandIn, runner: Runner) -> None:
    row = server.add_task()

    def work(work: Work, desk: Desk) -> Report:
        desk.wait(600)
        return Report("cancelled", details={"code": "cancelled_by_admin"})

    use(runner, work)
    ended = runner.start()
    running(server, row)
    row.cancel = CANCEL

    assert ended() == Exit.NOT_DONE
    assert (row.status, row.result["error_code"]) == ("cancelled", "cancelled_by_admin")


def test_a_handler_that_crashes_fails_its_task_without_a_code_of_its_own(server: StandIn, runner: Runner) -> None:
    row = server.add_task()
    use(runner, lambda work, desk: 1 / 0)

    assert runner.run() == Exit.NOT_DONE
    assert (row.result["failure_class"], "error_code" in row.result) == ("internal", False)


def test_a_result_that_the_server_cannot_store_is_replaced_and_keeps_the_snapshot(
    server: StandIn, runner: Runner
) -> None:
    row = server.add_task()
    server.refuse_results = lambda body: refusal(422, "invalid") if body["status"] == "succeeded" else None
    use(runner, lambda work, desk: GOOD)

    assert runner.run() == Exit.OK
    assert (row.status, row.result["failure_class"]) == ("failed", "internal")
    assert row.result["backup_id_in_repository"] == SNAPSHOT
