"""People of each group, rows in each state, and a browser, for the tests of the admin."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import ConsoleMessage, Page, expect

from jobs.models import (
    Agent,
    AgentJob,
    AgentTask,
    AgentToken,
    AuditEvent,
    BackupJob,
    BackupJobRun,
    BackupJobSource,
    BackupRepository,
    BackupSnapshot,
    EnrolmentCode,
    GithubTrust,
    JobKind,
    MaintenanceDuty,
    Notice,
    NoticeChannel,
    NoticeRule,
    Schedule,
    ScheduleSlot,
    Target,
)
from jobs.services import reports
from jobs.services.execution import Caller, Runner, claim, finish
from tests.factories import (
    AgentJobFactory,
    AgentTaskFactory,
    BackupJobFactory,
    BackupJobRunFactory,
    BackupJobSourceFactory,
    BackupSnapshotFactory,
    EnrolmentCodeFactory,
    GithubTrustFactory,
    JobKindFactory,
    NoticeChannelFactory,
    NoticeFactory,
    NoticeRuleFactory,
    ScheduleFactory,
    ScheduleSlotFactory,
    TargetFactory,
    TokenFactory,
)

# Playwright's loop runs in this thread, and Django would refuse queries beside it, those of the flush too.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_chromium = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.django_db(transaction=True),
]

GROUPS: dict[str, frozenset[str]] = import_module("jobs.migrations.0020_groups").GROUPS
ROLES = ("anonymous", "nobody", "Viewers", "Operators", "Governors", "superuser")

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "title": "Title", "maxLength": 50},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["title"],
    "additionalProperties": False,
}


def person(role: str) -> User:
    """A member of staff with exactly the permissions of a group; flushes of other tests remove the groups' rows."""
    user = User.objects.create_user(
        role.lower(), password="a password", is_staff=True, is_superuser=role == "superuser"
    )
    user.user_permissions.set(Permission.objects.filter(codename__in=GROUPS.get(role, ())))
    return user


@pytest.fixture
def login(db: None) -> Callable[[str], Client]:
    """A client of somebody with this role."""

    def log_in(role: str) -> Client:
        client = Client()
        if role != "anonymous":
            client.force_login(User.objects.filter(username=role.lower()).first() or person(role))
        return client

    return log_in


@pytest.fixture
def superuser(login: Callable[[str], Client]) -> Client:
    """A client of somebody who may do everything."""
    return login("superuser")


@dataclass(frozen=True)
class Rows:
    """One of everything."""

    agent: Agent
    token: AgentToken
    code: EnrolmentCode
    kind: JobKind
    queued: AgentJob
    running: AgentJob
    failed: AgentJob
    task: AgentTask
    target: Target
    trust: GithubTrust
    schedule: Schedule
    slot: ScheduleSlot
    event: AuditEvent
    duty: MaintenanceDuty
    channel: NoticeChannel
    rule: NoticeRule
    notice: Notice
    repository: BackupRepository
    backup_job: BackupJob
    source: BackupJobSource
    run: BackupJobRun
    snapshot: BackupSnapshot


@pytest.fixture
def rows(db: None) -> Rows:
    """One row of each table, and jobs in each state, as the services leave them."""
    token = TokenFactory()
    agent = token.agent
    kind = JobKindFactory(name="echo", schema=SCHEMA)
    channel = NoticeChannelFactory()
    failed = end(
        running(agent, token),
        token,
        status="failed",
        error="No disk left",
        failure_class="configuration",
        results={"a": 1},
    )
    backup_job = BackupJobFactory()
    source = BackupJobSourceFactory(job=backup_job, agent=agent, name="etc", host="web-1", paths=["/etc"])
    run = BackupJobRunFactory(job=backup_job, sources_total=1)
    schedule = ScheduleFactory(agent=agent, kind="echo", spec={"title": "Night"})
    return Rows(
        schedule=schedule, slot=ScheduleSlotFactory(schedule=schedule),
        agent=agent, token=token, code=EnrolmentCodeFactory(), kind=kind, failed=failed, running=running(agent, token),
        queued=AgentJobFactory(agent=agent, spec={"title": "Wait"}),
        task=AgentTaskFactory(agent=agent, job_run=run, job_source=source),
        target=TargetFactory(), trust=GithubTrustFactory(agent=agent),
        event=AuditEvent.objects.create(tag="enqueued", actor="ada", subject_table="agent_jobs", subject_id=failed.pk),
        duty=MaintenanceDuty.objects.create(name="reap"),
        channel=channel, rule=NoticeRuleFactory(channel=channel), notice=NoticeFactory(channel=channel),
        repository=backup_job.repository, backup_job=backup_job, source=source, run=run,
        snapshot=BackupSnapshotFactory(repository=backup_job.repository, source=source),
    )  # fmt: skip


def running(agent: Agent, token: AgentToken) -> AgentJob:
    """A job that the agent holds."""
    job = AgentJobFactory(agent=agent, spec={"title": "Work"})
    claim_id = uuid4()
    claimed = claim(
        caller=Caller(agent=agent, token_id=token.pk), rows=AgentJob.objects.all(), claim_id=claim_id, kinds=[job.kind],
        request={"claim_id": str(claim_id)}, runner=Runner(name="test", version="9"), row_id=job.pk,
    )  # fmt: skip
    assert claimed is not None
    return claimed.row


def end(job: AgentJob, token: AgentToken, **said: object) -> AgentJob:
    """The job as its runner's report leaves it."""
    report = reports.Report(digest=uuid4().hex, **said)
    caller = Caller(agent=token.agent, token_id=token.pk)
    assert job.claim_id
    finish(caller=caller, rows=AgentJob.objects.all(), row_id=job.pk, claim_id=job.claim_id, report=report)
    return AgentJob.objects.get(pk=job.pk)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Use the system's Chromium; its sandbox does not start as root."""
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": ["--no-sandbox"]}


@pytest.fixture
def said(page: Page) -> Iterator[list[str]]:
    """What the console says; at the end of the test it must have said nothing."""
    heard: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            heard.append(f"{message.type}: {message.text}")

    page.on("console", hear)
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield heard
    assert heard == []


@pytest.fixture
def desk(rows: Rows, page: Page, live_server: Any, said: list[str]) -> Page:
    """A page of a superuser who has logged in."""
    person("superuser")
    page.goto(f"{live_server.url}{reverse('admin:login')}")
    page.get_by_label("Username").fill("superuser")
    page.get_by_label("Password").fill("a password")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return page
