"""The page of trends: what the last runs say of each check, and that nothing stored can break or slow it."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.timezone import now

from jobs.admin.trend_matrix import CheckTrend, matrix
from jobs.models import AgentJob
from jobs.models.kind_runs import LOOKED_AT, CheckState, Run, last_runs
from tests.admin.conftest import Rows
from tests.admin.test_pages import EVIL
from tests.engine.test_engine_plans import plan_of
from tests.factories import AgentFactory, AgentJobFactory, ScheduleFactory

pytestmark = pytest.mark.django_db
URL = "/admin/jobs/agentjob/trends/"


def run(hours_ago: int, *states: str, **columns: Any) -> AgentJob:
    """A job that ended, whose checks a, b, … are in these states."""
    at = now() - timedelta(hours=hours_ago)
    checks = [{"id": key, "title": f"Check {key}", "status": state} for key, state in zip("abcd", states, strict=False)]
    given = {"kind": "uat", "status": "done", "verdict": "pass", "results": {"checks": checks}, "spec": {"v": 1}}
    times = {"queued_at": at, "started_at": at - timedelta(seconds=30), "finished_at": at}
    return AgentJobFactory(**given | times | columns)


def shown(client: Client, **query: Any) -> Any:
    """What the page was made of."""
    answer = client.get(URL, query)
    assert answer.status_code == 200
    return answer.context


def trend(*history: str, specs: str = "", flaky: str = "") -> CheckTrend:
    """What is made of the states of one check, newest first; `specs` names the spec of each run."""
    runs = [
        Run(
            id=uuid4(), status="done", verdict="pass", failure_class=None, agent="a", seconds=1,
            finished_at=now() - timedelta(hours=number), spec_digest=(specs or "s" * len(history))[number],
            is_too_large=False,
            checks=[CheckState(key="a", title="A", status=state, is_flaky=str(number) in flaky)] if state else [],
        )
        for number, state in enumerate(history)
    ]  # fmt: skip
    (found,) = matrix(runs)
    assert found.failing_since is None or found.failing_since.id in {one.id for one in runs}
    return found


@pytest.mark.parametrize(
    ("history", "failing", "is_older"),
    [
        (["passed", "failed"], 0, False),
        (["failed", "error", "passed"], 2, False),
        (["failed", "skipped", "failed", "passed"], 2, False),
        (["", "failed", "", "passed"], 1, False),
        (["failed", "failed"], 2, True),
        (["skipped", "odd"], 0, True),
    ],
)
def test_a_check_fails_since_the_first_of_its_failures_in_a_row(history: Any, failing: int, is_older: bool) -> None:
    found = trend(*history)
    assert (found.failing_runs, found.is_older) == (failing, is_older)
    assert (found.failing_since is not None) == bool(failing)


def test_a_check_is_flaky_when_its_result_changes_back_and_forth_while_the_spec_stays() -> None:
    assert trend("passed", "failed", "passed").is_flaky
    assert trend("passed", "failed", "skipped", "passed").changes == 2
    assert not trend("failed", "failed", "passed", "passed").is_flaky  # it broke, once
    assert not trend("passed", "failed", "passed", specs="abc").is_flaky
    assert trend("passed", "passed", flaky="1").is_flaky


def test_the_page_shows_each_check_of_each_run_and_what_fails_comes_first(superuser: Client) -> None:
    agent = AgentFactory()
    newest = run(1, "passed", "failed", "passed", agent=agent, verdict="fail")
    first = run(2, "passed", "failed", "failed", agent=agent, verdict="fail")
    run(3, "passed", "passed", "passed", agent=agent)
    run(4, agent=agent, kind="other")
    context = shown(superuser, kind="uat")
    assert [row.trend.title for row in context["rows"]] == ["Check b", "Check c", "Check a"]
    failing, flaky, good = context["rows"]
    assert failing.since_url == reverse("admin:jobs_agentjob_change", args=[first.pk])
    assert [mark.tone for mark in failing.marks] == ["bad", "bad", "good"]
    assert flaky.trend.is_flaky
    assert (good.rate, failing.rate) == ("100 %", "33 %")
    assert context["runs"][0].url == reverse("admin:jobs_agentjob_change", args=[newest.pk])
    assert len(context["chart"].parts) == 3


def test_runs_are_narrowed_by_agent_schedule_and_label(superuser: Client) -> None:
    one, other = AgentFactory(), AgentFactory()
    schedule = ScheduleFactory(agent=one)
    found = {
        "agent": run(1, "passed", agent=one), "label": run(2, "passed", agent=other, labels={"branch": "main"}),
        "schedule": run(3, "passed", agent=other, schedule=schedule),
    }  # fmt: skip
    run(4, "passed", agent=other, labels=["branch", "main"])
    narrowed = {"agent": one.principal_key, "label": "branch=main", "schedule": str(schedule.pk)}
    for name, value in narrowed.items():
        pages = [mark.url for mark in shown(superuser, kind="uat", **{name: value})["runs"]]
        assert pages == [reverse("admin:jobs_agentjob_change", args=[found[name].pk])], name
    assert len(shown(superuser, kind="uat")["runs"]) == 4
    assert len(shown(superuser)["runs"]) == 4  # the kind that ended last
    assert not shown(superuser, kind="nothing of that name")["runs"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("label", "branch"), ("label", "=x"), ("label", "\x00=1"), ("label", "x" * 300), ("agent", "\x00"),
     ("schedule", "x"), ("schedule", str(UUID(int=7))), ("runs", "1000000"), ("runs", "x"), ("kind", "k\x00"),
     ("kind", "k" * 5000)],
)  # fmt: skip
def test_what_names_no_runs_is_told_at_its_field(name: str, value: str, superuser: Client) -> None:
    run(1, "passed")
    context = shown(superuser, **{"kind": "uat", name: value})
    assert list(context["form"].errors) == [name]
    assert not context["runs"]


@pytest.mark.parametrize(
    "results",
    [None, [], "text", 7, {"checks": None}, {"checks": {"a": 1}}, {"checks": [None, 1, "x", {}, [], {"id": None}]},
     {"checks": [{"id": {"a": [1]}, "title": 5, "status": ["x"], "flaky": "yes"}]}, {"checks": [{"id": "x" * 9000}]},
     {"checks": [{"id": EVIL, "title": EVIL, "status": EVIL}]}, {"checks": [{"id": str(n)} for n in range(900)]}],
    ids=lambda results: str(results)[:20],
)  # fmt: skip
def test_whatever_an_sql_client_stored_is_shown_or_left_out(results: Any, superuser: Client) -> None:
    run(1, "passed")
    run(2, results=results, spec=[EVIL], kind="uat", labels=[1], error=EVIL, failure_class=None)
    page = superuser.get(URL, {"kind": "uat"})
    assert page.status_code == 200
    assert "<img src=x" not in page.content.decode()
    assert len(page.context["rows"]) <= 100


def test_odd_times_numbers_and_documents_too_large_are_no_trouble(superuser: Client) -> None:
    sane = run(1, "passed")
    run(2, results={"checks": [{"id": "a", "status": "passed", "why": [uuid4().hex for _ in range(60_000)]}]})
    odd = [
        ("started_at", "infinity"), ("started_at", "-infinity"), ("started_at", "4713-01-01 BC"), ("spec", "[1e99999]"),
        ("finished_at", "infinity"), ("finished_at", "294276-01-01"), ("finished_at", "0044-01-01"),
        ("results", '{"checks": [{"id": 1e99999, "status": 1}]}'),
    ]  # fmt: skip
    for column, value in odd:
        copy = run(3, "passed")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
            cursor.execute(f"UPDATE agent_jobs SET {column} = %s WHERE id = %s", [value, copy.pk])
            cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
    context = shown(superuser, kind="uat", runs="50")
    assert context["too_large"] == 1
    assert len(context["runs"]) == 7  # without those that ended in another age
    assert context["runs"][0].url == reverse("admin:jobs_agentjob_change", args=[sane.pk])


def test_the_runs_of_one_kind_are_found_by_its_index_and_within_a_bound(rows: Rows, superuser: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
        cursor.execute(
            "INSERT INTO agent_jobs (principal_key, kind, status, queued_at, started_at, finished_at, labels)"
            " SELECT %s, CASE WHEN n %% 10 = 0 THEN 'uat' ELSE 'other' END, 'done', at, at, at,"
            " CASE WHEN n > 29000 THEN '{\"branch\": \"old\"}' ELSE '{}' END::jsonb"
            " FROM (SELECT n, now() - n * interval '1 minute' AS at FROM generate_series(1, 30000) AS n) AS moments",
            [rows.agent.principal_key],
        )
        cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
        cursor.execute("ANALYZE agent_jobs")
    plan = plan_of(lambda: last_runs(kind="uat", runs=50), "WITH looked_at")
    scans = {node["Index Name"] for node in plan if node.get("Relation Name") and "Index Name" in node}
    assert scans == {"agent_jobs_kind_ended_idx", "agent_jobs_pkey"}
    assert not [node for node in plan if node["Node Type"] == "Seq Scan"]
    assert len(last_runs(kind="uat", runs=50)) == 50
    assert last_runs(kind="uat", label=("branch", "old"), runs=50) == []  # further back than is looked
    assert LOOKED_AT == 2000
    with CaptureQueriesContext(connection) as asked:
        shown(superuser, kind="uat")
    assert len(asked) <= 8


def test_the_pages_of_a_job_and_of_a_kind_lead_to_their_trends(rows: Rows, superuser: Client) -> None:
    for table, row in (("agentjob", rows.failed), ("jobkind", rows.kind)):
        page = superuser.get(reverse(f"admin:jobs_{table}_change", args=[row.pk])).content.decode()
        assert f"{URL}?kind=echo" in page
