"""Who may open which page: every address of the admin over our tables, for every kind of person."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from tests.admin.conftest import GROUPS, ROLES, Rows

EVERYBODY = frozenset({"nobody", "Viewers", "Operators", "Governors", "superuser"})
VIEWERS = EVERYBODY - {"nobody"}
OPERATORS = VIEWERS - {"Viewers"}
GOVERNORS = OPERATORS - {"Operators"}
NOBODY: frozenset[str] = frozenset()

# Each address by its name, and who may GET it. A new address fails the test below until it has its line.
MAY_OPEN = {
    "jobs_agentjob_changelist": VIEWERS,
    "jobs_agentjob_live": VIEWERS,
    "jobs_agentjob_trends": VIEWERS,
    "jobs_agentjob_cancel_many": OPERATORS,
    "jobs_agentjob_retry_many": OPERATORS,
    "jobs_agentjob_part": VIEWERS,
    "jobs_agentjob_results": VIEWERS,
    "jobs_agentjob_change": VIEWERS,
    "jobs_agentjob_history": VIEWERS,
    "jobs_agentjob_add": OPERATORS,
    "jobs_agentjob_cancel_row": OPERATORS,
    "jobs_agentjob_retry_row": OPERATORS,
    "jobs_agentjob_force_row": GOVERNORS,
    "jobs_agentjob_hold_row": GOVERNORS,
    "jobs_agentjob_release_row": GOVERNORS,
    "jobs_agentjob_acknowledge_row": OPERATORS,
    "jobs_agentjob_reopen_row": OPERATORS,
    "jobs_agentjob_delete": NOBODY,
    "jobs_agenttask_changelist": VIEWERS,
    "jobs_agenttask_change": VIEWERS,
    "jobs_agenttask_history": VIEWERS,
    "jobs_agenttask_add": NOBODY,
    "jobs_agenttask_cancel_row": OPERATORS,
    "jobs_agenttask_retry_row": OPERATORS,
    "jobs_agenttask_force_row": GOVERNORS,
    "jobs_agenttask_delete": NOBODY,
    "jobs_agent_changelist": VIEWERS,
    "jobs_agent_change": VIEWERS,
    "jobs_agent_history": VIEWERS,
    "jobs_agent_add": GOVERNORS,
    "jobs_agent_set_state": GOVERNORS,
    "jobs_agent_token": GOVERNORS,
    "jobs_agent_delete": NOBODY,
    "jobs_agenttoken_changelist": GOVERNORS,
    "jobs_agenttoken_change": GOVERNORS,
    "jobs_agenttoken_history": GOVERNORS,
    "jobs_agenttoken_revoke": GOVERNORS,
    "jobs_agenttoken_add": NOBODY,
    "jobs_agenttoken_delete": NOBODY,
    "jobs_enrolmentcode_changelist": GOVERNORS,
    "jobs_enrolmentcode_change": GOVERNORS,
    "jobs_enrolmentcode_history": GOVERNORS,
    "jobs_enrolmentcode_add": GOVERNORS,
    "jobs_enrolmentcode_revoke": GOVERNORS,
    "jobs_enrolmentcode_delete": NOBODY,
    "jobs_jobkind_changelist": VIEWERS,
    "jobs_jobkind_change": VIEWERS,
    "jobs_jobkind_history": VIEWERS,
    "jobs_jobkind_add": GOVERNORS,
    "jobs_jobkind_delete": NOBODY,
    "jobs_target_changelist": VIEWERS,
    "jobs_target_change": VIEWERS,
    "jobs_target_history": VIEWERS,
    "jobs_target_add": GOVERNORS,
    "jobs_target_delete": NOBODY,
    "jobs_githubtrust_changelist": GOVERNORS,
    "jobs_githubtrust_change": GOVERNORS,
    "jobs_githubtrust_history": GOVERNORS,
    "jobs_githubtrust_add": GOVERNORS,
    "jobs_githubtrust_token": GOVERNORS,
    "jobs_githubtrust_delete": NOBODY,
    "jobs_maintenanceduty_changelist": VIEWERS,
    "jobs_maintenanceduty_change": VIEWERS,
    "jobs_maintenanceduty_history": VIEWERS,
    "jobs_maintenanceduty_add": NOBODY,
    "jobs_maintenanceduty_delete": NOBODY,
    "jobs_schedule_changelist": VIEWERS,
    "jobs_schedule_change": VIEWERS,
    "jobs_schedule_history": VIEWERS,
    "jobs_schedule_preview": VIEWERS,
    "jobs_schedule_add": GOVERNORS,
    "jobs_schedule_edit": GOVERNORS,
    "jobs_schedule_run": OPERATORS,
    "jobs_schedule_pause": OPERATORS,
    "jobs_schedule_resume": OPERATORS,
    "jobs_schedule_retire": GOVERNORS,
    "jobs_schedule_delete": NOBODY,
    "jobs_scheduleslot_changelist": VIEWERS,
    "jobs_scheduleslot_change": VIEWERS,
    "jobs_scheduleslot_history": VIEWERS,
    "jobs_scheduleslot_add": NOBODY,
    "jobs_scheduleslot_delete": NOBODY,
    "jobs_backuprepository_changelist": VIEWERS,
    "jobs_backuprepository_change": VIEWERS,
    "jobs_backuprepository_history": VIEWERS,
    "jobs_backuprepository_add": GOVERNORS,
    "jobs_backuprepository_edit": GOVERNORS,
    "jobs_backuprepository_trust": GOVERNORS,
    "jobs_backuprepository_maintain": GOVERNORS,
    "jobs_backuprepository_retire": GOVERNORS,
    "jobs_backuprepository_delete": NOBODY,
    "jobs_backupjob_changelist": VIEWERS,
    "jobs_backupjob_change": VIEWERS,
    "jobs_backupjob_history": VIEWERS,
    "jobs_backupjob_add": GOVERNORS,
    "jobs_backupjob_edit": GOVERNORS,
    "jobs_backupjob_run": OPERATORS,
    "jobs_backupjob_pause": GOVERNORS,
    "jobs_backupjob_resume": GOVERNORS,
    "jobs_backupjob_retire": GOVERNORS,
    "jobs_backupjob_delete": NOBODY,
    "jobs_backupjobrun_changelist": VIEWERS,
    "jobs_backupjobrun_change": VIEWERS,
    "jobs_backupjobrun_history": VIEWERS,
    "jobs_backupjobrun_part": VIEWERS,
    "jobs_backupjobrun_cancel": OPERATORS,
    "jobs_backupjobrun_retry": OPERATORS,
    "jobs_backupjobrun_add": NOBODY,
    "jobs_backupjobrun_delete": NOBODY,
    "jobs_backupjobsource_changelist": VIEWERS,
    "jobs_backupjobsource_change": VIEWERS,
    "jobs_backupjobsource_history": VIEWERS,
    "jobs_backupjobsource_add": GOVERNORS,
    "jobs_backupjobsource_edit": GOVERNORS,
    "jobs_backupjobsource_restore": GOVERNORS,
    "jobs_backupjobsource_retire": GOVERNORS,
    "jobs_backupjobsource_delete": NOBODY,
    "jobs_backupsnapshot_changelist": VIEWERS,
    "jobs_backupsnapshot_change": VIEWERS,
    "jobs_backupsnapshot_history": VIEWERS,
    "jobs_backupsnapshot_part": VIEWERS,
    "jobs_backupsnapshot_list": OPERATORS,
    "jobs_backupsnapshot_add": NOBODY,
    "jobs_backupsnapshot_delete": NOBODY,
    "jobs_auditevent_changelist": GOVERNORS,
    "jobs_auditevent_change": GOVERNORS,
    "jobs_auditevent_history": GOVERNORS,
    "jobs_auditevent_add": NOBODY,
    "jobs_auditevent_delete": NOBODY,
    "jobs_noticechannel_changelist": GOVERNORS,
    "jobs_noticechannel_change": GOVERNORS,
    "jobs_noticechannel_history": GOVERNORS,
    "jobs_noticechannel_add": GOVERNORS,
    "jobs_noticechannel_secret": GOVERNORS,
    "jobs_noticechannel_send_test": GOVERNORS,
    "jobs_noticechannel_delete": NOBODY,
    "jobs_noticerule_changelist": GOVERNORS,
    "jobs_noticerule_change": GOVERNORS,
    "jobs_noticerule_history": GOVERNORS,
    "jobs_noticerule_add": GOVERNORS,
    "jobs_noticerule_delete": NOBODY,
    "jobs_notice_changelist": GOVERNORS,
    "jobs_notice_change": GOVERNORS,
    "jobs_notice_history": GOVERNORS,
    "jobs_notice_send_again": GOVERNORS,
    "jobs_notice_add": NOBODY,
    "jobs_notice_delete": NOBODY,
}
TABLES = (
    "agent_jobs", "agent_tasks", "agents", "agent_tokens", "enrolment_codes", "enrolments", "job_kinds", "audit_events",
    "agent_job_events",
    "agent_task_events", "agent_events", "targets", "target_origins", "maintenance_duties", "legal_holds", "auth_user",
    "github_trusts", "github_spent_tokens",
    "auth_group", "django_admin_log",
    "acknowledgements", "notice_channels", "notice_rules", "notices", "schedules", "schedule_slots",
    "backup_repositories", "backup_jobs", "backup_job_sources", "backup_job_runs", "backup_snapshots",
)  # fmt: skip

ASKING = (
    "_row", "_set_state", "_revoke", "_token", "_add", "_secret", "_test", "_again", "_edit", "_run", "_pause",
    "_resume", "_retire", "_cancel", "_retry", "_trust", "_restore",
)  # fmt: skip


def addresses(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    """The names of all addresses, those of included lists too."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns)
        elif pattern.name:
            yield pattern.name


def address(name: str, rows: Rows) -> str:
    """An address of this name, with the row that it is about."""
    table = name.split("_")[1]
    subject = {
        "agentjob": rows.failed, "agenttask": rows.task, "agent": rows.agent, "agenttoken": rows.token,
        "enrolmentcode": rows.code,
        "jobkind": rows.kind, "target": rows.target, "auditevent": rows.event, "maintenanceduty": rows.duty,
        "githubtrust": rows.trust,
        "noticechannel": rows.channel, "noticerule": rows.rule, "notice": rows.notice,
        "schedule": rows.schedule, "scheduleslot": rows.slot,
        "backuprepository": rows.repository, "backupjob": rows.backup_job, "backupjobrun": rows.run,
        "backupsnapshot": rows.snapshot, "backupjobsource": rows.source,
    }  # fmt: skip
    if name.endswith(("_changelist", "_add", "_live", "_trends", "_many", "_preview", "githubtrust_token")):
        return reverse(f"admin:{name}")
    return reverse(f"admin:{name}", args=[subject[table].pk])


def contents() -> dict[str, list[tuple[object, ...]]]:
    """Every row of the governed tables, as text."""
    with connection.cursor() as cursor:
        found = {}
        for table in TABLES:
            cursor.execute(f"SELECT t::text FROM {table} t ORDER BY 1")
            found[table] = cursor.fetchall()
    return found


def test_every_address_of_our_tables_is_placed() -> None:
    named = {name for name in addresses(admin.site.urls[0]) if name.startswith(("jobs_", "artifacts_"))}
    assert named == set(MAY_OPEN)


@pytest.mark.parametrize("name", MAY_OPEN)
def test_an_address_opens_for_those_who_may_and_changes_nothing(
    name: str, rows: Rows, login: Callable[[str], Client]
) -> None:
    clients = {role: login(role) for role in ROLES}
    url, before = address(name, rows), contents()
    for role, client in clients.items():
        answer = client.get(url)
        if role == "anonymous":
            assert answer.status_code == 302
            assert answer["Location"].startswith("/admin/login/")
        elif role in MAY_OPEN[name]:
            assert answer.status_code in (200, 302), role
            assert "login" not in answer.get("Location", ""), role
        else:
            assert answer.status_code == 403, role
    assert contents() == before


@pytest.mark.parametrize("name", MAY_OPEN)
def test_a_post_without_the_permission_changes_nothing(name: str, rows: Rows, login: Callable[[str], Client]) -> None:
    clients = {role: login(role) for role in ROLES if role not in MAY_OPEN[name]}
    url, before = address(name, rows), contents()
    for role, client in clients.items():
        answer = client.post(url, {
            "_form_submitted": "on", "reason": "because", "state": "disabled", "note": "n", "key": "new", "name": "new",
            "agent": rows.agent.principal_key, "spec": '{"title": "x"}', "post": "yes", "_save": "Save",
        })  # fmt: skip
        assert answer.status_code == (302 if role == "anonymous" else 403), role
    assert contents() == before


@pytest.mark.parametrize(
    "name", ["jobs_agentjob_change", "jobs_agenttask_change", "jobs_agent_change", "jobs_schedule_change"]
)
def test_nobody_edits_a_governed_row_by_a_forged_form(name: str, rows: Rows, superuser: Client) -> None:
    before = contents()
    superuser.post(address(name, rows), {"status": "done", "verdict": "pass", "state": "disabled", "_save": "Save"})
    assert contents() == before


@pytest.mark.parametrize(
    "table",
    [
        "agentjob",
        "agenttask",
        "agent",
        "jobkind",
        "target",
        "schedule",
        "scheduleslot",
        "auditevent",
        "maintenanceduty",
    ],
)
def test_no_action_of_a_list_deletes_or_changes_rows(table: str, rows: Rows, superuser: Client) -> None:
    before = contents()
    chosen = [str(rows.queued.pk), str(rows.task.pk), str(rows.agent.pk), str(rows.kind.pk), str(rows.target.pk)]
    superuser.post(
        reverse(f"admin:jobs_{table}_changelist"),
        {"action": "delete_selected", "_selected_action": chosen, "select_across": "1", "post": "yes"},
    )
    assert contents() == before


def test_every_dialog_wants_the_token_against_forgery(rows: Rows, superuser: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = superuser.cookies
    before = contents()
    for name, allowed in MAY_OPEN.items():
        if name.endswith(ASKING) and allowed:
            answer = strict.post(address(name, rows), {"_form_submitted": "on", "reason": "because"})
            assert answer.status_code == 403, name
    assert contents() == before


def test_each_group_may_do_what_the_one_below_may() -> None:
    assert GROUPS["Viewers"] < GROUPS["Operators"] < GROUPS["Governors"]
