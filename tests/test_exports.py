"""CTRF and JUnit: what other tools read of a job's results, from the API and from its page."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.etree import ElementTree as ET

import jsonschema_rs
import pytest
from agentstore_runner.contract import exports
from agentstore_runner.contract.results import CODES, ERROR_CODES, SEVERITIES, STATUSES, check_result, problems
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.services import exporting
from jobs.models import AgentJob
from tests.api.runner_client import JOBS, Runner

SCHEMA = Path(__file__).parents[1] / "node_modules/ctrf/src/ctrf-schema-0.0.json"
RUN = "6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f"


def validator() -> jsonschema_rs.Draft7Validator:
    """CTRF's published schema, from the package of its authors."""
    return jsonschema_rs.Draft7Validator(json.loads(SCHEMA.read_text()), validate_formats=True)


def check(number: int, status: str = "passed", **known: Any) -> dict[str, Any]:
    return check_result({"id": f"c{number}", "title": f"Check {number}"}, status, **known)


def document(*checks: dict[str, Any], **known: Any) -> dict[str, Any]:
    whole = {
        "schema": "agentstore.results/1", "kind": "uat.quick-task", "started_at": "2026-11-30T10:00:00.000Z",
        "finished_at": "2026-11-30T10:00:02.500Z",
        "runner": {"name": "agentstore-runner", "version": "1.0", "browser": "Chromium 156"},
        "target": {"base_url": "https://shop.example", "environment": "staging"}, "test_marker": None,
        "verdict": "fail", "reasons": ["failed: c1"], "checks": list(checks), "redaction": {"version": 1, "count": 0},
    } | known  # fmt: skip
    assert problems(whole) == []
    return whole


EVERY = document(
    check(0, duration_ms=1200, assertions=2, artifacts=["001-c0-end.png"], flaky=True, attempts=[
        {"status": "failed", "duration_ms": 700, "code": "timeout", "message": "too late"},
        {"status": "passed", "duration_ms": 500, "code": None, "message": None},
    ]),
    check(1, "failed", code="assertion", message="expected <b> & “c”", detail={"actual": "x\x01", "n": 7}, step=2,
          warnings=["slow: 9 ms of 5 ms"], notes=["no picture"]),
    check(2, "error", code="runner_error", message="the browser stopped"),
    check(3, "skipped", message="not run, because it needs “c1”"),
)  # fmt: skip


def test_the_rendering_for_ctrf_is_valid_and_counts_what_could_not_be_evaluated_as_other() -> None:
    report = exports.ctrf(EVERY, run_id=RUN)
    validator().validate(report)
    summary = report["results"]["summary"]
    counted = ("tests", "passed", "failed", "skipped", "pending", "other", "flaky", "duration")
    assert [summary[name] for name in counted] == [4, 1, 1, 1, 0, 1, 1, 2500]
    assert summary["stop"] - summary["start"] == 2500
    assert summary["extra"]["agentstore:verdict"] == "fail"
    tests = report["results"]["tests"]
    assert [(test["status"], test["rawStatus"]) for test in tests] == [
        ("passed", "passed"), ("failed", "failed"), ("other", "error"), ("skipped", "skipped"),
    ]  # fmt: skip
    assert tests[0]["retryAttempts"] == [{"attempt": 1, "status": "failed", "duration": 700, "message": "too late"}]
    assert tests[1]["labels"] == {"severity": "major"}


def test_the_published_schema_would_notice_a_wrong_rendering() -> None:
    report = exports.ctrf(EVERY, run_id=RUN)
    report["results"]["tests"][2]["status"] = "error"
    assert not validator().is_valid(report)


def test_the_rendering_for_junit_tells_failures_from_errors_and_holds_any_text() -> None:
    root = ET.fromstring(exports.junit(EVERY, run_id=RUN))
    suite = root.find("testsuite")
    assert suite is not None
    for element in (root, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors", "skipped", "time")] == [
            "4", "1", "1", "1", "2.500",
        ]  # fmt: skip
    cases = suite.findall("testcase")
    assert [[child.tag for child in case if child.tag != "properties"] for case in cases] == [
        [], ["failure"], ["error"], ["skipped"],
    ]  # fmt: skip
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("expected <b> & “c”", "assertion")
    assert failure.text == "actual: x\ufffd\nn: 7"
    assert "agentstore:severity" in {found.get("name") for found in cases[0].iter("property")}


CHECKS = st.builds(
    lambda number, title, status, severity, code, message, flaky, step: {
        **check(number, status), "title": title, "severity": severity, "message": message, "flaky": flaky, "step": step,
        "code": code if status == "failed" else ERROR_CODES[0] if status == "error" else None,
    },
    st.integers(0, 10**6), st.text(min_size=1, max_size=200).filter(lambda text: "\x00" not in text),
    st.sampled_from(STATUSES), st.sampled_from(SEVERITIES), st.sampled_from([c for c in CODES if c not in ERROR_CODES]),
    st.none() | st.text(max_size=500).filter(lambda text: "\x00" not in text), st.booleans(),
    st.none() | st.integers(0, 99),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])  # long texts on a busy machine
@given(st.lists(CHECKS, max_size=8, unique_by=lambda check: check["id"]))
def test_whatever_a_valid_document_says_both_renderings_are_valid(checks: list[dict[str, Any]]) -> None:
    whole = document(*checks)
    validator().validate(exports.ctrf(whole, run_id=RUN))
    cases = ET.fromstring(exports.junit(whole, run_id=RUN)).iter("testcase")
    assert len(list(cases)) == len(checks)


@pytest.fixture
def ended(db: None) -> tuple[Runner, UUID]:
    """A job of checks, and its agent."""
    runner = Runner()
    held = JOBS.held(runner)
    assert held.finish(results=EVERY).status_code == 200
    return runner, held.row.pk


def test_a_runner_reads_its_results_in_each_form(ended: tuple[Runner, UUID]) -> None:
    runner, job = ended
    path = f"jobs/{job}/results"
    assert runner.send("GET", path, None).json()["checks"] == EVERY["checks"]
    assert runner.send("GET", f"{path}?format=ctrf", None).json()["reportId"] == str(job)
    answer = runner.send("GET", f"{path}?format=junit", None)
    assert answer["Content-Type"] == "application/xml"
    assert ET.fromstring(answer.content).tag == "testsuites"
    unknown = runner.send("GET", f"{path}?format=pdf", None)
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/format")


@pytest.mark.parametrize("stored", [None, [], 7, {}, {"checks": []}, {"schema": "agentstore.results/1"}])
def test_results_that_are_no_document_of_checks_have_no_renderings(ended: tuple[Runner, UUID], stored: Any) -> None:
    runner = ended[0]
    held = JOBS.held(runner)
    held.finish(results=stored if isinstance(stored, dict) else None)
    for form in ("ctrf", "junit"):
        answer = runner.send("GET", f"jobs/{held.row.pk}/results?format={form}", None)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_results")


def test_the_archive_of_the_evidence_holds_every_rendering(ended: tuple[Runner, UUID]) -> None:
    sent = io.BytesIO(b"".join(exporting.export(job_id=ended[1], by="ada", sensitive=False).blocks))
    with zipfile.ZipFile(sent) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name.startswith("results/")}
    assert set(found) == {f"results/attempt-1.{ending}" for ending in ("json", "ctrf.json", "junit.xml")}
    validator().validate(json.loads(found["results/attempt-1.ctrf.json"]))
    assert ET.fromstring(found["results/attempt-1.junit.xml"]).tag == "testsuites"


def test_the_page_of_a_job_offers_its_renderings_as_downloads(ended: tuple[Runner, UUID]) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", "", "a password"))
    page = client.get(reverse("admin:jobs_agentjob_change", args=[ended[1]]))
    names = dict(page.context["exports"])
    assert list(names) == ["JSON", "CTRF", "JUnit"]
    for url in names.values():
        assert url in page.content.decode()
        answer = client.get(url)
        assert answer.status_code == 200
        assert answer["Content-Disposition"].startswith(f'attachment; filename="{ended[1]}-')
    assert client.get(names["JSON"]).json() == AgentJob.objects.get(pk=ended[1]).results
    assert client.get(names["JSON"] + "x").status_code == 404
