"""Failures that are known: acknowledged, assigned, muted until a date, and news again after it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import Acknowledgement, AgentJob, AuditEvent
from jobs.services import governance
from tests.admin.conftest import Rows, end, running

LIST = reverse("admin:jobs_agentjob_changelist")


def act(client: Client, name: str, job: AgentJob, **said: str) -> Any:
    """Send a dialog about a job."""
    url = reverse(f"admin:jobs_agentjob_{name}_row", args=[job.pk])
    return client.post(url, {"_form_submitted": "on", "reason": "the disk is ordered"} | said)


def failed(rows: Rows) -> AgentJob:
    """Another failure of the same kind on the same agent."""
    token = rows.token
    return end(running(rows.agent, token), token, status="failed", error="No disk", failure_class="configuration")


def counted(client: Client) -> tuple[int, int]:
    """New and known failures on the front page; each must be the length of the list that it leads to."""
    tiles = {str(tile.label): tile for tile in client.get(reverse("admin:index")).context["tiles"]}
    found = [tiles["Failed"], tiles["Known failures"]]
    for tile in found:
        assert client.get(tile.url).context["cl"].result_count == tile.value, tile.label
    return found[0].value, found[1].value


def test_an_acknowledged_failure_is_no_news_and_the_next_one_is(rows: Rows, superuser: Client) -> None:
    assert counted(superuser) == (1, 0)
    act(superuser, "acknowledge", rows.failed, assignee="superuser")
    assert counted(superuser) == (0, 1)
    assert superuser.get(f"{LIST}?news=mine").context["cl"].result_count == 1
    failed(rows)
    assert counted(superuser) == (1, 1)

    shown = superuser.get(reverse("admin:jobs_agentjob_part", args=[rows.failed.pk])).content.decode()
    assert "the disk is ordered" in shown
    assert "failure acknowledged" in shown
    line = AuditEvent.objects.get(tag="acknowledged")
    assert (line.actor, line.reason, line.details["assignee"]) == ("superuser", "the disk is ordered", "superuser")


def test_a_mute_covers_the_next_failures_of_its_kind_on_its_agent_and_ends_by_itself(
    rows: Rows, superuser: Client
) -> None:
    until = (timezone.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    act(superuser, "acknowledge", rows.failed, muted_until=until)
    later = failed(rows)
    assert counted(superuser) == (0, 2)
    shown = superuser.get(reverse("admin:jobs_agentjob_part", args=[later.pk])).content.decode()
    assert "an earlier failure of this kind on this agent" in shown

    Acknowledgement.objects.update(muted_until=Now() - timedelta(minutes=1))
    assert counted(superuser) == (2, 0)


def test_a_mute_hides_no_other_kind_and_no_other_agent(rows: Rows, superuser: Client) -> None:
    until = (timezone.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    act(superuser, "acknowledge", rows.failed, muted_until=until)
    AgentJob.objects.filter(pk=rows.queued.pk).update(status="running", kind="other")
    AgentJob.objects.filter(pk=rows.queued.pk).update(status="failed", finished_at=Now())
    assert counted(superuser) == (1, 1)


def test_a_failure_is_reopened(rows: Rows, superuser: Client) -> None:
    act(superuser, "acknowledge", rows.failed)
    act(superuser, "reopen", rows.failed)
    assert counted(superuser) == (1, 0)
    assert AuditEvent.objects.filter(tag="reopened").count() == 1


def test_what_is_said_belongs_to_the_chain_and_so_holds_for_its_next_attempt(rows: Rows, superuser: Client) -> None:
    act(superuser, "acknowledge", rows.failed)
    again = governance.retry(AgentJob.objects.all(), rows.failed.pk, by="ada", reason="perhaps")
    AgentJob.objects.filter(pk=again).update(status="running")
    AgentJob.objects.filter(pk=again).update(status="failed", finished_at=Now())
    assert counted(superuser) == (0, 1)


@pytest.mark.parametrize("said", [
    {"reason": ""}, {"reason": "\x00"}, {"reason": "x" * 501}, {"assignee": "nobody-known"}, {"assignee": "\x00"},
    {"muted_until": "2001-01-01T00:00"}, {"muted_until": "tomorrow"}, {"muted_until": "9" * 500},
], ids=str)  # fmt: skip
def test_what_cannot_be_said_is_refused_at_its_field(said: dict[str, str], rows: Rows, superuser: Client) -> None:
    answer = act(superuser, "acknowledge", rows.failed, **said)
    assert answer.status_code == 200
    assert not Acknowledgement.objects.exists()


def test_only_what_went_wrong_is_acknowledged(rows: Rows, superuser: Client) -> None:
    for job in (rows.queued, rows.running):
        assert "Only a failure" in act(superuser, "acknowledge", job).content.decode()
    assert "not acknowledged" in act(superuser, "reopen", rows.failed).content.decode()
    assert not Acknowledgement.objects.exists()


def test_saying_it_again_replaces_what_was_said(rows: Rows, superuser: Client) -> None:
    act(superuser, "acknowledge", rows.failed, reason="first")
    act(superuser, "acknowledge", rows.failed, reason="second")
    assert [said.reason for said in Acknowledgement.objects.all()] == ["second"]
