"""The admin in a real browser: nothing is refused by the content security policy, and the pages do what they say."""

import json
from typing import Any

from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import AgentJob, AgentTask, AuditEvent
from jobs.services.shipped_kinds import sync_kinds
from tests.admin.conftest import Rows, in_chromium
from tests.factories import AgentJobFactory, TargetFactory

pytestmark = in_chromium
LISTS = (
    "agentjob", "agenttask", "agent", "jobkind", "target", "githubtrust", "schedule", "scheduleslot", "auditevent",
    "maintenanceduty",
)  # fmt: skip


def test_no_page_makes_the_console_speak_or_scrolls_sideways_on_a_phone(
    desk: Page, rows: Rows, live_server: Any
) -> None:
    sync_kinds()
    hostile = "<img src=x onerror=alert(1)>"
    evil = AgentJobFactory(agent=rows.agent, kind=hostile * 5, error=hostile, status="failed", spec={hostile: hostile})
    checks = [{"id": str(n), "title": hostile, "status": "failed"} for n in range(20)]
    for _ in range(20):
        AgentJobFactory(
            agent=rows.agent, kind="trend", status="done", results={"checks": checks},
            started_at=timezone.now(), finished_at=timezone.now(),
        )  # fmt: skip
    pages = [
        reverse("admin:index"), reverse("admin:jobs_agentjob_trends") + "?kind=trend",
        *(reverse(f"admin:jobs_{table}_changelist") for table in LISTS),
        *(reverse("admin:jobs_agentjob_change", args=[job.pk]) for job in (rows.running, rows.failed, evil)),
        reverse("admin:jobs_agenttask_change", args=[rows.task.pk]),
        reverse("admin:jobs_agent_change", args=[rows.agent.pk]),
        reverse("admin:jobs_agent_token", args=[rows.agent.pk]),
        reverse("admin:jobs_agent_add"), reverse("admin:jobs_jobkind_change", args=[rows.kind.pk]),
        reverse("admin:jobs_target_add"), reverse("admin:jobs_schedule_add") + "?kind=echo",
        reverse("admin:jobs_schedule_change", args=[rows.schedule.pk]),
        reverse("admin:jobs_schedule_edit", args=[rows.schedule.pk]),
        reverse("admin:jobs_target_change", args=[rows.target.pk]), reverse("admin:jobs_githubtrust_add"),
        reverse("admin:jobs_githubtrust_change", args=[rows.trust.pk]), reverse("admin:jobs_githubtrust_token"),
        reverse("admin:jobs_agentjob_add") + "?kind=uat.quick-task", reverse("admin:auth_user_changelist"),
    ]  # fmt: skip
    for width in (1440, 390):
        desk.set_viewport_size({"width": width, "height": 844})
        for url in pages:
            answer = desk.goto(live_server.url + url)
            assert answer is not None
            assert answer.status == 200, url
            assert desk.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, (width, url)


def test_a_job_is_enqueued_through_the_form_and_the_raw_text_stays_in_step(
    desk: Page, rows: Rows, live_server: Any
) -> None:
    desk.goto(f"{live_server.url}{reverse('admin:jobs_agentjob_add')}?kind=echo")
    desk.locator("#panel-form").get_by_role("textbox", name="Title").fill("Drawn by the schema")
    desk.locator("#panel-form").get_by_role("textbox", name="Title").blur()
    desk.get_by_role("tab", name="JSON").click()
    assert json.loads(desk.locator("#id_spec").input_value()) == {"title": "Drawn by the schema"}
    desk.locator("#id_spec").fill('{"title": "Typed by hand"}')
    desk.get_by_role("tab", name="Form").click()
    expect(desk.locator("#panel-form").get_by_role("textbox", name="Title")).to_have_value("Typed by hand")
    desk.get_by_label("Agent").select_option(rows.agent.principal_key)
    desk.get_by_role("button", name="Enqueue").click()
    expect(desk.get_by_text(f"Enqueued for {rows.agent.principal_key}.")).to_be_visible()
    assert AgentJob.objects.filter(spec={"title": "Typed by hand"}, created_by="superuser").count() == 1


def test_a_problem_is_shown_at_the_drawn_field_and_the_text_is_kept(desk: Page, rows: Rows, live_server: Any) -> None:
    desk.goto(f"{live_server.url}{reverse('admin:jobs_agentjob_add')}?kind=echo")
    desk.get_by_role("tab", name="JSON").click()
    desk.locator("#id_spec").fill('{"title": "%s"}' % ("x" * 60))
    desk.get_by_label("Agent").select_option(rows.agent.principal_key)
    desk.get_by_role("button", name="Enqueue").click()
    expect(desk.get_by_role("alert")).to_contain_text("Not enqueued yet")
    expect(desk.locator("#panel-form [data-path='#/title'] .as-field-problem")).to_be_visible()
    expect(desk.locator("#panel-form").get_by_role("textbox", name="Title")).to_have_value("x" * 60)


def test_a_real_spec_passes_through_the_form_unchanged(desk: Page, rows: Rows, live_server: Any) -> None:
    sync_kinds()
    spec = {
        "version": 1, "title": "Sign-in", "target": {"base_url": "https://shop.example"},
        "checks": [{"id": "login", "title": "A user signs in", "severity": "critical", "steps": [
            {"goto": "/"}, {"click": {"role": "button", "name": "Sign in"}},
            {"expect": {"locator": {"css": "#out"}, "text_contains": "Welcome"}}]}],
    }  # fmt: skip
    TargetFactory(base_url="https://other.example")
    origin = AgentJobFactory(agent=rows.agent, kind="uat.quick-task", spec=spec)
    desk.goto(f"{live_server.url}{reverse('admin:jobs_agentjob_add')}?again={origin.pk}")
    form = desk.locator("#panel-form")
    form.get_by_role("textbox", name="Base URL").fill("https://other.example")
    form.get_by_role("textbox", name="Base URL").blur()
    desk.get_by_role("button", name="Enqueue", exact=True).click()
    expect(desk.get_by_text("Enqueued for")).to_be_visible()
    again = AgentJob.objects.get(spec__target__base_url="https://other.example")
    assert again.spec == spec | {"target": {"base_url": "https://other.example"}}


def test_the_cancel_dialog_wants_a_reason_by_keyboard_and_cancels(desk: Page, rows: Rows, live_server: Any) -> None:
    desk.goto(live_server.url + reverse("admin:jobs_agentjob_change", args=[rows.queued.pk]))
    desk.get_by_role("button", name="Cancel", exact=True).click()
    dialog = desk.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel job").click()
    expect(dialog.get_by_text("This field is required.")).to_be_visible()
    dialog.get_by_label("Reason").fill("Wrong branch")
    desk.keyboard.press("Tab")
    desk.keyboard.press("Tab")
    desk.keyboard.press("Enter")
    expect(desk.get_by_text("Cancelled by superuser: Wrong branch")).to_be_visible()
    assert AgentJob.objects.get(pk=rows.queued.pk).status == "cancelled"


def test_a_failed_job_is_retried_and_the_page_leads_to_the_new_attempt(
    desk: Page, rows: Rows, live_server: Any
) -> None:
    desk.goto(live_server.url + reverse("admin:jobs_agentjob_change", args=[rows.failed.pk]))
    desk.get_by_role("button", name="Retry").click()
    desk.get_by_role("dialog").get_by_label("Reason").fill("Disk is bigger now")
    desk.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(desk.get_by_text("Another attempt waits now.")).to_be_visible()
    again = AgentJob.objects.get(retry_of=rows.failed)
    assert str(again.pk) in desk.url


def test_a_living_page_and_list_follow_the_job_without_a_reload(desk: Page, rows: Rows, live_server: Any) -> None:
    watch = desk.context.new_page()
    watch.goto(live_server.url + reverse("admin:jobs_agentjob_changelist"))
    watch.evaluate("window.kept = true")
    desk.goto(live_server.url + reverse("admin:jobs_agentjob_change", args=[rows.queued.pk]))
    desk.evaluate("window.kept = true")
    AgentJob.objects.request_cancel(rows.queued.pk, by="ada", reason="Not needed")
    expect(desk.locator("#live-part")).to_contain_text("Cancelled by ada", timeout=15_000)
    expect(desk.locator("#live-said")).to_have_text("cancelled")
    expect(desk.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    row = watch.locator("tr", has_text=str(rows.queued.pk)[:8])
    expect(row.locator(".field-state")).to_contain_text("cancelled", timeout=15_000)
    assert desk.evaluate("window.kept")
    assert watch.evaluate("window.kept")


def test_a_token_is_issued_on_its_own_page_with_the_runners_command(desk: Page, rows: Rows, live_server: Any) -> None:
    desk.goto(live_server.url + reverse("admin:jobs_agent_change", args=[rows.agent.pk]))
    desk.get_by_role("link", name="Issue token").click()
    desk.get_by_label("Note").fill("Actions")
    desk.get_by_role("button", name="Issue token").click()
    expect(desk.locator("#token")).to_contain_text("ags_r_")
    expect(desk.locator("#commands")).to_contain_text("agentstore-runner run --server")
    assert AuditEvent.objects.filter(tag="token_issued").count() == 1


def test_a_task_is_closed_by_force_through_the_same_dialog(desk: Page, rows: Rows, live_server: Any) -> None:
    desk.goto(live_server.url + reverse("admin:jobs_agenttask_change", args=[rows.task.pk]))
    desk.get_by_role("button", name="Close by force").click()
    desk.get_by_role("dialog").get_by_label("Reason").fill("Host is gone")
    desk.get_by_role("dialog").get_by_role("button", name="Close by force").click()
    expect(desk.get_by_text("Closed by force.")).to_be_visible()
    assert AgentTask.objects.get(pk=rows.task.pk).status == "cancelled"


def test_a_bar_of_the_front_page_leads_to_its_list_and_trends_to_the_run(
    desk: Page, rows: Rows, live_server: Any
) -> None:
    desk.goto(live_server.url + reverse("admin:index"))
    desk.locator("svg a", has=desk.locator(".as-fill-worse")).click()
    expect(desk.locator("#result_list tbody tr")).to_have_count(1)
    desk.goto(live_server.url + reverse("admin:index"))
    desk.get_by_text("As a table: Jobs that ended").click()
    desk.locator(".as-numbers a", has_text="1").first.click()
    expect(desk.locator("#result_list tbody tr")).to_have_count(1)
    desk.get_by_role("link", name="Trends").click()
    desk.get_by_label("Agent").select_option(rows.agent.principal_key)
    desk.get_by_role("button", name="Show", exact=True).click()
    desk.locator(".as-matrix thead a").click()
    expect(desk.get_by_text("The work itself failed")).to_be_visible()
