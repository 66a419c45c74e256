"""create_agent, issue_token, enqueue, cancel, retry, sync_kinds: what they do, say and refuse."""

import io
import json
import os
import pwd
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import CommandError
from django.db.models.functions import Now
from django.utils import timezone

from jobs.management.operator_command import OperatorCommand
from jobs.models import Agent, AgentJob, AgentToken, AuditEvent, JobKind
from jobs.services import execution, token_format
from jobs.services.kinds import CONTRACTS
from tests.commands.conftest import API_SPEC

Run = Callable[..., str]
KIND = "uat.quick-task"


def enqueue(run: Run, *words: str) -> AgentJob:
    told = json.loads(run("enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(API_SPEC), "--json", *words))
    return AgentJob.objects.get(pk=told["id"])


def fail(job: AgentJob) -> None:
    row = AgentJob.objects.filter(pk=job.pk)
    row.update(status="running", claim_id=uuid.uuid4(), claimed_by="runner", started_at=Now())
    row.update(status="failed", error="No browser.", failure_class="configuration", finished_at=Now())


def test_create_agent_registers_an_agent_and_says_what_comes_next(run: Run, db: None) -> None:
    said = run("create_agent", "berlin", "--title", "CI in Berlin", "--presence", "resident")

    agent = Agent.objects.get(principal_key="berlin")
    assert (agent.title, agent.presence) == ("CI in Berlin", "resident")
    assert agent.registered_at is not None
    assert "issue_token berlin" in said


def test_create_agent_refuses_a_key_that_is_taken(run: Run, agent: Agent) -> None:
    with pytest.raises(CommandError, match=r"^key: There is an agent of that key already\.$"):
        run("create_agent", "ci")


def test_issue_token_prints_only_the_bearer_and_warns_beside_it(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("issue_token", "ci", "--note", "laptop", "--expires-in", "90d")

    printed = capsys.readouterr()
    bearer = printed.out.removesuffix("\n")
    assert execution.authenticate(bearer=bearer).agent == agent
    assert "shown only now" in printed.err
    assert bearer not in printed.err
    token = AgentToken.objects.get()
    assert token.note == "laptop"
    assert token.expires_at is not None
    assert token.expires_at - timezone.now() > timedelta(days=89)


def test_issue_token_as_json_names_the_token_and_its_agent(run: Run, agent: Agent) -> None:
    told = json.loads(run("issue_token", "ci", "--json"))

    token = AgentToken.objects.get()
    assert told == {
        "id": str(token.pk),
        "agent": "ci",
        "prefix": token.prefix,
        "expires_at": None,
        "token": told["token"],
    }
    assert token_format.digest(told["token"]) == token.digest


def test_issue_token_refuses_an_unknown_agent(run: Run, db: None) -> None:
    with pytest.raises(CommandError, match=r"^key: There is no agent 'nobody'\.$"):
        run("issue_token", "nobody")


def test_enqueue_queues_the_spec_with_everything_that_was_asked(run: Run, agent: Agent) -> None:
    job = enqueue(
        run, "--priority", "7", "--not-before", "2130-01-31T08:00+02:00", "--expires-at", "2130-02-01T00:00Z",
        "--dedupe-key", "nightly", "--concurrency-key", "shop", "--label", "branch=main", "--label", "note=a=b",
        "--by", "schedule:nightly",
    )  # fmt: skip

    assert job.spec == json.loads(API_SPEC.read_bytes())
    assert (job.priority, job.dedupe_key, job.concurrency_key) == (7, "nightly", "shop")
    assert (str(job.not_before), str(job.expires_at)) == ("2130-01-31 06:00:00+00:00", "2130-02-01 00:00:00+00:00")
    assert job.labels == {"branch": "main", "note": "a=b"}
    assert job.created_by == "schedule:nightly"


def test_enqueue_reads_the_spec_from_standard_input(run: Run, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(API_SPEC.read_bytes())))

    told = json.loads(run("enqueue", "--agent", "ci", "--kind", KIND, "--spec", "-", "--json"))

    assert AgentJob.objects.get(pk=told["id"]).spec["title"] == "API health and contract"


def test_who_acts_is_the_account_of_the_system_and_stands_in_both_histories(run: Run, agent: Agent) -> None:
    job = enqueue(run)

    actor = f"command:{pwd.getpwuid(os.geteuid()).pw_name}"
    assert job.created_by == actor
    assert AuditEvent.objects.get(subject_id=job.pk).actor == actor
    event: Any = apps.get_model("jobs", "AgentJobEvent").objects.get(pgh_obj_id=job.pk)
    assert event.pgh_context.metadata["actor"] == actor


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b'{"a": 1, "a": 2}', "The key 'a' appears twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": }', "Not JSON: Expecting value at line 1, column 7"),
        (b"\xff\xfe{}", "Not UTF-8 at byte 0"),
        (b"[" * 65 + b"]" * 65, "Nested deeper than 64 levels"),
        (b'{"a": "\\u0000"}', "spec/a: The text holds a NUL"),
        (b" " * 3_000_000, "more than 2,097,152 bytes"),
        (b"[]", "A spec is a JSON object"),
    ],
)  # fmt: skip
def test_enqueue_refuses_a_spec_that_is_no_clean_json_with_the_place(
    run: Run, agent: Agent, tmp_path: Path, text: bytes, fault: str
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_bytes(text)

    with pytest.raises(CommandError, match=r"^spec") as refused:
        run("enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(spec))

    assert fault in str(refused.value)
    assert not AgentJob.objects.exists()


def test_enqueue_names_every_problem_on_a_line_of_its_own(run: Run, db: None) -> None:
    with pytest.raises(CommandError) as refused:
        run("enqueue", "--agent", "nobody", "--kind", "nothing", "--spec", str(API_SPEC), "--priority", "1000")

    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == ["agent", "kind", "priority"]


def test_enqueue_names_the_job_that_holds_the_dedupe_key(run: Run, agent: Agent) -> None:
    first = enqueue(run, "--dedupe-key", "nightly")

    with pytest.raises(CommandError, match=str(first.pk)):
        enqueue(run, "--dedupe-key", "nightly")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["enqueue", "--agent", "ci", "--kind", KIND, "--spec", "/nowhere/spec.json"], "spec: '/nowhere/spec.json'"),
        (["enqueue", "--agent", "\udcff", "--kind", KIND, "--spec", str(API_SPEC)], "agent: The text is not UTF-8"),
        (["enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(API_SPEC), "--label", "x=\udcff"], "labels:"),
        (["enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(API_SPEC), "--label", "x"], "'x' is no label"),
        (["enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(API_SPEC), "--not-before", "2130-01-01"], "zone"),
        (
            ["enqueue", "--agent", "ci", "--kind", KIND, "--spec", str(API_SPEC), "--not-before", "0001-01-01T00:00Z"],
            "outside the years",
        ),
        (["issue_token", "ci", "--expires-in", "0d"], "'0d' is no duration"),
        (["issue_token", "ci", "--expires-in", "99999w"], "'99999w' is no duration"),
        (["issue_token", "ci", "--by", " "], "by: Say who acts."),
        (["cancel", str(uuid.uuid4()), "--reason", "x"], "There is no such object."),
        (["cancel", "not-a-uuid", "--reason", "x"], "JOB: invalid UUID value: 'not-a-uuid'"),
        (["retry", str(uuid.uuid4()), "--reason", " "], "reason: Say why"),
        (["maintain", "--loop", "31"], "'31' is no pace"),
        (["maintain", "--loop", "nan"], "'nan' is no pace"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_name_and_the_reason(
    run: Run, agent: Agent, words: list[str], fault: str
) -> None:
    with pytest.raises(CommandError) as refused:
        run(*words)

    assert fault in str(refused.value)


def test_cancel_closes_a_job_that_waits_at_once(run: Run, agent: Agent) -> None:
    job = enqueue(run)

    told = json.loads(run("cancel", str(job.pk), "--reason", "wrong branch", "--json"))

    job.refresh_from_db()
    assert told == {"id": str(job.pk), "outcome": "closed"}
    assert (job.status, job.cancel_reason) == ("cancelled", "wrong branch")


def test_cancel_of_an_ended_job_is_refused(run: Run, agent: Agent) -> None:
    job = enqueue(run)
    run("cancel", str(job.pk), "--reason", "wrong branch")

    with pytest.raises(CommandError, match="has ended already"):
        run("cancel", str(job.pk), "--reason", "wrong branch")


def test_retry_queues_the_next_attempt_once(run: Run, agent: Agent) -> None:
    job = enqueue(run)
    fail(job)

    told = json.loads(run("retry", str(job.pk), "--reason", "the browser is there now", "--json"))

    again = AgentJob.objects.get(pk=told["id"])
    assert (again.retry_of_id, again.attempt, again.status) == (job.pk, 2, "queued")
    with pytest.raises(CommandError, match=str(again.pk)):
        run("retry", str(job.pk), "--reason", "the browser is there now")


def test_sync_kinds_registers_what_ships_and_changes_nothing_the_second_time(run: Run, db: None) -> None:
    assert json.loads(run("sync_kinds", "--json")) == {"created": list(CONTRACTS), "updated": []}
    assert json.loads(run("sync_kinds", "--json")) == {"created": [], "updated": []}
    assert {kind.name: kind.schema for kind in JobKind.objects.all()} == {
        name: contract.schema for name, contract in CONTRACTS.items()
    }


def test_sync_kinds_updates_a_schema_and_keeps_what_an_admin_set(run: Run, agent: Agent) -> None:
    mine = {"title": "Ours", "description": "Short", "max_attempts": 1, "lease_seconds": 60, "max_run_seconds": 61}
    JobKind.objects.filter(name=KIND).update(schema={"type": "object"}, enabled=False, **mine)

    assert json.loads(run("sync_kinds", "--json")) == {"created": [], "updated": [KIND]}

    kind = JobKind.objects.get(name=KIND)
    assert kind.schema == CONTRACTS[KIND].schema
    assert {name: getattr(kind, name) for name in mine} == mine
    assert not kind.enabled


@pytest.mark.parametrize("name", [name for name, app in get_commands().items() if app == "jobs" and name != "migrate"])
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    command = load_command_class("jobs", name)

    assert isinstance(command, OperatorCommand)
    page = command.create_parser("manage.py", name).format_help()
    assert command.help.split(".")[0].split(":")[0] in " ".join(page.split())
    assert f"example:\n  {command.example}" in page
    assert name in command.example


def test_a_job_waits_as_long_as_its_kind_says_unless_it_says_so_itself(run: Run, agent: Agent) -> None:
    assert enqueue(run).expires_at is None
    JobKind.objects.update(expire_after_seconds=600)
    job = enqueue(run)
    assert job.expires_at is not None
    assert timedelta(seconds=599) <= job.expires_at - job.queued_at <= timedelta(seconds=660)
    assert enqueue(run, "--expires-at", "2999-01-01T00:00Z").expires_at == datetime(2999, 1, 1, tzinfo=UTC)
    later = enqueue(run, "--not-before", "2900-01-01T00:00Z")
    assert later.expires_at == datetime(2900, 1, 1, 0, 10, tzinfo=UTC)
