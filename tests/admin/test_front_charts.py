"""The charts of the front page: each number is the length of its list, and a million jobs are not read one by one."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils.timezone import localdate

from jobs.admin.charts import ceiling
from jobs.admin.filters import midnight
from jobs.models import AgentJob, ended_jobs
from tests.engine.test_engine_plans import plan_of
from tests.factories import AgentFactory, AgentJobFactory

pytestmark = pytest.mark.django_db


def ended(days_ago: int = 0, **columns: Any) -> AgentJob:
    """A job that ended at some moment of a day; today, at its first."""
    at = midnight(localdate() - timedelta(days=days_ago))
    times = {"queued_at": at - timedelta(minutes=3), "started_at": at - timedelta(minutes=2), "finished_at": at}
    return AgentJobFactory(**times | columns)


def drawn(client: Client) -> dict[str, Any]:
    """The charts by their key."""
    return {chart.key: chart for chart in client.get(reverse("admin:index")).context["charts"]}


def test_each_number_and_each_bar_leads_to_the_list_that_it_counts(superuser: Client) -> None:
    agent = AgentFactory()
    for status, verdict, number in (
        ("done", "pass", 3), ("done", "risk", 1), ("done", "fail", 2), ("done", None, 1), ("cancelled", None, 2),
    ):  # fmt: skip
        for days_ago in (0, 13):
            for _ in range(number):
                ended(days_ago, agent=agent, status=status, verdict=verdict)
    first = ended(2, agent=agent, status="failed")
    ended(1, agent=agent, status="failed", retry_of=first, attempt=2, root_id=first.pk)
    ended(14, agent=agent, status="done", verdict="pass")
    AgentJobFactory(agent=agent)
    chart = drawn(superuser)["outcomes"]
    told = [[cell.value for cell in row.cells] for row in chart.rows]
    day = [3, 1, 1, 2, 0, 2]
    assert told == [day, *[[0] * 6] * 11, [0, 0, 0, 0, 1, 0], day]
    for cell in (cell for row in chart.rows for cell in row.cells if cell.value):
        assert superuser.get(cell.url).context["cl"].result_count == cell.value, cell.url
    assert {part.url for part in chart.parts} == {cell.url for row in chart.rows for cell in row.cells if cell.url}
    assert len(chart.parts) == 11


def test_half_and_nearly_all_of_a_days_attempts_waited_and_worked_so_long(superuser: Client) -> None:
    agent, at = AgentFactory(), midnight(localdate())
    for seconds in range(1, 22):
        started = at + timedelta(seconds=1000 - seconds)
        ended(
            agent=agent, status="done", started_at=started, finished_at=at + timedelta(seconds=1000),
            queued_at=started - timedelta(hours=2), not_before=started - timedelta(seconds=10 * seconds),
        )  # fmt: skip
    charts = drawn(superuser)
    assert [cell.value for cell in charts["worked"].rows[-1].cells] == ["11 s", "20 s"]
    assert [cell.value for cell in charts["waited"].rows[-1].cells] == ["1 min 50 s", "3 min 20 s"]
    (column,) = charts["worked"].parts
    assert superuser.get(column.url).context["cl"].result_count == 21
    assert not charts["worked"].is_empty


def test_times_that_only_an_sql_client_can_write_break_nothing(superuser: Client) -> None:
    job = ended(status="done")
    odd = ("infinity", "-infinity", "4713-01-01 BC", "294276-01-01")
    for column in ("started_at", "queued_at", "finished_at", "not_before"):
        for moment in odd:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO agent_jobs (principal_key, kind, status, queued_at, started_at, finished_at, "
                    "not_before) SELECT principal_key, kind, status, queued_at, started_at, finished_at, NULL "
                    "FROM agent_jobs WHERE id = %s RETURNING id",
                    [job.pk],
                )
                (copy,) = cursor.fetchone()
                cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
                cursor.execute(f"UPDATE agent_jobs SET {column} = %s WHERE id = %s", [moment, copy])
                cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
    today = (midnight(localdate()), midnight(localdate() + timedelta(days=1)))
    ((waited, worked),) = ended_jobs.times([today])
    assert waited.median is not None
    assert worked.most is not None
    assert ended_jobs.outcomes([today])[0].unjudged == 13  # all but those that ended in another age


def test_the_last_day_is_compared_with_the_week_before_yesterday(superuser: Client) -> None:
    agent = AgentFactory()
    for _ in range(7):
        ended(2, agent=agent, status="done", verdict="risk")
        ended(9, agent=agent, status="failed")
    AgentJobFactory(agent=agent, status="done", verdict="fail", finished_at=datetime.now(UTC))

    def tile() -> Any:
        tiles = superuser.get(reverse("admin:index")).context["tiles"]
        return next(tile for tile in tiles if tile.icon.startswith("trending"))

    assert (tile().value, tile().icon) == (1, "trending_flat")
    assert "1.0 a day in the week before" in tile().note
    for _ in range(3):
        AgentJobFactory(agent=agent, status="failed", finished_at=datetime.now(UTC))
    assert (tile().value, tile().icon) == (4, "trending_up")
    assert superuser.get(tile().url).context["cl"].result_count == 4


def test_a_day_without_jobs_is_no_chart(superuser: Client) -> None:
    assert all(chart.is_empty for chart in drawn(superuser).values())


@pytest.mark.parametrize(("value", "top"), [(0, 1), (1, 1), (3, 5), (7, 10), (10, 10), (11, 20), (400, 500), (0.2, 1)])
def test_the_upper_edge_of_a_chart_is_a_number_that_reads_well(value: float, top: float) -> None:
    assert ceiling(value) == top


def test_the_charts_read_the_index_only_and_of_each_hour_a_sample(django_assert_num_queries: Any) -> None:
    agent = AgentFactory()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE agent_jobs DISABLE TRIGGER USER")
        cursor.execute(
            "INSERT INTO agent_jobs (principal_key, kind, status, queued_at, started_at, finished_at, spec)"
            " SELECT %s, 'echo', 'done', at - interval '2 minutes', at - interval '1 minute', at,"
            " jsonb_build_object('title', repeat(md5(n::text), 10))"
            " FROM (SELECT n, now() - n * interval '10 minutes' AS at FROM generate_series(1, 50000) AS n) AS moments",
            [agent.principal_key],
        )
        cursor.execute("ALTER TABLE agent_jobs ENABLE TRIGGER USER")
        cursor.execute("ANALYZE agent_jobs")
    spans = [(midnight(day), midnight(day + timedelta(days=1))) for day in _last_days()]
    read: tuple[Callable[..., Any], ...] = (ended_jobs.outcomes, ended_jobs.times)
    for reading in read:
        with django_assert_num_queries(1):
            plan = plan_of(lambda reading=reading: reading(spans), "SELECT")
        touched = {(node["Node Type"], node.get("Index Name")) for node in plan if node.get("Relation Name")}
        assert {kind for kind, _index in touched} == {"Index Only Scan"}
        assert {index for _kind, index in touched} <= {"agent_jobs_ended_idx", "agent_jobs_retry_of_key"}
        assert any(node["Node Type"] == "Limit" for node in plan)


def _last_days() -> list[date]:
    return [localdate() - timedelta(days=back) for back in range(14)]


def test_no_drawing_carries_a_style_that_the_content_policy_would_refuse(superuser: Client) -> None:
    ended(status="done", verdict="pass")
    page = superuser.get(reverse("admin:index")).content.decode()
    assert "<svg" in page
    assert not re.search(r"<(svg|rect|path|a|text)[^>]* style=", page)
