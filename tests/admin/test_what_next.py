"""What a job's page says of a failure: which attempt follows and when, or why none does."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.engine.failure_classes import RULES
from jobs.models import AgentJob, JobKind
from tests.admin.conftest import Rows, end, running

PERSON = "A person may retry it, beyond the attempts too."


def said(client: Client, job: AgentJob) -> str:
    return str(client.get(reverse("admin:jobs_agentjob_part", args=[job.pk])).context["next"])


def fail(token: Any, failure_class: str, **columns: Any) -> AgentJob:
    job = running(token.agent, token)
    AgentJob.objects.filter(pk=job.pk).update(**columns)
    return end(job, token, status="failed", error="broken", failure_class=failure_class)


def test_the_next_attempt_is_told_with_its_number_and_time(rows: Rows, superuser: Client) -> None:
    job = fail(rows.token, "transient")
    retry = AgentJob.objects.filter(retry_of=job)
    at = timezone.now() + timedelta(minutes=4)
    retry.update(not_before=at)
    text = said(superuser, job)
    assert text.startswith("Attempt 2 of 3 starts by itself at ")
    assert f"{at:%H:%M} UTC, in 3 min" in text
    retry.update(not_before=None)
    assert said(superuser, job) == "Attempt 2 of 3 waits for the agent."
    retry.update(status="cancelled")
    assert said(superuser, job) == "Attempt 2 of 3 followed."


@pytest.mark.parametrize(
    ("failure_class", "columns", "why"),
    [
        ("source", {}, "a failure of this class comes back until it is mended."),
        ("transient", {"max_attempts": 1}, "all 1 attempts are used up."),
    ],
)
def test_a_failure_that_is_not_tried_again_says_why_and_what_a_person_may_do(
    failure_class: str, columns: dict[str, Any], why: str, rows: Rows, superuser: Client
) -> None:
    job = fail(rows.token, failure_class, **columns)
    assert said(superuser, job) == f"Not tried again by itself: {why} {PERSON}"


def test_a_policy_that_was_changed_after_the_failure_does_not_rewrite_it(rows: Rows, superuser: Client) -> None:
    JobKind.objects.update(retry_rules={"transient": {"delays": [], "repeats": False}})
    job = fail(rows.token, "transient")
    JobKind.objects.update(retry_rules={})
    assert "the policy of its kind was another one when it failed." in said(superuser, job)


def test_the_whole_policy_stands_on_the_page(rows: Rows, superuser: Client) -> None:
    JobKind.objects.update(retry_rules={"lost": {"delays": [5, 7200], "repeats": True}}, max_run_seconds=600)
    context = superuser.get(reverse("admin:jobs_agentjob_part", args=[rows.failed.pk])).context
    lines = {line.word: line for line in context["policy"]}
    assert set(lines) == set(RULES)
    assert lines["lost"].retries == "after 5 s, 2 h, then every 2 h"
    assert lines["interrupted"].retries == "at once, at once"
    assert lines["source"].retries == "not by itself"
    assert [word for word, line in lines.items() if line.is_this] == ["configuration"]
    assert ("Maximum run time", "10 min") in context["limits"]


def test_a_job_past_its_time_says_that_the_clock_asked_it_to_stop(rows: Rows, superuser: Client) -> None:
    AgentJob.objects.filter(pk=rows.running.pk).update(started_at=timezone.now() - timedelta(days=2))
    AgentJob.objects.stop_overdue()
    context = superuser.get(reverse("admin:jobs_agentjob_part", args=[rows.running.pk])).context
    assert context["sentence"].startswith("Its maximum run time has passed; its runner was asked to stop")


def test_a_tasks_page_says_what_follows_too(rows: Rows, superuser: Client) -> None:
    row = type(rows.task).objects.filter(pk=rows.task.pk)
    row.update(status="claimed", claimed_at=timezone.now())
    row.update(status="failed", error_message="broken", failure_class="lost", completed_at=timezone.now())
    page = superuser.get(reverse("admin:jobs_agenttask_change", args=[rows.task.pk]))
    assert "a client wrote this row in SQL" in page.content.decode()
    assert "Retry policy" in page.content.decode()
