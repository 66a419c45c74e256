"""Codes in the admin: shown once with what to type, listed with what became of them, ended at once."""

import html
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from jobs.admin.connecting import UNIT, commands
from jobs.models import Agent, AuditEvent, EnrolmentCode
from jobs.services import enrolling
from jobs.services.errors import EnrolmentRefused
from tests.admin.conftest import Rows


def test_a_code_is_shown_once_with_the_commands_and_kept_nowhere(
    rows: Rows, superuser: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PUBLIC_URL = "https://jobs.example.com"
    url = reverse("admin:jobs_enrolmentcode_add")
    answer = superuser.post(url, {
        "title": "Rack 7", "uses": "3", "hours": "2", "name_prefix": "fw-", "agent_title": "", "presence": "resident",
        "agent_labels": "site = berlin\n\nowner=ada=eve", "agent": "",
    })  # fmt: skip
    code, page = answer.context["issued"].code, answer.content.decode()
    assert page.count(code) == 1
    assert "no-store" in answer["Cache-Control"]
    assert "enrol --server https://jobs.example.com --code-stdin --token-file /etc/agentstore-runner/token" in page
    made = EnrolmentCode.objects.get(title="Rack 7")
    assert (made.uses_left, made.agent_labels) == (3, {"site": "berlin", "owner": "ada=eve"})
    assert code not in caplog.text + str(dict(superuser.session.items()))
    for later in (url, reverse("admin:jobs_enrolmentcode_change", args=[made.pk])):
        assert code not in superuser.get(later).content.decode()
    assert AuditEvent.objects.get(tag="code_made").reason == "Rack 7"
    assert enrolling.enrol(code=code, request_id=uuid4(), name="fw-1").is_new


@pytest.mark.parametrize(
    ("field", "value"), [("title", ""), ("uses", "0"), ("hours", "9999"), ("agent", "nobody"), ("agent_labels", "x")]
)
def test_a_code_that_cannot_be_is_refused_at_the_field(field: str, value: str, rows: Rows, superuser: Client) -> None:
    said = {"title": "Rack 7", "uses": "1", "hours": "2", "presence": "resident"} | {field: value}
    answer = superuser.post(reverse("admin:jobs_enrolmentcode_add"), said)
    assert list(answer.context["form"].errors) == [field]


def connecting(client: Client, rows: Rows) -> str:
    """The section of the agent's page; empty where it has none."""
    page = client.get(reverse("admin:jobs_agent_change", args=[rows.agent.pk])).content.decode()
    _, _, section = page.partition('id="connect"')
    return html.unescape(section.partition("</section>")[0])


def test_the_page_of_an_agent_says_what_to_type_on_its_host(rows: Rows, superuser: Client, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://jobs.example.com"
    said = connecting(superuser, rows)
    for command in ("install", "enrol", "doctor", "run"):
        assert f"{command} --server https://jobs.example.com" in said or command == "install"
    assert "pip install agentstore-runner" in said
    assert "Environment=AGENTSTORE_URL=https://jobs.example.com\n" in said
    assert "--allow-http" not in said
    url = f"{reverse('admin:jobs_enrolmentcode_add')}?agent={rows.agent.principal_key}"
    assert url in said
    assert superuser.get(url).context["form"]["agent"].value() == rows.agent.principal_key


@pytest.mark.parametrize(
    ("server", "asks"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", False),
        ("http://jobs.lan", True),
        ("http://10.1.2.3", True),
    ],
)
def test_commands_ask_for_leave_where_the_token_would_travel_unencrypted(server: str, asks: bool) -> None:
    found = commands(server)
    for text in (found.enrol, found.doctor, found.run, found.unit):
        assert ("--allow-http" in text) is asks


def test_the_unit_is_the_one_of_the_repository_but_for_the_address() -> None:
    ours = UNIT.read_text().splitlines()
    told = commands("https://jobs.example.com/%7Ejobs").unit.splitlines()
    assert [after for before, after in zip(ours, told, strict=True) if before != after] == [
        "Environment=AGENTSTORE_URL=https://jobs.example.com/%%7Ejobs"
    ]


def test_only_those_who_may_let_a_host_in_are_told_how(rows: Rows, login: Callable[[str], Client]) -> None:
    assert connecting(login("Viewers"), rows) == connecting(login("Operators"), rows) == ""
    governor = login("Governors")
    assert "enrol --server" in connecting(governor, rows)
    User.objects.get(username="governors").user_permissions.remove(Permission.objects.get(codename="add_enrolmentcode"))
    said = connecting(login("Governors"), rows)
    assert "install -m 600 /dev/stdin" in said
    assert "enrol --server" not in said


def test_nobody_is_told_how_to_connect_a_host_to_a_retired_agent(rows: Rows, superuser: Client) -> None:
    Agent.objects.filter(pk=rows.agent.pk).update(state="disabled", state_note="gone")
    assert connecting(superuser, rows) == ""


def test_a_revoked_code_lets_nobody_in_and_its_page_says_who_came_before(rows: Rows, superuser: Client) -> None:
    made = enrolling.make_code(title="Rack 7", by="ada", uses=2)
    enrolling.enrol(code=made.code, request_id=uuid4(), name="fw-1", address="192.0.2.4")
    superuser.post(
        reverse("admin:jobs_enrolmentcode_revoke", args=[made.code_id]), {"_form_submitted": "on", "reason": "Leaked"}
    )
    with pytest.raises(EnrolmentRefused):
        enrolling.enrol(code=made.code, request_id=uuid4(), name="fw-2")
    page = superuser.get(reverse("admin:jobs_enrolmentcode_change", args=[made.code_id])).content.decode()
    for word in ("192.0.2.4", "fw-1", "revoked", "Leaked", "1 / 2"):
        assert word in page


def test_the_list_says_what_each_code_is_worth(rows: Rows, superuser: Client) -> None:
    enrolling.make_code(title="For a new one", by="ada", name_prefix="fw-")
    enrolling.make_code(title="For one", by="ada", agent=rows.agent.principal_key)
    page = superuser.get(reverse("admin:jobs_enrolmentcode_changelist")).content.decode()
    for word in ("For a new one", "fw-…", str(rows.agent), "live"):
        assert word in page
