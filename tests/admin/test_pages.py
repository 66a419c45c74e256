"""The pages people read: numbers that match their lists, hostile content as text, and lists that bear any question."""

import json
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from agentstore_runner.contract.results import check_result
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.timezone import localdate

from agentstore.admin_look import UNFOLD
from jobs.admin.job_page import run_url
from jobs.models import AgentJob, MaintenanceDuty, Uptime
from tests.admin.conftest import Rows, end, running
from tests.factories import AgentFactory, AgentJobFactory, JobKindFactory, TokenFactory

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'"
LISTS = (
    "agentjob", "agenttask", "agent", "jobkind", "target", "githubtrust", "auditevent", "maintenanceduty",
    "noticechannel", "noticerule", "notice", "schedule", "scheduleslot", "backuprepository", "backupjob",
    "backupjobrun", "backupsnapshot", "backupjobsource",
)  # fmt: skip


def part(client: Client, job: AgentJob) -> Any:
    """The refreshing part of a job's page."""
    return client.get(reverse("admin:jobs_agentjob_part", args=[job.pk]))


def test_each_number_of_the_front_page_is_the_length_of_the_list_it_leads_to(rows: Rows, superuser: Client) -> None:
    token = TokenFactory()
    for verdict in ("pass", "fail", "fail", "risk"):
        end(running(token.agent, token), token, status="done", verdict=verdict)
    AgentFactory(presence="resident")
    AgentFactory(registered_at=None)
    tiles = superuser.get(reverse("admin:index")).context["tiles"]
    counted = {str(tile.label): tile for tile in tiles}
    expected = {"Queued": 1, "Running": 1, "Failed": 1, "Verdict fail": 2, "Silent agents": 1}
    assert {label: counted[label].value for label in expected} == expected
    for tile in tiles:
        if isinstance(tile.value, int):
            assert superuser.get(tile.url).context["cl"].result_count == tile.value, tile.label


@pytest.mark.parametrize("table", LISTS)
def test_the_first_cell_of_a_row_is_labelled_by_its_column_on_a_phone(
    table: str, rows: Rows, superuser: Client
) -> None:
    page = superuser.get(reverse(f"admin:jobs_{table}_changelist"))
    assert page.context["cl"].result_list
    # The cell of the box that is ticked is the one of this label, and only where something can be done to many rows.
    rows_to_tick = len(page.context["cl"].result_list) if page.context["cl"].model_admin.actions else 0
    assert page.text.count('name="_selected_action"') == rows_to_tick
    assert page.text.count('data-label="Select record"') == rows_to_tick
    assert page.text.count("data-label=") >= len(page.context["cl"].list_display)


def tile_of(client: Client) -> tuple[str, str, str]:
    """What the front page says of the maintenance: its tone, the word and the line below."""
    tiles = {str(tile.label): tile for tile in client.get(reverse("admin:index")).context["tiles"]}
    return tiles["Maintenance"].tone, str(tiles["Maintenance"].value), str(tiles["Maintenance"].note)


def test_the_front_page_tells_of_each_duty_how_often_it_is_done_and_how_it_went(superuser: Client) -> None:
    MaintenanceDuty.objects.create(
        name="sweep", every_seconds=3600, last_seconds=120, last_success_at=Now(), failures=1, last_error="disk full"
    )
    (duty,) = superuser.get(reverse("admin:index")).context["duties"]
    assert (duty["every"], duty["took"], duty["error"]) == ("1 h", "2 min", "disk full")


def test_the_front_page_is_red_while_the_maintenance_does_not_run_or_fails(superuser: Client) -> None:
    assert tile_of(superuser)[:2] == ("bad", "never ran")
    ago = partial(timedelta, minutes=1)
    MaintenanceDuty.objects.bulk_create(
        MaintenanceDuty(name=name, last_success_at=Now(), due_at=Now()) for name in ("expire", "reap")
    )
    assert tile_of(superuser)[:2] == ("good", "on time")

    reap = MaintenanceDuty.objects.filter(name="reap")
    reap.update(due_at=Now() - ago(seconds=1))
    assert tile_of(superuser) == ("bad", "late", "overdue: reap")
    reap.update(leased_by="a loop", leased_until=Now() + ago())
    assert tile_of(superuser)[0] == "good"  # it takes long, and somebody is at it
    MaintenanceDuty.objects.update(due_at=Now() - ago(seconds=1), leased_until=None)
    assert tile_of(superuser)[:2] == ("bad", "not running")

    MaintenanceDuty.objects.update(due_at=Now(), failures=1, last_error=EVIL)
    assert tile_of(superuser)[0] == "good"  # one failure is tried again after a second
    MaintenanceDuty.objects.update(failures=2)
    assert tile_of(superuser) == ("bad", "failing", f"expire: {EVIL}")
    assert EVIL not in superuser.get(reverse("admin:index")).content.decode()

    MaintenanceDuty.objects.update(failures=0)
    Uptime.objects.create(seen_at=Now() - ago(), fault="refused")
    assert tile_of(superuser)[:2] == ("bad", "deaf")
    assert "refused" in tile_of(superuser)[2]
    Uptime.objects.update(seen_at=Now())
    assert tile_of(superuser)[0] == "good"


EVERY = {"queued", "running", "failed"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=queued&status=failed", {"queued", "failed"}),
        ("verdict=pass", set()),
        ("kind=echo", EVERY),
        ("agent={agent}", EVERY),
        ("agent=other", set()),
        ("queued_from=2000-01-01&queued_to=2000-01-02", set()),
        ("queued_from=2000-01-01", EVERY),
        ("ended=1h", {"failed"}),
        ("latest=1&status=failed", {"failed"}),
        ("news=wrong", {"failed"}),
        ("verdict=none&verdict=pass", EVERY),
        ("finished_from={today}&finished_to={today}", {"failed"}),
        ("finished_to=2000-01-01", set()),
    ],
)
def test_a_filter_leaves_what_it_names(query: str, found: set[str], rows: Rows, superuser: Client) -> None:
    url = (
        f"{reverse('admin:jobs_agentjob_changelist')}?{query.format(agent=rows.agent.principal_key, today=localdate())}"
    )
    assert {job.status for job in superuser.get(url).context["cl"].result_list} == found


def test_the_front_page_asks_few_questions_however_much_there_is(rows: Rows, superuser: Client) -> None:
    AgentJobFactory.create_batch(30, agent=rows.agent)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        superuser.get(reverse("admin:index"))
    assert len(asked) <= 19


def test_the_list_of_jobs_asks_as_many_questions_for_forty_rows_as_for_three(rows: Rows, superuser: Client) -> None:
    url = reverse("admin:jobs_agentjob_changelist")
    superuser.get(url)
    with CaptureQueriesContext(connection) as few:
        superuser.get(url)
    AgentJobFactory.create_batch(40, agent=rows.agent)
    with CaptureQueriesContext(connection) as many:
        superuser.get(url)
    assert len(many) == len(few) <= 10
    assert not any('"spec"' in query["sql"] for query in many.captured_queries)


QUERIES = (
    "q=%00", "q=" + "x" * 10_000, "q=%25%27%3B--", "q=[", "q=0000", "status=%00", "status=none", "status__exact=x",
    "agent=%00", "kind=%00", "verdict=pass&verdict=%00", "queued_from=x&queued_to=9999-12-31", "tag=x", "attention=x",
    "queued_from=0001-01-01", "queued_to=%00", "ended=x", "latest=2", "p=999999999", "p=x", "all=", "o=99.-x", "e=1",
    "spec__a%22)+OR+1=1--=1", "_facets=True", "pk__in=x", "attempt__gt=9999999999999999999999", "_connector=OR",
    "state=%00", "channel=%00", "channel=x", "event=x", "news=x", "created=x", "finished_from=%00", "finished_to=x",
)  # fmt: skip


@pytest.mark.parametrize("table", LISTS)
def test_a_list_answers_any_query_string(table: str, rows: Rows, superuser: Client) -> None:
    url = reverse(f"admin:jobs_{table}_changelist")
    answers = {query: superuser.get(f"{url}?{query}").status_code for query in QUERIES}
    assert {query: status for query, status in answers.items() if status not in (200, 302, 400)} == {}


@pytest.mark.parametrize("query", ["username=%00", "q=%00", "username__exact=%00", "password__startswith=x", "p=x"])
@pytest.mark.parametrize("table", ["user", "group"])
def test_the_lists_of_people_answer_any_query_string(table: str, query: str, superuser: Client, db: None) -> None:
    assert superuser.get(f"{reverse(f'admin:auth_{table}_changelist')}?{query}").status_code in (200, 302, 400)


@pytest.mark.parametrize(
    "query", ["s=a&page=x", "s=a&page=-1", "s=a&page=99999999999999999999", "s=%00", "s=" + "a" * 300]
)
def test_the_search_of_pages_answers_any_query_string(query: str, superuser: Client, db: None) -> None:
    assert superuser.get(f"{reverse('admin:search')}?{query}").status_code in (200, 400)


def test_a_job_is_found_by_its_id_its_beginning_its_keys_and_its_run(rows: Rows, superuser: Client) -> None:
    job = AgentJobFactory(agent=rows.agent, dedupe_key="shop-main", run_ref="https://ci.example/runs/7")
    url = reverse("admin:jobs_agentjob_changelist")
    for term in (str(job.pk), str(job.pk).upper(), str(job.pk)[:8], "shop-main", "shop-", "https://ci.example/runs/7"):
        found = superuser.get(url, {"q": term}).context["cl"].result_list
        assert [row.pk for row in found] == [job.pk], term
    assert not superuser.get(url, {"q": "nothing like it"}).context["cl"].result_count


def test_hostile_text_in_every_field_is_shown_as_text(rows: Rows, superuser: Client) -> None:
    results = {
        "verdict": "fail", "reasons": [EVIL],
        "checks": [dict.fromkeys(("id", "title", "severity", "status", "code", "message", "step"), EVIL)
                   | {"detail": {EVIL: EVIL}, "warnings": [EVIL], "notes": [EVIL], "artifacts": [EVIL]}
                   | {"duration_ms": EVIL}],
    }  # fmt: skip
    agent = AgentFactory(principal_key=f"k{EVIL}", title=EVIL, labels={EVIL: EVIL}, state_note=EVIL)
    job = AgentJobFactory(
        agent=agent, kind=EVIL, spec={EVIL: EVIL}, results=results, error=EVIL, run_ref=f"javascript:{EVIL}",
        created_by=EVIL, labels={EVIL: EVIL}, details={EVIL: EVIL}, status="failed", failure_class="internal",
        dedupe_key=EVIL, concurrency_key=EVIL,
    )  # fmt: skip
    JobKindFactory(name=f"n{EVIL}", title=EVIL, description=EVIL, schema={"title": EVIL, "type": "object"})
    pages = [
        reverse("admin:jobs_agentjob_change", args=[job.pk]), reverse("admin:jobs_agent_change", args=[agent.pk]),
        *(reverse(f"admin:jobs_{table}_changelist") for table in LISTS), reverse("admin:index"),
        f"{reverse('admin:jobs_agentjob_add')}?again={job.pk}&kind=n{EVIL}",
    ]  # fmt: skip
    for url in pages:
        page = superuser.get(url).content.decode()
        assert "<img src=x" not in page, url
        assert "<script>alert" not in page, url
    assert "javascript:" not in {link.split(":")[0] + ":" for link in _links(part(superuser, job).content.decode())}


def _links(page: str) -> list[str]:
    return [piece.split('"')[0] for piece in page.split('href="')[1:]]


@pytest.mark.parametrize(
    "results",
    [None, [], "text", 7, {"checks": None}, {"checks": [None, 1, "x", {}, []]}, {"checks": {"a": 1}, "reasons": "x"},
     {"checks": [{"detail": [], "artifacts": "x", "warnings": 1, "duration_ms": 1e300, "step": {}, "title": None}]}],
)  # fmt: skip
def test_a_job_page_survives_whatever_an_sql_client_stored(results: Any, rows: Rows, superuser: Client) -> None:
    job = AgentJobFactory(
        agent=rows.agent, status="done", results=results, labels=[1], progress=[2], spec=[3], details="x"
    )
    assert part(superuser, job).status_code == 200


@pytest.mark.parametrize("address", [
    "javascript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "data:text/html,x", "https://u:p@h/",
    "//host", "https://", "https://[", "ftp://h", "run 7", "https://h/\n", "vbscript:x", "HTTPS://u@h",
])  # fmt: skip
def test_a_run_that_is_no_plain_web_address_is_text(address: str) -> None:
    assert run_url(address) == ""


def test_a_run_on_the_web_is_a_link() -> None:
    assert urlsplit(run_url("https://ci.example/runs/7?a=1#x")).hostname == "ci.example"


def test_a_failure_says_what_it_means_and_what_happens_next(rows: Rows, superuser: Client) -> None:
    token = rows.token
    said = part(superuser, rows.failed).content.decode()
    assert "needs a person" in said
    assert "Not tried again by itself" in said
    lost = end(running(rows.agent, token), token, status="failed", error="Cut off", failure_class="transient")
    assert "Attempt 2 of 3 starts by itself at" in part(superuser, lost).content.decode()


def test_the_page_offers_only_what_the_state_and_the_person_allow(rows: Rows, superuser: Client, login: Any) -> None:
    offered = {
        job.status: {action["name"] for action in part(superuser, job).context["actions"]}
        for job in (rows.queued, rows.running, rows.failed)
    }
    assert offered == {
        "queued": {"cancel_row", "force_row", "hold_row"}, "running": {"cancel_row", "force_row", "hold_row"},
        "failed": {"retry_row", "acknowledge_row", "hold_row"},
    }  # fmt: skip
    assert part(login("Viewers"), rows.running).context["actions"] == []
    assert [a["name"] for a in part(login("Operators"), rows.running).context["actions"]] == ["cancel_row"]


def test_viewers_see_files_but_get_no_link_that_opens_them(rows: Rows, superuser: Client, login: Any) -> None:
    rows.failed.artifacts.create(name="shot.png", storage_path="k", size_bytes=5, sha256="0" * 64)
    assert part(superuser, rows.failed).context["files"][0].open_url
    assert not part(login("Viewers"), rows.failed).context["files"][0].open_url


def test_the_timeline_tells_who_did_what_and_why(rows: Rows, superuser: Client) -> None:
    cancel = reverse("admin:jobs_agentjob_cancel_row", args=[rows.queued.pk])
    superuser.post(cancel, {"_form_submitted": "on", "reason": "Wrong branch"})
    lines = part(superuser, rows.queued).context["timeline"]
    told = {(line.word, line.who, line.why) for line in lines}
    assert ("cancel_requested", "superuser", "Wrong branch") in told
    assert {"queued", "cancelled"} <= {line.word for line in lines}


def test_a_verdict_that_the_runner_saw_otherwise_is_told_with_both_words(rows: Rows, superuser: Client) -> None:
    checks = [{"id": "a", "title": "A"}]
    AgentJob.objects.filter(pk=rows.running.pk).update(kind="uat.quick-task", spec={"checks": checks})
    failed = check_result(checks[0], "failed", code="assertion")
    results = {
        "schema": "agentstore.results/1", "kind": "uat.quick-task", "started_at": "2026-11-30T10:00:00Z",
        "finished_at": "2026-11-30T10:00:01Z", "runner": {"name": "r", "version": "1", "browser": None},
        "target": {"base_url": "https://shop.example", "environment": None}, "test_marker": None, "verdict": "pass",
        "reasons": [], "checks": [failed], "redaction": {"version": 1, "count": 0},
    }  # fmt: skip
    job = end(rows.running, rows.token, status="done", verdict="pass", results=results)
    assert job.verdict == "fail"
    said = "The runner says pass, the store judges fail by the same checks."
    answer = part(superuser, job)
    assert answer.context["differs"] == said
    assert answer.content.decode().count(said) == 2  # on top, and in the history
    assert part(superuser, rows.failed).context["differs"] == ""


def test_the_live_cells_of_a_list_are_those_of_the_rows_asked_for(rows: Rows, superuser: Client) -> None:
    url = reverse("admin:jobs_agentjob_live")
    answer = superuser.get(url, {"id": [str(rows.queued.pk), str(rows.failed.pk)]})
    cells = json.loads(answer.content)["cells"]
    assert set(cells) == {str(rows.queued.pk), str(rows.failed.pk)}
    assert "failed" in cells[str(rows.failed.pk)][0]
    assert superuser.get(url, {"id": "x"}).status_code == 404


def test_no_page_may_be_kept_by_a_cache(rows: Rows, superuser: Client) -> None:
    for name in ("index", "jobs_agentjob_changelist", "jobs_agent_changelist", "jobs_agentjob_live"):
        assert "no-store" in superuser.get(reverse(f"admin:{name}"))["Cache-Control"]


def test_the_navigation_shows_one_place_at_a_time(rows: Rows, superuser: Client) -> None:
    entries = [str(entry["link"]) for group in UNFOLD["SIDEBAR"]["navigation"] for entry in group["items"]]
    change = reverse("admin:jobs_agentjob_change", args=[rows.failed.pk])
    places = {one: one for one in entries} | {change: reverse("admin:jobs_agentjob_changelist")}
    for page, here in places.items():
        groups = superuser.get(page).context["sidebar_navigation"]
        lit = [str(entry["link"]) for group in groups for entry in group["items"] if entry["active"]]
        assert lit == [here], page
