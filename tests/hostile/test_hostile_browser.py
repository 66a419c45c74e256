"""What a browser does with evidence, and with markup in every text that somebody else can write."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.db import models
from django.urls import resolve, reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from artifacts.models import JobArtifact
from jobs.models import Agent, AgentJob, AgentTask, AgentToken, AuditEvent, JobKind, Target
from tests.admin.conftest import Rows, in_chromium
from tests.factories import (
    AgentFactory,
    AgentJobFactory,
    AgentTaskFactory,
    JobKindFactory,
    TargetFactory,
    TokenFactory,
)
from tests.hostile.site import Subjects

pytestmark = in_chromium

MARKUP = "\"'><img src=x onerror=window.ran=1></script></textarea><script>window.ran=1</script><a href=javascript:1>"
# Text that has a form of its own, which the database checks, or that is no text of anybody.
FORMAL = {"agent", "digest", "sha256", "storage_path", "thumbnail_path", "failure_class", "ended_by"}
PER_ROUTE = 2
RUNNING = (
    "img[src=x], script:not([src]):not([type='application/json']), [onerror],"
    " [href^='javascript:' i], [href^='data:text' i]"
)


def marked(model: type[models.Model], **columns: Any) -> dict[str, Any]:
    """Markup for every column that holds free text or JSON, those of tomorrow too."""
    free = [field for field in model._meta.concrete_fields if not field.choices and field.name not in FORMAL]
    texts = {field.name: MARKUP for field in free if isinstance(field, models.CharField | models.TextField)}
    documents = {field.name: {MARKUP: [MARKUP, {"a": MARKUP}]} for field in free if isinstance(field, models.JSONField)}
    return texts | documents | columns


@pytest.fixture
def hostile(rows: Rows) -> Agent:
    """Rows of every table with markup in every text."""
    agent = AgentFactory(**marked(Agent, state="paused"))
    TokenFactory(**marked(AgentToken, agent=agent))
    schema = {"type": "object", "title": MARKUP, "properties": {MARKUP: {"title": MARKUP, "description": MARKUP}}}
    JobKindFactory(**marked(JobKind, schema=schema))
    TargetFactory(**marked(Target, base_url=MARKUP))
    part = {"title": MARKUP, "message": MARKUP, "detail": {MARKUP: MARKUP}, "warnings": [MARKUP], "code": MARKUP}
    results = {"reasons": [MARKUP], "checks": [{"id": MARKUP, "status": "fail", **part}], MARKUP: MARKUP}
    for status in ("queued", "running", "failed", "done"):
        ended = {"failure_class": "internal"} if status == "failed" else {"error": None}
        keys = dict.fromkeys(("dedupe_key", "concurrency_key"), status + MARKUP)  # unique among live rows
        job = AgentJobFactory(**marked(AgentJob, agent=agent, status=status, results=results) | keys | ended)
        JobArtifact.objects.create(**marked(JobArtifact, job=job, storage_path="jobs/x", content_type="image/png"))
    AgentTaskFactory(
        **marked(AgentTask, agent=agent, status="failed", completed_at=timezone.now(), failure_class="internal")
    )
    AuditEvent.objects.create(**marked(AuditEvent, tag="forced", subject_table="agent_jobs", subject_id=job.pk))
    User.objects.create(username=MARKUP[:150], first_name=MARKUP[:150], last_name=MARKUP[:150], email=MARKUP[:254])
    Group.objects.create(name=MARKUP[:150])
    return agent


def test_no_page_that_a_person_can_reach_runs_or_links_what_a_text_says(
    desk: Page, hostile: Agent, live_server: Any
) -> None:
    # A dialog that is opened as a page has no head, and browsers then ask for this.
    desk.context.route("**/favicon.ico", lambda asked: asked.fulfill(status=204))
    waiting = [reverse("admin:index"), reverse("admin:search") + "?s=job"]
    seen: dict[str, int] = {}
    known = set(waiting)
    while waiting:
        url = waiting.pop(0)
        route = resolve(urlsplit(url).path).route
        if seen.get(route, 0) >= PER_ROUTE:
            continue
        seen[route] = seen.get(route, 0) + 1
        answer = desk.goto(live_server.url + url)
        assert answer is not None
        assert answer.status == 200, url
        assert desk.evaluate("window.ran") is None, url
        assert desk.evaluate("query => document.querySelectorAll(query).length", RUNNING) == 0, url
        found = desk.evaluate(
            "[...document.querySelectorAll('a[href], [hx-get], [data-url]')].flatMap(e =>"
            " [e.getAttribute('href'), e.getAttribute('hx-get'), e.dataset.url]).filter(Boolean)"
        )
        for link in (desk.evaluate("([a, b]) => new URL(a, b).href", [link, desk.url]) for link in found):
            path = link.removeprefix(live_server.url).partition("#")[0]
            if link.startswith(live_server.url) and path.startswith("/admin/") and path not in known:
                known.add(path)
                waiting.append(path)
    assert len(seen) > 30, sorted(seen)


def test_evidence_opens_from_the_page_of_its_job_and_is_written_down_once(
    desk: Page, subjects: Subjects, live_server: Any
) -> None:
    answers: list[tuple[str, int]] = []
    desk.context.on("response", lambda answer: answers.append((urlsplit(answer.url).path, answer.status)))
    desk.goto(live_server.url + reverse("admin:jobs_agentjob_change", args=[subjects.rows.running.pk]))
    picture = desk.locator("a.as-shot", has_text="shot.png").locator("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 40
    assert not AuditEvent.objects.filter(tag="artifact_opened").exists()  # a small picture is no look at the evidence
    with desk.context.expect_page() as opened:
        picture.click()
    shown = opened.value
    shown.wait_for_load_state()
    assert urlsplit(shown.url).path.startswith("/artifacts/bytes/")
    assert shown.evaluate("[document.contentType, document.images[0].naturalWidth]") == ["image/png", 40]
    way = [(path.split("/")[-1] if path.endswith("/open") else path.split("/")[2], status) for path, status in answers
           if path.startswith("/artifacts/") and not path.endswith("/thumbnail")]  # fmt: skip
    assert way[:2] == [("open", 302), ("bytes", 200)]
    event = AuditEvent.objects.get(tag="artifact_opened")
    assert (event.actor, event.subject_id) == ("superuser", subjects.rows.running.pk)
    assert event.details == {"artifact_id": str(subjects.artifact.pk), "name": "shot.png", "download": False}


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x.png", "x.pdf"])
def test_evidence_that_is_a_page_is_saved_and_runs_nothing(
    name: str, desk: Page, subjects: Subjects, live_server: Any
) -> None:
    # Written so that the masking of text finds no secret in it: the bytes are compared.
    script = b"<script>document['coo' + 'kie'] = 'ran=1'</script>"
    page = b"<!doctype html><svg xmlns='http://www.w3.org/2000/svg'>" + script + b"</svg>"
    artifact = subjects.attach(name, page)
    with desk.expect_download() as saved:
        desk.evaluate("url => { location.href = url }", reverse("artifacts:open", args=[artifact.pk]))
    assert saved.value.path().read_bytes() == page
    assert not [cookie for cookie in desk.context.cookies() if cookie["name"] == "ran"]
