"""The files of a snapshot in the admin: who may ask for a list, what it shows of hostile names, the way to restore."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from jobs.models import AgentJob, BackupSnapshot
from jobs.services import execution, governance, reports, shipped_kinds
from jobs.services.backups import listing
from jobs.services.errors import Duplicate, Invalid
from tests.admin.conftest import Rows

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def rows(rows: Rows) -> Rows:
    """With the kinds that the product ships."""
    shipped_kinds.sync_kinds()
    return rows


def url(rows: Rows, part: str = "change") -> str:
    return reverse(f"admin:jobs_backupsnapshot_{part}", args=[rows.snapshot.pk])


def listed(rows: Rows, path: str, *entries: Any, hours_ago: int = 1, **results: Any) -> AgentJob:
    """A look into a folder that an agent has answered."""
    agent, claim_id = rows.agent.principal_key, uuid4()
    job_id = listing.enqueue_listing(snapshot_id=rows.snapshot.pk, path=path, agent=agent, by="ada")
    AgentJob.objects.filter(pk=job_id).update(queued_at=timezone.now() - timedelta(hours=hours_ago))
    caller = execution.Caller(agent=rows.agent, token_id=rows.token.pk)
    runner = execution.Runner(name="agentstore-runner", version="999.0")
    execution.claim(
        caller=caller, rows=AgentJob.objects.all(), claim_id=claim_id, kinds=["backup.list"], request={}, runner=runner,
        row_id=job_id,
    )  # fmt: skip
    report = reports.Report(digest="d", status="done", results={"version": 1, "entries": list(entries), **results})
    execution.finish(caller=caller, rows=AgentJob.objects.all(), row_id=job_id, claim_id=claim_id, report=report)
    return AgentJob.objects.get(pk=job_id)


def entry(name: str, kind: str = "file", size: Any = 5) -> dict[str, Any]:
    return {"name": name, "type": kind, "size": size, "mtime": "2026-11-30T10:20:30Z"}


def test_a_list_is_asked_of_the_sources_own_agent_at_the_sources_own_folder(rows: Rows, superuser: Client) -> None:
    assert "No agent has listed this folder yet." in superuser.get(url(rows)).text
    form = superuser.get(url(rows, "list")).context["form"]
    asked = {name: form[name].initial for name in ("agent", "path")}
    assert asked == {"agent": rows.agent.principal_key, "path": "/etc"}

    superuser.post(url(rows, "list"), asked | {"path": "/etc/../etc//ssl/"})
    job = AgentJob.objects.get(kind="backup.list")
    assert (job.spec["path"], job.spec["snapshot"], job.created_by) == (
        "/etc/ssl", rows.snapshot.engine_id, "superuser",
    )  # fmt: skip
    page = superuser.get(url(rows), {"path": "/etc/ssl"})
    assert page.context["is_live"] is True
    assert page.context["list_url"] == ""
    superuser.post(url(rows, "list"), asked | {"path": "/etc/ssl"})
    assert AgentJob.objects.filter(kind="backup.list").count() == 1


def test_a_folder_is_walked_into_and_each_name_can_be_put_into_a_restore(rows: Rows, superuser: Client) -> None:
    job = listed(rows, "/etc", entry("zone"), entry("a b&c", "dir"), entry("Äpfel"), truncated=True)
    assert (job.status, job.verdict) == ("done", "pass")
    page = superuser.get(url(rows))
    assert [one["name"] for one in page.context["entries"]] == ["a b&c", "zone", "Äpfel"]
    assert "holds more than a list may" in page.text
    folder = page.context["entries"][0]
    assert [crumb["name"] for crumb in superuser.get(folder["url"]).context["crumbs"]] == ["/", "etc", "a b&c"]
    form = superuser.get(folder["restore_url"]).context["form"]
    assert (form["include"].initial, form["snapshot"].initial) == (["/etc/a b&c"], str(rows.snapshot.pk))
    assert "/etc/a b&amp;c</textarea>" in superuser.get(folder["restore_url"]).text


def test_hostile_names_show_what_they_hide_and_are_never_markup_or_another_path(rows: Rows, superuser: Client) -> None:
    names = [
        EVIL,
        "photo\u202egpj.exe",
        "two\nlines",
        "bell\x07",
        "bad\ufffdbyte",
        "x" * 5000,
        "../up",
        "..",
        "",
        "\u200b",
    ]
    listed(rows, "/etc", *map(entry, names), entry("d\ufffd", "dir"), entry("size", size="many"))
    page = superuser.get(url(rows))
    assert EVIL not in page.text
    assert not {"\u202e", "\x07", "\u200b"} & set(page.text)
    shown = {one["name"]: one for one in page.context["entries"]}
    assert {"photo\\u202egpj.exe", "two\\u000alines", "bell\\u0007", f"{'x' * 200}…"} <= set(shown)
    # What a form cannot ask for is not offered, and says so.
    odd = {name for name, one in shown.items() if one["is_odd"]}
    assert {"two\\u000alines", "bad\ufffdbyte", "../up", "..", "", "d\ufffd", f"{'x' * 200}…"} <= odd
    assert all(not shown[name]["restore_url"] and not shown[name]["url"] for name in odd)
    form = superuser.get(shown["photo\\u202egpj.exe"]["restore_url"]).context["form"]
    assert form["include"].initial == ["/etc/photo\u202egpj.exe"]


def test_a_large_folder_is_shown_page_by_page_with_as_many_queries_as_a_small_one(
    rows: Rows, superuser: Client
) -> None:
    listed(rows, "/etc", entry("one"), hours_ago=2)
    superuser.get(url(rows))
    with CaptureQueriesContext(connection) as small:
        superuser.get(url(rows))
    listed(rows, "/etc", *(entry(f"file {number:04}") for number in range(2000)))
    with CaptureQueriesContext(connection) as large:
        first = superuser.get(url(rows))
    assert len(large) == len(small)
    last = superuser.get(f"{url(rows)}?path=%2Fetc&page=10")
    assert (len(first.context["entries"]), last.context["entries"][-1]["name"]) == (200, "file 1999")
    assert (first.context["newer_url"], last.context["older_url"]) == ("", "")
    for page in ("0", "x", "99999"):
        assert superuser.get(url(rows), {"path": "/etc", "page": page}).status_code == 200


def test_a_list_that_failed_is_told_and_the_older_one_stays(rows: Rows, superuser: Client) -> None:
    listed(rows, "/etc", entry("passwd"))
    again = listing.enqueue_listing(snapshot_id=rows.snapshot.pk, path="/etc", agent=rows.agent.principal_key, by="ada")
    AgentJob.objects.filter(pk=again).update(status="cancelled", finished_at=timezone.now(), error="wrong night")
    page = superuser.get(url(rows))
    assert [one["name"] for one in page.context["entries"]] == ["passwd"]
    assert "wrong night" in page.text


@pytest.mark.parametrize("path", ["", "etc", "/a\x00b", "/" + "x" * 5000])
def test_a_path_that_is_none_is_told_at_its_field_and_shows_the_top(path: str, rows: Rows, superuser: Client) -> None:
    page = superuser.post(url(rows, "list"), {"agent": rows.agent.principal_key, "path": path})
    assert list(page.context["form"].errors) == ["path"]
    assert not AgentJob.objects.filter(kind="backup.list").exists()
    assert superuser.get(url(rows), {"path": path}).context["crumbs"][-1]["name"] == "etc"


def test_what_was_forgotten_is_neither_listed_nor_restored(rows: Rows, superuser: Client) -> None:
    BackupSnapshot.objects.update(forgotten_at=timezone.now())
    page = superuser.get(url(rows))
    assert (page.context["list_url"], page.context["restore_url"]) == ("", "")
    with pytest.raises(Invalid):
        listing.enqueue_listing(snapshot_id=rows.snapshot.pk, path="/", agent=rows.agent.principal_key, by="ada")


def test_only_the_product_makes_lists_and_one_of_a_folder_at_a_time(rows: Rows) -> None:
    asked = {"snapshot_id": rows.snapshot.pk, "agent": rows.agent.principal_key, "by": "ada"}
    job = AgentJob.objects.get(pk=listing.enqueue_listing(path="/", **asked))
    with pytest.raises(Duplicate):
        listing.enqueue_listing(path="/./", **asked)
    with pytest.raises(Invalid):
        governance.enqueue(by="ada", agent=rows.agent.principal_key, kind="backup.list", spec=job.spec)


@pytest.mark.parametrize(("role", "lists", "restores"), [
    ("Viewers", False, False), ("Operators", True, False), ("Governors", True, True),
])  # fmt: skip
def test_each_group_is_offered_what_it_may_do(role: str, lists: bool, restores: bool, rows: Rows, login: Any) -> None:
    listed(rows, "/etc", entry("passwd"))
    page = login(role).get(url(rows))
    assert (bool(page.context["list_url"]), bool(page.context["entries"][0]["restore_url"])) == (lists, restores)
