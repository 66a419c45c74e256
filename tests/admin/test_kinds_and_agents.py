"""Registering agents and kinds, and changing kinds: through the services, with each problem at its field."""

import json

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Agent, JobKind
from jobs.services.shipped_kinds import sync_kinds
from tests.admin.conftest import Rows

ADD_KIND = reverse("admin:jobs_jobkind_add")
ADD_AGENT = reverse("admin:jobs_agent_add")


def kind_form(**other: str) -> dict[str, str]:
    """A form that is right, apart from `other`."""
    right = {"name": "report.monthly", "title": "Report", "description": "", "enabled": "on", "max_attempts": "3",
             "lease_seconds": "", "max_run_seconds": "3600", "expire_after_seconds": "",
             "retry_jitter_percent": "10", "schema": '{"type": "object"}'}  # fmt: skip
    return right | other


def test_an_agent_is_registered_once(rows: Rows, superuser: Client) -> None:
    form = {"key": "fw-7", "title": "Host 7", "presence": "resident"}
    answer = superuser.post(ADD_AGENT, form)
    agent = Agent.objects.get(principal_key="fw-7")
    assert answer["Location"] == reverse("admin:jobs_agent_change", args=[agent.pk])
    assert superuser.post(ADD_AGENT, form).context["form"].errors["key"]


@pytest.mark.parametrize(("field", "value"), [
    ("key", ""), ("key", "a b"), ("key", "a\x00b"), ("key", " a"), ("key", "x" * 201), ("key", "x" * 5_000_000),
    ("title", "\x00"), ("title", "x" * 501), ("presence", "sometimes"),
], ids=lambda text: text[:8])  # fmt: skip
def test_an_agent_that_cannot_be_is_refused_at_the_field(field: str, value: str, rows: Rows, superuser: Client) -> None:
    before = Agent.objects.count()
    answer = superuser.post(ADD_AGENT, {"key": "k", "title": "t", "presence": "resident"} | {field: value})
    assert answer.context["form"].errors[field]
    assert answer.context["form"][field].value() == value
    assert Agent.objects.count() == before


def test_a_kind_is_registered_and_changed_but_keeps_its_name(rows: Rows, superuser: Client) -> None:
    superuser.post(ADD_KIND, kind_form())
    kind = JobKind.objects.get(name="report.monthly")
    url = reverse("admin:jobs_jobkind_change", args=[kind.pk])
    superuser.post(url, kind_form(name="other", title="Monthly report", lease_seconds="60", enabled=""))
    kind.refresh_from_db()
    assert (kind.name, kind.title, kind.lease_seconds, kind.enabled) == ("report.monthly", "Monthly report", 60, False)


@pytest.mark.parametrize(("field", "value"), [
    ("name", "echo"), ("name", "a b"), ("name", "\x00"), ("name", "x" * 101), ("title", "x" * 2001),
    ("description", "\x00"), ("max_attempts", "0"), ("max_attempts", "9" * 5000), ("lease_seconds", "14"),
    ("max_run_seconds", "99999999999999999999"), ("expire_after_seconds", "0"), ("retry_jitter_percent", "101"),
    ("retry_after_lost", "soon"), ("retry_after_lost", "5"), ("retry_after_lost", "-5m"), ("retry_after_lost", "\x00"),
    ("retry_after_lost", "8d"), ("retry_after_lost", "never 5m"), ("retry_after_lost", "1m " * 11),
    ("retry_after_lost", "999999999m"), ("retry_after_lost", "5m … 6m"), ("schema", "{"),
    ("schema", "[]"), ("schema", '{"type": 7}'),
    ("schema", '{"$ref": "https://example.org/x"}'), ("schema", '{"title": "\\u0000"}'), ("schema", "[" * 100_000),
], ids=lambda text: text[:12].encode("unicode_escape").decode())  # fmt: skip
def test_a_kind_that_cannot_be_is_refused_at_the_field(field: str, value: str, rows: Rows, superuser: Client) -> None:
    before = JobKind.objects.count()
    answer = superuser.post(ADD_KIND, kind_form(**{field: value}))
    assert answer.context["form"].errors[field]
    assert answer.context["form"][field].value() == value
    assert JobKind.objects.count() == before


def test_the_schema_of_a_shipped_kind_cannot_be_changed_but_its_limits_can(db: None, superuser: Client) -> None:
    sync_kinds()
    kind = JobKind.objects.get(name="uat.quick-task")
    url = reverse("admin:jobs_jobkind_change", args=[kind.pk])
    answer = superuser.post(url, kind_form(max_attempts="5", schema=json.dumps({"type": "object"})))
    assert answer.status_code == 302
    schema, kind = kind.schema, JobKind.objects.get(pk=kind.pk)
    assert (kind.schema, kind.max_attempts) == (schema, 5)


RULES_AS_TYPED = [
    ("5m 10m", {"delays": [300, 600], "repeats": False}),
    ("30s, 1h, 1d …", {"delays": [30, 3600, 86400], "repeats": True}),
    ("0s 90s ...", {"delays": [0, 90], "repeats": True}),
    ("Never", {"delays": [], "repeats": False}),
    ("", None),
]


@pytest.mark.parametrize(("typed", "stored"), RULES_AS_TYPED)
def test_a_retry_rule_is_stored_as_typed_and_shown_so_that_saving_again_changes_nothing(
    typed: str, stored: object, rows: Rows, superuser: Client
) -> None:
    url = reverse("admin:jobs_jobkind_change", args=[rows.kind.pk])
    superuser.post(url, kind_form(retry_after_lost=typed, expire_after_seconds="600", retry_jitter_percent="0"))
    kind = JobKind.objects.get(pk=rows.kind.pk)
    assert kind.retry_rules == ({} if stored is None else {"lost": stored})
    assert (kind.expire_after_seconds, kind.retry_jitter_percent) == (600, 0)

    shown = {field.name: field.value() for field in superuser.get(url).context["form"]}
    superuser.post(url, {name: "" if value is None else value for name, value in shown.items()})
    assert JobKind.objects.get(pk=rows.kind.pk).retry_rules == kind.retry_rules


def test_the_page_of_a_kind_opens_whatever_sql_wrote_as_its_policy(rows: Rows, superuser: Client) -> None:
    url = reverse("admin:jobs_jobkind_change", args=[rows.kind.pk])
    for stored in ([], 7, "x", {"lost": "x"}, {"lost": {"delays": ["<b>"], "repeats": True}}, {"x": {}}):
        JobKind.objects.update(retry_rules=stored)
        assert superuser.get(url).status_code == 200
        page = reverse("admin:jobs_agentjob_change", args=[rows.failed.pk])
        assert superuser.get(page).status_code == 200


def test_every_field_of_a_kind_stands_in_one_group_of_its_page(rows: Rows, superuser: Client) -> None:
    form = superuser.get(reverse("admin:jobs_jobkind_change", args=[rows.kind.pk])).context["form"]
    shown = [field.name for group in form.groups for field in group.fields]
    assert sorted(shown) == sorted(form.fields)
