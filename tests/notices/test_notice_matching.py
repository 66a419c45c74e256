"""Which events become notices: the first failure and the recovery of each subject, and nothing else."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from jobs.models import AgentJob, AgentTask, Event, MaintenanceDuty, NoticeRule, NoticeState, Uptime
from jobs.services import acknowledging, governance
from jobs.services.notices.matching import match
from tests.admin.conftest import end, running
from tests.factories import AgentFactory, AgentJobFactory, AgentTaskFactory, TokenFactory
from tests.notices.conftest import WORK, ended, told

Listen = Callable[..., NoticeRule]
pytestmark = pytest.mark.django_db


def kinds_of(*ends: dict[str, str]) -> list[str]:
    """The events of the notices that these ends, one after another, make."""
    for columns in ends:
        ended(**columns)
    match()
    return [event for event, _ in told()]


BAD = {"status": "failed", "error": "no disk"}
FAIL, RISK, GOOD = {"verdict": "fail"}, {"verdict": "risk"}, {"verdict": "pass"}


@pytest.mark.parametrize(("ends", "expected"), [
    ([GOOD], []),
    ([BAD], ["failed"]),
    ([FAIL], ["failed"]),
    ([RISK], ["risk"]),
    ([BAD, BAD, FAIL, BAD], ["failed"]),
    ([BAD, GOOD], ["failed", "recovered"]),
    ([BAD, GOOD, GOOD, BAD, GOOD], ["failed", "recovered", "failed", "recovered"]),
    ([RISK, BAD], ["risk", "failed"]),
    ([BAD, RISK, GOOD], ["failed", "recovered"]),
    ([RISK, RISK, GOOD], ["risk", "recovered"]),
    ([BAD, {"status": "cancelled"}, BAD], ["failed"]),
    ([{"status": "cancelled"}], []),
])  # fmt: skip
def test_the_first_failure_and_the_recovery_are_told_and_repetitions_are_not(
    ends: list[dict[str, str]], expected: list[str], listen: Listen
) -> None:
    listen()
    assert kinds_of(*ends) == expected


@pytest.mark.parametrize(("listens_to", "ends", "expected"), [
    ([Event.FAILED], [BAD, GOOD, BAD], ["failed", "failed"]),
    ([Event.RISK], [BAD, RISK, BAD], ["risk"]),
    ([Event.FAILED, Event.RECOVERED], [BAD, RISK, GOOD], ["failed", "recovered"]),
    ([Event.FAILED, Event.RECOVERED], [RISK, GOOD], []),
    ([Event.RISK, Event.RECOVERED], [RISK, BAD, GOOD], ["risk", "recovered"]),
])  # fmt: skip
def test_a_rule_hears_what_it_listens_to(
    listens_to: list[Event], ends: list[dict[str, str]], expected: list[str], listen: Listen
) -> None:
    listen(listens_to)
    assert kinds_of(*ends) == expected


def test_what_is_told_in_one_turn_is_what_is_told_in_many(listen: Listen) -> None:
    listen()
    for columns in (BAD, BAD, GOOD, RISK, BAD, GOOD):
        ended(**columns)
        match()
    assert [event for event, _ in told()] == ["failed", "recovered", "risk", "failed", "recovered"]


def test_each_kind_agent_and_schedule_fails_and_recovers_by_itself(listen: Listen) -> None:
    listen()
    other = AgentFactory(principal_key="fw")
    ended(**BAD)
    ended(kind="report", **BAD)
    ended(other, **BAD)
    ended(labels={"schedule": "nightly"}, **BAD)
    ended(**GOOD)
    match()
    assert sorted(told()) == sorted([
        ("failed", "Failed: echo on ci"), ("failed", "Failed: report on ci"), ("failed", "Failed: echo on fw"),
        ("failed", "Failed: echo on ci"), ("recovered", "Good again: echo on ci"),
    ])  # fmt: skip


def test_a_rule_that_names_a_label_tells_its_values_apart(listen: Listen) -> None:
    listen(label="branch")
    ended(labels={"branch": "main"}, **BAD)
    ended(labels={"branch": "topic"}, **GOOD)
    ended(**BAD)
    match()
    assert [event for event, _ in told()] == ["failed"]


@pytest.mark.parametrize(("matches", "hears"), [
    ({"kind": "echo"}, True), ({"kind": "report"}, False), ({"agent": "ci"}, True), ({"agent": "fw"}, False),
    ({"schedule": "nightly"}, True), ({"schedule": "weekly"}, False), ({"label": "team"}, True),
    ({"label": "team=shop"}, True), ({"label": "team=other"}, False), ({"label": "branch"}, False),
    ({"label": "n=7"}, True), ({"kind": "echo", "agent": "fw"}, False),
])  # fmt: skip
def test_a_rule_matches_only_what_it_names(matches: dict[str, str], hears: bool, listen: Listen) -> None:
    rule = listen()
    NoticeRule.objects.filter(pk=rule.pk).update(**matches)
    ended(labels={"schedule": "nightly", "team": "shop", "n": 7}, **BAD)
    match()
    assert bool(told()) is hears


def test_what_happened_before_the_first_look_and_under_a_rule_that_is_off_is_not_told(listen: Listen) -> None:
    ended(**BAD)
    rule = listen()
    NoticeRule.objects.filter(pk=rule.pk).update(enabled=False)
    ended(**BAD)
    match()
    NoticeRule.objects.filter(pk=rule.pk).update(enabled=True)
    match()
    assert told() == []


def test_a_failure_that_is_retried_by_itself_is_none_until_the_last_attempt_fails(listen: Listen) -> None:
    listen()
    token = TokenFactory()
    first = end(running(token.agent, token), token, status="failed", error="cut off", failure_class="transient")
    match()
    assert told() == []

    second = AgentJob.objects.get(retry_of=first.pk)
    AgentJob.objects.filter(pk=second.pk).update(max_attempts=2, not_before=None, status="running")
    AgentJob.objects.filter(pk=second.pk).update(status="failed", error="cut off again")
    match()
    assert [event for event, _ in told()] == ["failed"]


def test_a_failure_that_a_person_retries_with_success_is_told_as_recovered(listen: Listen) -> None:
    listen()
    failed = ended(**BAD)
    match()
    again = governance.retry(AgentJob.objects.all(), failed.pk, by="ada", reason="the disk is empty now")
    AgentJob.objects.filter(pk=again).update(status="running")
    AgentJob.objects.filter(pk=again).update(status="done")
    match()
    assert [event for event, _ in told()] == ["failed", "recovered"]


def test_the_ends_that_the_clock_and_people_make_are_seen_as_well(listen: Listen) -> None:
    listen()
    token = TokenFactory()
    lost = running(token.agent, token)
    AgentJob.objects.filter(pk=lost.pk).update(heartbeat_at=Now() - timedelta(hours=1), max_attempts=1)
    assert len(AgentJob.objects.reap()) == 1
    waiting = AgentJobFactory(agent=token.agent, kind="late")
    AgentJob.objects.filter(pk=waiting.pk).update(expires_at=Now() - timedelta(hours=1))
    assert len(AgentJob.objects.expire()) == 1
    match()
    assert [title for _, title in told()] == [f"Failed: echo on {token.agent.principal_key}"]


def test_backup_tasks_fail_succeed_in_part_and_recover_too(listen: Listen) -> None:
    listen()
    first = AgentTaskFactory()
    rows = AgentTask.objects.filter(pk=first.pk)
    ends: tuple[dict[str, str], ...] = (
        {"status": "partial_failure"}, {"status": "failed", "failure_class": "repository", "error_message": "damaged"},
        {"status": "succeeded"},
    )  # fmt: skip
    for end_of in ends:
        task = AgentTaskFactory(agent=first.agent, job_source=first.job_source)
        rows = AgentTask.objects.filter(pk=task.pk)
        AgentTask.objects.claim(task.pk, agent=first.agent_id, kinds=["backup"], digest="x", row_id=task.pk)
        rows.update(completed_at=Now(), **end_of)
    match()
    assert [event for event, _ in told()] == ["risk", "failed", "recovered"]


def test_a_muted_failure_is_not_told_and_is_told_once_the_mute_is_over(listen: Listen) -> None:
    listen()
    known = ended(**BAD)
    match()
    acknowledging.acknowledge(
        job_id=known.pk, by="ada", reason="the disk is ordered", muted_until=timezone.now() + timedelta(days=1)
    )
    ended(**GOOD)
    ended(**BAD)
    match()
    assert [event for event, _ in told()] == ["failed", "recovered"]
    acknowledging.reopen(job_id=known.pk, by="ada", reason="it came")
    ended(**BAD)
    match()
    assert [event for event, _ in told()] == ["failed", "recovered", "failed"]


def test_an_agent_that_falls_silent_and_is_heard_again_is_told_once_each(listen: Listen) -> None:
    listen([Event.AGENT_SILENT, Event.RECOVERED])
    agent = AgentFactory(principal_key="fw", presence="resident", last_seen_at=timezone.now() - timedelta(hours=1))
    AgentFactory(presence="on-demand", last_seen_at=timezone.now() - timedelta(hours=1))
    AgentFactory(presence="resident", last_seen_at=None)
    Uptime.objects.create(up_since=timezone.now() - timedelta(hours=2))
    match()
    match()
    assert told() == [("agent_silent", "Agent fw is silent")]

    # After an outage nobody can have been heard: neither news nor a recovery.
    Uptime.objects.update(up_since=Now())
    AgentFactory(presence="resident", last_seen_at=timezone.now() - timedelta(hours=1))
    match()
    assert len(told()) == 1

    type(agent).objects.filter(pk=agent.pk).update(last_seen_at=Now())
    match()
    assert told()[1] == ("recovered", "Good again: agent silent of fw")


def test_a_token_is_told_a_week_before_it_expires_once_and_its_revocation_is_no_news(listen: Listen) -> None:
    listen([Event.TOKEN_EXPIRING, Event.RECOVERED])
    token = TokenFactory(expires_at=timezone.now() + timedelta(days=6))
    TokenFactory(expires_at=timezone.now() + timedelta(days=8))
    TokenFactory(expires_at=timezone.now() - timedelta(days=1))
    TokenFactory()
    match()
    match()
    assert [event for event, _ in told()] == ["token_expiring"]
    assert token.prefix in told()[0][1]
    type(token).objects.filter(pk=token.pk).update(revoked_at=Now(), revoked_by="ada")
    match()
    assert len(told()) == 1
    assert not NoticeState.objects.exists()


def test_a_duty_that_fails_again_and_again_is_told_and_so_is_its_recovery(listen: Listen) -> None:
    listen([Event.DUTY_FAILING, Event.RECOVERED])
    MaintenanceDuty.objects.create(name="sweep", failures=2, last_error="no route")
    match()
    assert told() == []
    MaintenanceDuty.objects.update(failures=3)
    match()
    match()
    assert told() == [("duty_failing", "Maintenance fails: sweep")]
    MaintenanceDuty.objects.update(failures=0)
    match()
    assert told()[1] == ("recovered", "Good again: maintenance failing of sweep")


def test_a_rule_that_is_narrowed_or_stops_listening_tells_no_recovery_until_it_is_good(listen: Listen) -> None:
    rule = listen([Event.AGENT_SILENT, Event.FAILED, Event.RECOVERED])
    hour = timezone.now() - timedelta(hours=1)
    agent = AgentFactory(principal_key="fw", presence="resident", last_seen_at=hour)
    Uptime.objects.create(up_since=timezone.now() - timedelta(hours=2))
    match()
    for changed in ({"agent": "other"}, {"listens_to": ["failed", "recovered"]}):
        NoticeRule.objects.filter(pk=rule.pk).update(**changed)
        match()
        assert [event for event, _ in told()] == ["agent_silent"]
    type(agent).objects.filter(pk=agent.pk).update(last_seen_at=Now())
    match()
    assert [event for event, _ in told()] == ["agent_silent", "recovered"]


def test_secrets_in_an_error_that_sql_stored_do_not_leave(listen: Listen) -> None:
    rule = listen(WORK)
    ended(status="failed", error="curl: (6) https://ada:hunter2hunter2@example.org refused ghp_" + "a1" * 18)
    match()
    body = rule.notices.get().body
    assert "refused" in body
    assert "hunter2" not in body
    assert "ghp_" not in body


def test_the_notice_of_a_job_leads_to_its_latest_attempt_and_names_its_chain(listen: Listen) -> None:
    rule = listen()
    job = ended(labels={"branch": "main"}, **BAD)
    match()
    notice = rule.notices.get()
    assert (notice.root_id, notice.body) == (job.root_id, "no disk\nbranch=main")
    assert notice.path == f"/admin/jobs/agentjob/{job.pk}/change/"
