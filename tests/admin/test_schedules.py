"""What people do with schedules in the admin, and how the pages say no."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from jobs.models import AgentJob, AuditEvent, Schedule, ScheduleSlot
from jobs.services.scheduling import enqueue_due
from tests.admin.conftest import CHROMIUM, Rows
from tests.admin.test_dialogs import post, shown
from tests.factories import ScheduleSlotFactory

ADD = f"{reverse('admin:jobs_schedule_add')}?kind=echo"
PREVIEW = reverse("admin:jobs_schedule_preview")


def form(rows: Rows, **other: str) -> dict[str, str]:
    """A form that is right, apart from `other`."""
    return {
        "name": "Nightly", "agent": rows.agent.principal_key, "spec": '{"title": "x"}', "expression": "30 2 * * 1-5",
        "zone": "Europe/Berlin", "misfire": "latest", "overlap": "skip", "splay_seconds": "0", "grace_seconds": "300",
        "catch_up_limit": "10", "expires_after_seconds": "", "priority": "0", "concurrency_key": "", "labels": "",
    } | other  # fmt: skip


def page_of(schedule: Schedule) -> str:
    return reverse("admin:jobs_schedule_change", args=[schedule.pk])


def test_a_schedule_is_defined_and_changed_in_the_form(rows: Rows, superuser: Client) -> None:
    superuser.post(ADD, form(rows, labels='{"team": "shop"}', expires_after_seconds="600"))
    schedule = Schedule.objects.get(name="Nightly")
    assert (schedule.kind, schedule.spec, schedule.labels) == ("echo", {"title": "x"}, {"team": "shop"})
    edit = f"{reverse('admin:jobs_schedule_edit', args=[schedule.pk])}"
    filled = superuser.get(edit).context["form"]
    again = {name: filled[name].value() for name in form(rows)}
    answer = superuser.post(edit, {n: "" if v is None else v for n, v in again.items()} | {"zone": "Asia/Tokyo"})
    assert answer["Location"] == page_of(schedule)
    changed = Schedule.objects.get(pk=schedule.pk)
    assert (changed.zone, changed.labels, changed.expires_after_seconds) == ("Asia/Tokyo", {"team": "shop"}, 600)
    assert [event.details["act"] for event in AuditEvent.objects.filter(subject_id=schedule.pk)] == [
        "changed", "created",
    ]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [
    ("name", ""), ("name", "a\x00"), ("name", "x" * 101), ("agent", "nobody"), ("spec", "{"), ("spec", "{}"),
    ("spec", "[]"), ("expression", "0 0 31 2 *"), ("expression", "* * * *"), ("expression", "* * * * * *"),
    ("expression", "x" * 10_000), ("expression", ""), ("zone", "Mars/X"), ("zone", "x" * 10_000), ("zone", "\x00"),
    ("misfire", "x"), ("overlap", "x"), ("splay_seconds", "-1"), ("splay_seconds", "9" * 5000), ("splay_seconds", ""),
    ("grace_seconds", "1"), ("catch_up_limit", "101"), ("expires_after_seconds", "1"), ("priority", "101"),
    ("concurrency_key", "\x00"), ("labels", "[]"), ("labels", "{"), ("labels", '{"slot": 1}'),
], ids=lambda text: ascii(text)[:14])  # fmt: skip
def test_a_schedule_that_cannot_be_is_refused_at_the_field_and_stays_typed(
    field: str, value: str, rows: Rows, superuser: Client
) -> None:  # fmt: skip
    answer = superuser.post(ADD, form(rows, **{field: value}))
    assert answer.status_code == 200
    assert answer.context["form"].errors[field]
    assert answer.context["form"][field].value() == value
    assert Schedule.objects.count() == 1


@pytest.mark.parametrize(
    ("expression", "zone", "said_there"),
    [
        ("30 2 * * *", "Europe/Berlin", "At 02:30 every day"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month."),
        ("* * * *", "UTC", "5 fields"),
        ("* * * * *", "Mars/X", "no such time zone"),
        ("", "", "once there is an expression"),
        ("\x00", "\x00", "once there is an expression"),
        ("x" * 10_000, "UTC", "At most 200"),
    ],
    ids=lambda text: ascii(text)[:14],
)
def test_the_preview_says_what_an_expression_means_or_what_is_wrong(
    expression: str, zone: str, said_there: str, rows: Rows, superuser: Client
) -> None:  # fmt: skip
    answer = superuser.get(PREVIEW, {"expression": expression, "zone": zone})
    assert answer.status_code == 200
    page = answer.content.decode()
    if expression != "\x00":
        assert said_there in page
    assert page.count("<li>") == (10 if "At " in said_there and "most" not in said_there else 0)


def test_an_operator_runs_pauses_and_resumes_but_does_not_retire(
    rows: Rows, login: Callable[[str], Client]
) -> None:  # fmt: skip
    client, schedule = login("Operators"), rows.schedule
    page = shown(client, post(client, "schedule_run", schedule))
    job = AgentJob.objects.get(schedule=schedule)
    assert schedule.name in page
    assert "still open" in shown(client, post(client, "schedule_run", schedule))
    assert AgentJob.objects.filter(schedule=schedule).count() == 1
    assert "Disk is full" in shown(client, post(client, "schedule_pause", schedule, note="Disk is full"))
    shown(client, post(client, "schedule_resume", schedule))
    assert Schedule.objects.get(pk=schedule.pk).state == "active"
    assert post(client, "schedule_retire", schedule, reason="Old").status_code == 403  # type: ignore[attr-defined]
    assert str(job.pk)[:8] in client.get(page_of(schedule)).content.decode()


def test_a_retired_schedule_offers_nothing_and_says_so_when_asked(rows: Rows, superuser: Client) -> None:
    schedule = rows.schedule
    assert "Not read" in shown(superuser, post(superuser, "schedule_retire", schedule, reason="Not read"))
    assert superuser.get(page_of(schedule)).context["actions"] == []
    for name in ("run", "resume"):
        assert "is retired" in shown(superuser, post(superuser, f"schedule_{name}", schedule))
    edited = superuser.post(reverse("admin:jobs_schedule_edit", args=[schedule.pk]), form(rows))
    assert "is retired" in edited.content.decode()


@pytest.mark.parametrize("note", ["", " ", "a\x00", "x" * 501])
def test_a_pause_asks_for_a_note_that_can_be_kept(note: str, rows: Rows, superuser: Client) -> None:
    answer: Any = post(superuser, "schedule_pause", rows.schedule, note=note)
    assert answer.context["form"].errors["note"]
    assert Schedule.objects.get().state == "active"


@pytest.mark.parametrize("object_id", ["x", "%00", "00000000-0000-0000-0000-000000000000", "9" * 300])
@pytest.mark.parametrize("page", ["schedule/{}/run/", "schedule/{}/pause/", "schedule/{}/resume/", "schedule/{}/edit/",
                                  "schedule/{}/retire/", "schedule/{}/change/", "scheduleslot/{}/change/"])  # fmt: skip
def test_a_page_of_no_schedule_is_not_found(page: str, object_id: str, rows: Rows, superuser: Client) -> None:
    typed = {"_form_submitted": "on", "reason": "because", "note": "because"}
    assert superuser.post(f"/admin/jobs/{page.format(object_id)}", typed).status_code == 404


def test_a_jobs_page_leads_to_the_schedule_that_made_it_and_so_do_its_retries(rows: Rows, superuser: Client) -> None:
    Schedule.objects.update(settled_at="2027-01-01T00:30Z", next_due_at="2026-01-01T00:30Z")
    Schedule.objects.update(settled_at="2026-11-01T00:30Z")
    enqueue_due()
    job = AgentJob.objects.get(schedule=rows.schedule)
    AgentJob.objects.filter(pk=job.pk).update(status="running")
    AgentJob.objects.filter(pk=job.pk).update(status="failed")
    retry = AgentJob.objects.retry(AgentJob.objects.get(pk=job.pk))
    assert retry is not None
    for row in (job, retry):
        page = superuser.get(reverse("admin:jobs_agentjob_change", args=[row.pk])).content.decode()
        assert page_of(rows.schedule) in page


@pytest.mark.parametrize(
    ("query", "number"),
    [("outcome=missed", 1), ("outcome=missed&outcome=skipped", 2), ("schedule={id}", 3), ("schedule=x", 0),
     ("due=24h", 0), ("outcome=none", 0)],
)  # fmt: skip
def test_a_filter_of_the_slots_leaves_what_it_names(
    query: str, number: int, rows: Rows, superuser: Client
) -> None:  # fmt: skip
    ScheduleSlotFactory(schedule=rows.schedule, due_at="2026-01-02T00:00Z", outcome="missed", reason="late")
    ScheduleSlotFactory(schedule=rows.schedule, due_at="2026-01-03T00:00Z", outcome="refused", reason="invalid")
    url = f"{reverse('admin:jobs_scheduleslot_changelist')}?{query.format(id=rows.schedule.pk)}"
    assert superuser.get(url).context["cl"].result_count == number


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.django_db(transaction=True)
def test_the_next_times_follow_what_is_typed(desk: Page, rows: Rows, live_server: Any) -> None:
    desk.goto(live_server.url + ADD)
    preview = desk.locator("#schedule-preview")
    desk.get_by_label("Cron expression").press_sequentially("30 2 * * *")
    expect(preview).to_contain_text("At 02:30 every day")
    expect(preview.locator("li")).to_have_count(10)
    desk.get_by_label("Time zone").fill("Mars/X")
    expect(preview).to_contain_text("no such time zone")
    desk.get_by_label("Time zone").fill("Europe/Berlin")
    expect(preview.locator("li").first).to_contain_text("02:30 CE")
    desk.get_by_label("Name").fill("Typed")
    desk.get_by_label("Agent").select_option(rows.agent.principal_key)
    desk.locator("#panel-form").get_by_role("textbox", name="Title").fill("By the clock")
    desk.get_by_role("button", name="Save").click()
    expect(desk.get_by_text("Created.")).to_be_visible()
    assert Schedule.objects.get(name="Typed").spec == {"title": "By the clock"}
    desk.get_by_role("button", name="Run now").click()
    desk.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(desk.get_by_text("Enqueued.", exact=True)).to_be_visible()
    assert ScheduleSlot.objects.get(schedule__name="Typed").requested_by == "superuser"
