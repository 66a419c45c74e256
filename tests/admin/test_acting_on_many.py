"""Cancel and retry of what was chosen in the list: bounded, confirmed, each job told and in the trail by itself."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from jobs.models import AgentJob, AuditEvent
from jobs.services import bulk
from jobs.services.errors import Invalid
from tests.admin.conftest import Rows, end, in_chromium
from tests.factories import AgentJobFactory, TokenFactory

LIST = "/admin/jobs/agentjob/"


def ask(client: Client, verb: str, *jobs: AgentJob, query: str = "", **more: str) -> Any:
    """Choose jobs in the list and the action."""
    chosen = [str(job.pk) for job in jobs]
    return client.post(LIST + query, {"action": f"{verb}_chosen", "_selected_action": chosen, **more})


def confirm(client: Client, page: Any, **typed: Any) -> Any:
    """Answer the page that asks."""
    fields = {"chosen": page.context["form"]["chosen"].value(), "number": page.context["number"], "reason": "Because"}
    return client.post(page.context["url"], fields | typed)


def test_each_chosen_job_is_cancelled_asked_or_left_and_told_so(rows: Rows, superuser: Client) -> None:
    page = ask(superuser, "cancel", rows.queued, rows.running, rows.failed)
    assert page.context["number"] == 3
    told = confirm(superuser, page, reason="Wrong <branch>")
    assert told.context["summary"] == "1 cancelled, 1 asked to stop, 1 left as they were"
    assert AgentJob.objects.get(pk=rows.queued.pk).cancel_reason == "Wrong <branch>"
    assert AgentJob.objects.get(pk=rows.running.pk).cancel_requested_by == "superuser"
    lines = AuditEvent.objects.filter(tag="cancel_requested", actor="superuser", reason="Wrong <branch>")
    assert {line.subject_id for line in lines} == {rows.queued.pk, rows.running.pk}
    assert "ended already" in told.content.decode()


def test_a_job_that_ends_while_the_page_asks_is_left_and_counted_so(rows: Rows, superuser: Client) -> None:
    page = ask(superuser, "cancel", rows.queued, rows.running)
    end(rows.running, rows.token, status="done", verdict="pass")
    assert confirm(superuser, page).context["summary"] == "1 cancelled, 1 left as they were"
    assert AgentJob.objects.get(pk=rows.running.pk).status == "done"


def test_a_job_that_is_queued_while_the_page_asks_is_not_touched(rows: Rows, superuser: Client) -> None:
    page = ask(superuser, "cancel", rows.queued, query="?status=queued", select_across="1")
    later = AgentJobFactory(agent=rows.agent)
    assert confirm(superuser, page).context["summary"] == "1 cancelled"
    assert AgentJob.objects.get(pk=later.pk).status == "queued"


def test_failed_jobs_are_retried_once_however_often_the_page_is_sent(rows: Rows, superuser: Client) -> None:
    page = ask(superuser, "retry", rows.failed, rows.queued)
    first, second = confirm(superuser, page), confirm(superuser, page)
    assert first.context["summary"] == "1 retried, 1 left as they were"
    assert second.context["summary"] == "2 left as they were"
    again = AgentJob.objects.get(retry_of=rows.failed)
    assert reverse("admin:jobs_agentjob_change", args=[again.pk]) in first.content.decode()


def test_all_that_match_the_filter_are_chosen_up_to_the_bound(
    rows: Rows, superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.admin.bulk.AT_MOST", 4)
    old = AgentJobFactory.create_batch(3, agent=rows.agent, queued_at="2026-01-01T00:00Z")
    new = AgentJobFactory.create_batch(3, agent=rows.agent)
    page = ask(superuser, "cancel", new[0], query="?status=queued", select_across="1")
    assert page.context["number"] == 4
    assert "More than 4 match" in page.content.decode()
    assert confirm(superuser, page).context["summary"] == "4 cancelled"
    assert not AgentJob.objects.filter(pk__in=[job.pk for job in old], status="cancelled").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 2), ("number", ""), ("number", "x"), ("number", "9" * 5000), ("reason", ""), ("reason", "   "),
     ("reason", "a\x00b"), ("reason", "x" * 501)],
)  # fmt: skip
def test_without_the_right_number_and_a_reason_nothing_happens(
    field: str, value: Any, rows: Rows, superuser: Client
) -> None:
    answer = confirm(superuser, ask(superuser, "cancel", rows.queued), **{field: value})
    assert list(answer.context["form"].errors) == [field]
    assert AgentJob.objects.get(pk=rows.queued.pk).status == "queued"
    assert confirm(superuser, answer).context["summary"] == "1 cancelled"


@pytest.mark.parametrize("chosen", ["", "x", "\x00", ",", "1," * 100_000, f"{UUID(int=7)},"])
def test_what_is_no_list_of_jobs_leads_back_to_the_list(chosen: str, rows: Rows, superuser: Client) -> None:
    for verb in ("cancel", "retry"):
        url = reverse(f"admin:jobs_agentjob_{verb}_many")
        answer = superuser.post(url, {"chosen": chosen, "number": 1, "reason": "Because"})
        assert (answer.status_code, answer["Location"]) == (302, LIST)


def test_ids_of_nothing_are_left(rows: Rows, superuser: Client) -> None:
    url = reverse("admin:jobs_agentjob_cancel_many")
    answer = superuser.post(url, {"chosen": str(uuid4()), "number": 1, "reason": "Because"})
    assert answer.context["summary"] == "1 left as they were"


def test_who_may_only_look_is_offered_no_action_and_can_send_none(rows: Rows, login: Any) -> None:
    viewer = login("Viewers")
    assert "cancel_chosen" not in viewer.get(LIST).content.decode()
    ask(viewer, "cancel", rows.queued)
    url = reverse("admin:jobs_agentjob_cancel_many")
    assert viewer.post(url, {"chosen": str(rows.queued.pk), "number": 1, "reason": "x"}).status_code == 403
    assert AgentJob.objects.get(pk=rows.queued.pk).status == "queued"


@pytest.mark.parametrize("number", [0, bulk.AT_MOST + 1])
def test_the_service_refuses_more_than_its_bound_before_it_does_anything(number: int, db: None) -> None:
    with pytest.raises(Invalid):
        bulk.cancel_many(job_ids=[uuid4() for _ in range(number)], by="ada", reason="Because")


@pytest.mark.lengthy
class TestInABrowser:
    pytestmark = in_chromium

    def test_jobs_are_ticked_and_cancelled_with_a_number_and_a_reason(
        self, desk: Page, rows: Rows, live_server: Any
    ) -> None:
        AgentJobFactory.create_batch(2, agent=TokenFactory().agent)
        desk.goto(f"{live_server.url}{LIST}?status=queued")
        desk.locator("#action-toggle").check()
        desk.locator("select[name=action]").select_option("cancel_chosen")
        desk.get_by_role("button", name="Run").click()
        desk.get_by_label("Number of jobs").fill("2")
        desk.get_by_label("Reason").fill("Wrong branch")
        desk.get_by_role("button", name="Cancel jobs").click()
        expect(desk.get_by_text("These are 3 jobs.")).to_be_visible()
        desk.get_by_label("Number of jobs").fill("3")
        desk.get_by_role("button", name="Cancel jobs").click()
        expect(desk.get_by_role("status")).to_have_text("3 cancelled")
        assert AgentJob.objects.filter(status="cancelled", cancel_reason="Wrong branch").count() == 3
