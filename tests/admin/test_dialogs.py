"""What the dialogs do: cancel, force, retry, state and tokens of agents; and how they say no."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import Agent, AgentJob, AgentTask, AuditEvent
from jobs.services import execution
from tests.admin.conftest import Rows

BAD_TEXTS = ["", "   ", "a\x00b", "x" * 501, "x" * 5_000_000]


def post(client: Client, name: str, row: object, **typed: str) -> object:
    """Send a dialog as htmx does."""
    url = reverse(f"admin:jobs_{name}", args=[row.pk])  # type: ignore[attr-defined]
    return client.post(url, {"_form_submitted": "on", **typed}, headers={"HX-Request": "true"})


def shown(client: Client, answer: object) -> str:
    """The page that a dialog leads to."""
    page = client.get(answer["HX-Redirect"])  # type: ignore[index]
    assert page.status_code == 200
    return page.content.decode()


def test_cancelling_a_waiting_job_closes_it_with_the_reason_in_the_trail(
    rows: Rows, login: Callable[[str], Client]
) -> None:
    client = login("Operators")
    page = shown(client, post(client, "agentjob_cancel_row", rows.queued, reason="Wrong <branch>"))
    assert "Wrong &lt;branch&gt;" in page
    job = AgentJob.objects.get(pk=rows.queued.pk)
    assert (job.status, job.cancel_requested_by, job.cancel_reason) == ("cancelled", "operators", "Wrong <branch>")
    assert AuditEvent.objects.get(subject_id=job.pk).reason == "Wrong <branch>"


def test_cancelling_a_running_job_asks_its_agent_and_a_second_cancel_changes_nothing(
    rows: Rows, superuser: Client
) -> None:
    page = shown(superuser, post(superuser, "agentjob_cancel_row", rows.running, reason="Stop"))
    assert "asked to stop" in page
    assert AgentJob.objects.get(pk=rows.running.pk).status == "running"
    page = shown(superuser, post(superuser, "agentjob_cancel_row", rows.running, reason="Stop!"))
    assert "nothing was changed" in page
    assert AgentJob.objects.get(pk=rows.running.pk).cancel_reason == "Stop"


def test_force_closes_a_running_job_and_says_that_the_agent_may_still_work(rows: Rows, superuser: Client) -> None:
    page = shown(superuser, post(superuser, "agentjob_force_row", rows.running, reason="Host is gone"))
    assert "may still be working" in page
    assert AgentJob.objects.get(pk=rows.running.pk).ended_by == "person"


def test_two_people_who_press_retry_get_one_attempt(rows: Rows, superuser: Client) -> None:
    first = post(superuser, "agentjob_retry_row", rows.failed, reason="Disk is bigger now")
    second = post(superuser, "agentjob_retry_row", rows.failed, reason="Disk is bigger now")
    again = AgentJob.objects.get(retry_of=rows.failed)
    page = reverse("admin:jobs_agentjob_change", args=[again.pk])
    assert first["HX-Redirect"] == second["HX-Redirect"] == page  # type: ignore[index]
    assert "retried already" in shown(superuser, second)


@pytest.mark.parametrize("verb", ["cancel", "force"])
def test_an_ended_job_is_left_as_it_is_and_the_refusal_is_shown(verb: str, rows: Rows, superuser: Client) -> None:
    answer = post(superuser, f"agentjob_{verb}_row", rows.failed, reason="Too late")
    assert "ended already" in shown(superuser, answer)
    assert AgentJob.objects.get(pk=rows.failed.pk).status == "failed"


def test_a_queued_job_is_not_retried(rows: Rows, superuser: Client) -> None:
    assert "not retried" in shown(superuser, post(superuser, "agentjob_retry_row", rows.queued, reason="Now"))
    assert not AgentJob.objects.filter(retry_of=rows.queued).exists()


@pytest.mark.parametrize("verb", ["cancel", "force"])
def test_tasks_have_the_same_dialogs(verb: str, rows: Rows, superuser: Client) -> None:
    shown(superuser, post(superuser, f"agenttask_{verb}_row", rows.task, reason="Host moves"))
    assert AgentTask.objects.get(pk=rows.task.pk).status == "cancelled"


@pytest.mark.parametrize("reason", BAD_TEXTS, ids=lambda text: f"{text[:4]!r}x{len(text)}")
@pytest.mark.parametrize("name", ["agentjob_cancel_row", "agentjob_force_row", "agentjob_retry_row"])
def test_a_reason_that_cannot_be_kept_is_refused_at_the_field_and_stays_typed(
    name: str, reason: str, rows: Rows, superuser: Client
) -> None:
    row = rows.failed if "retry" in name else rows.running
    answer = post(superuser, name, row, reason=reason)
    assert answer.status_code == 200  # type: ignore[attr-defined]
    form = answer.context["form"]  # type: ignore[attr-defined]
    assert form.errors["reason"]
    assert form["reason"].value() == reason
    assert not AuditEvent.objects.filter(subject_id=row.pk).exclude(tag="enqueued").exists()


@pytest.mark.parametrize("object_id", ["x", "%00", "00000000-0000-0000-0000-000000000000", "9" * 300])
@pytest.mark.parametrize("name", ["agentjob/{}/cancel/", "agentjob/{}/retry/", "agenttask/{}/force/", "agent/{}/state/",
                                  "agenttoken/{}/revoke/", "agent/{}/token/"])  # fmt: skip
def test_a_dialog_of_no_row_is_not_found(name: str, object_id: str, rows: Rows, superuser: Client) -> None:
    typed = {"_form_submitted": "on", "reason": "because", "state": "paused", "note": "because"}
    url = f"/admin/jobs/{name.format(object_id)}"
    assert superuser.post(url, typed).status_code == 404
    assert superuser.get(url).status_code == 404


def test_pausing_an_agent_needs_a_note_and_takes_an_end(rows: Rows, superuser: Client) -> None:
    refused = post(superuser, "agent_set_state", rows.agent, state="paused")
    assert "Say why" in refused.content.decode()  # type: ignore[attr-defined]
    until = (timezone.now() + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M")
    shown(superuser, post(superuser, "agent_set_state", rows.agent, state="paused", note="Disk", until=until))
    agent = Agent.objects.get(pk=rows.agent.pk)
    assert (agent.state, agent.state_note) == ("paused", "Disk")
    assert agent.state_until is not None


@pytest.mark.parametrize("until", ["yesterday", "2001-01-01T00:00", "99999-01-01T00:00", "\x00", "x" * 5_000_000])
def test_an_end_that_is_no_time_ahead_is_refused_at_the_field(until: str, rows: Rows, superuser: Client) -> None:
    answer = post(superuser, "agent_set_state", rows.agent, state="paused", note="Disk", until=until)
    assert answer.context["form"].errors["until"]  # type: ignore[attr-defined]
    assert Agent.objects.get(pk=rows.agent.pk).state == "active"


def test_a_revoked_token_is_refused_at_once(rows: Rows, superuser: Client) -> None:
    post(superuser, "agenttoken_revoke", rows.token, reason="Leaked")
    rows.token.refresh_from_db()
    assert rows.token.revoked_by == "superuser"
    with pytest.raises(execution.Unauthenticated):
        execution.authenticate(bearer=rows.token.bearer)  # type: ignore[attr-defined]


def test_a_token_is_shown_once_and_kept_nowhere(
    rows: Rows, superuser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    url = reverse("admin:jobs_agent_token", args=[rows.agent.pk])
    answer = superuser.post(url, {"note": "Actions"})
    bearer = answer.context["issued"].bearer
    page = answer.content.decode()
    assert page.count(bearer) == 1
    assert "no-store" in answer["Cache-Control"]
    assert execution.authenticate(bearer=bearer).agent == rows.agent
    assert bearer not in caplog.text
    assert bearer not in str(dict(superuser.session.items()))
    for later in (url, reverse("admin:jobs_agent_change", args=[rows.agent.pk])):
        assert bearer not in superuser.get(later).content.decode()
    assert AuditEvent.objects.get(tag="token_issued").reason == "Actions"
