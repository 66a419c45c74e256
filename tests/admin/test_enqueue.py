"""The enqueue page: one service call, each problem at its field, and what was typed is never lost."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import AgentJob, AuditEvent
from tests.admin.conftest import Rows
from tests.factories import JobKindFactory

URL = reverse("admin:jobs_agentjob_add") + "?kind=echo"


def typed(rows: Rows, **other: str) -> dict[str, str]:
    """A form that is right, apart from `other`."""
    return {"agent": rows.agent.principal_key, "spec": '{"title": "Go"}', "priority": "0"} | other


def test_a_right_form_queues_the_job_and_leads_to_it(rows: Rows, login: Callable[[str], Client]) -> None:
    client = login("Operators")
    sent = typed(rows, priority="7", dedupe_key="d", concurrency_key="c", not_before="2099-01-01T10:00",
                 expires_at="2099-01-02T10:00")  # fmt: skip
    answer = client.post(URL, sent)
    job = AgentJob.objects.get(dedupe_key="d")
    assert answer["Location"] == reverse("admin:jobs_agentjob_change", args=[job.pk])
    assert (job.spec, job.priority, job.concurrency_key, job.created_by) == ({"title": "Go"}, 7, "c", "operators")
    assert job.not_before is not None
    assert AuditEvent.objects.get(subject_id=job.pk).actor == "operators"


HOSTILE: list[tuple[str, str, str]] = [
    ("spec", "", "required"),
    ("spec", "{", "Not JSON"),
    ("spec", "[]", "object"),
    ("spec", "{}", "required"),
    ("spec", '{"title": "a\\u0000b"}', "NUL"),
    ("spec", '{"title": "a\\ud800b"}', "surrogate"),
    ("spec", '{"a\\u0000": 1}', "NUL"),
    ("spec", '{"title": "a\x00b"}', "control character"),
    ("spec", '{"title": NaN}', "NaN"),
    ("spec", '{"title": Infinity}', "Infinity"),
    ("spec", '{"title": 1e999}', "out of range"),
    ("spec", '{"title": ' + "9" * 5000 + "}", "out of range"),
    ("spec", '{"title": "a", "title": "b"}', "twice"),
    ("spec", "[" * 100_000, "Nested deeper"),
    ("spec", '{"title": "' + "x" * 5_000_000 + '"}', "bytes"),
    (
        "spec",
        '{"title": "Go", "steps": [{"n": 1}, {"n": "two"}]}',
        "steps \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} 2.",
    ),
    ("agent", "nobody", "not one of the available"),
    ("agent", "\x00", "not one of the available"),
    ("priority", "101", "100"),
    ("priority", "9" * 5000, "whole number"),
    ("priority", "\x00", "whole number"),
    ("not_before", "soon", "valid date"),
    ("not_before", "\x00", "valid date"),
    ("expires_at", "2001-01-01T00:00", "lie ahead"),
    ("dedupe_key", "x" * 201, "200"),
    ("dedupe_key", "a\x00b", "Null characters"),
    ("concurrency_key", "x" * 5_000_000, "200"),
]


@pytest.mark.parametrize(("field", "value", "said"), HOSTILE, ids=[f"{f}-{v[:20]!a}" for f, v, _ in HOSTILE])
def test_what_cannot_be_queued_is_refused_at_its_field_and_stays_typed(
    field: str, value: str, said: str, rows: Rows, superuser: Client
) -> None:
    before = AgentJob.objects.count()
    answer = superuser.post(URL, typed(rows, **{field: value}))
    assert answer.status_code == 200
    form = answer.context["form"]
    assert said in " ".join(form.errors[field])
    assert form[field].value() == value
    assert AgentJob.objects.count() == before


def test_problems_of_the_spec_are_listed_with_readable_places_and_given_to_the_form(
    rows: Rows, superuser: Client
) -> None:
    spec = json.dumps({"title": "Go", "steps": [{"n": 1}, {"n": "two"}], "x": 1})
    answer = superuser.post(URL, typed(rows, spec=spec))
    pointers = {problem["pointer"] for problem in answer.context["pointers"]}
    assert "/steps/1/n" in pointers
    page = answer.content.decode()
    assert 'data-pointer="/steps/1/n"' in page


def test_a_held_dedupe_key_is_refused_with_a_link_to_its_job(rows: Rows, superuser: Client) -> None:
    superuser.post(URL, typed(rows, dedupe_key="one"))
    holder = AgentJob.objects.get(dedupe_key="one")
    answer = superuser.post(URL, typed(rows, dedupe_key="one"))
    assert str(holder.pk) in str(answer.context["form"].errors["dedupe_key"])
    assert AgentJob.objects.filter(dedupe_key="one").count() == 1


def test_enqueue_again_fills_the_form_and_names_the_job_in_the_trail(rows: Rows, superuser: Client) -> None:
    page = superuser.get(reverse("admin:jobs_agentjob_add"), {"again": str(rows.failed.pk)})
    form = page.context["form"]
    assert json.loads(form["spec"].value()) == rows.failed.spec
    assert form["agent"].value() == rows.agent.principal_key
    superuser.post(URL, typed(rows, again=str(rows.failed.pk), dedupe_key="second"))
    job = AgentJob.objects.get(dedupe_key="second")
    assert AuditEvent.objects.get(subject_id=job.pk).details == {"repeats": str(rows.failed.pk)}


@pytest.mark.parametrize(
    "query", [{"again": "x"}, {"again": "\x00"}, {"kind": "\x00"}, {"kind": "none"}, {"again": "9" * 5000}]
)
def test_an_address_that_names_nothing_still_shows_the_page(
    query: dict[str, str], rows: Rows, superuser: Client
) -> None:
    assert superuser.get(reverse("admin:jobs_agentjob_add"), query).status_code == 200


def test_a_disabled_kind_is_not_offered(rows: Rows, superuser: Client) -> None:
    JobKindFactory(name="old", enabled=False)
    assert "old" not in {kind.name for kind in superuser.get(URL).context["kinds"]}
    assert superuser.post(reverse("admin:jobs_agentjob_add") + "?kind=old", typed(rows)).status_code == 200
    assert not AgentJob.objects.filter(kind="old").exists()


def test_a_posted_form_sets_only_what_it_shows(rows: Rows, superuser: Client) -> None:
    forged = {name.name: "1" for name in AgentJob._meta.fields} | {"status": "done", "attempt": "9", "claim_id": "x"}
    superuser.post(URL, forged | typed(rows, dedupe_key="forged", again="", not_before="", expires_at=""))
    job = AgentJob.objects.get(dedupe_key="forged")
    plain: dict[str, Any] = {"status": "queued", "attempt": 1, "claim_id": None, "verdict": None, "run_ref": None}
    assert {name: getattr(job, name) for name in plain} == plain
    assert job.created_by == "superuser"
