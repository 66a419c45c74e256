"""Maintenance of a repository from its page: exactly what would go is shown first, and nothing else goes."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.admin.badges import NOTHING
from jobs.models import AgentJob, BackupJob, BackupRepository, BackupSnapshot
from jobs.services import shipped_kinds
from tests.admin.conftest import Rows
from tests.factories import BackupSnapshotFactory


def page_of(rows: Rows, act: str = "change") -> str:
    return reverse(f"admin:jobs_backuprepository_{act}", args=[rows.repository.pk])


@pytest.fixture
def old(rows: Rows) -> list[BackupSnapshot]:
    """Two snapshots that a retention of one lets go, oldest first; the one of `rows` is newer."""
    shipped_kinds.sync_kinds()
    BackupJob.objects.update(retention={"keep_last": 1})
    return [
        BackupSnapshotFactory(
            repository=rows.repository, source=rows.source, taken_at=timezone.now() - timedelta(days=age)
        )
        for age in (9, 8)
    ]


def filled(client: Client, rows: Rows, **said: Any) -> dict[str, Any]:
    page = client.get(page_of(rows, "maintain")).context
    shown = {name: page["form"][name].value() for name in page["form"].fields} | {"seen": page["mark"]} | said
    return {name: "on" if value is True else value for name, value in shown.items() if value}


def test_what_would_go_is_listed_and_exactly_that_is_queued(
    rows: Rows, old: list[BackupSnapshot], superuser: Client
) -> None:
    page = superuser.get(page_of(rows, "maintain"))
    assert [row["id"] for row in page.context["snapshots"]] == [
        f'<code title="{one.engine_id}">{one.engine_id[:8]}</code>' for one in old
    ]
    assert {row["job"] for row in page.context["snapshots"]} == {rows.backup_job}
    assert page.context["form"]["agent"].value() == rows.agent.principal_key
    answer = superuser.post(page_of(rows, "maintain"), filled(superuser, rows, check="read_data_subset", unlock=True))
    job = AgentJob.objects.get(kind="backup.maintenance")
    assert answer["Location"] == reverse("admin:jobs_agentjob_change", args=[job.pk])
    assert job.spec["forget"] == [one.engine_id for one in old]
    assert (job.spec["prune"], job.spec["check"], job.spec["unlock"]) == (True, "read_data_subset", True)
    assert (job.created_by, job.agent_id) == ("superuser", rows.agent.principal_key)
    assert not BackupSnapshot.objects.filter(forgotten_at__isnull=False).exists()  # until the agent says so


def test_a_list_that_changed_since_somebody_looked_is_shown_again_and_nothing_is_queued(
    rows: Rows, old: list[BackupSnapshot], superuser: Client
) -> None:
    said = filled(superuser, rows)
    BackupSnapshotFactory(
        repository=rows.repository, source=rows.source, taken_at=timezone.now() + timedelta(seconds=1)
    )
    page = superuser.post(page_of(rows, "maintain"), said)
    assert "apply_retention" in page.context["form"].errors
    assert page.context["number"] == 3
    assert not AgentJob.objects.filter(kind="backup.maintenance").exists()
    superuser.post(page_of(rows, "maintain"), said | {"seen": page.context["mark"]})
    assert len(AgentJob.objects.get(kind="backup.maintenance").spec["forget"]) == 3


def test_it_is_refused_in_the_form_while_damaged_or_queued_and_a_check_of_damage_is_not(
    rows: Rows, old: list[BackupSnapshot], superuser: Client
) -> None:
    BackupRepository.objects.update(damaged_at=Now())
    assert "apply_retention" not in filled(superuser, rows)
    page = superuser.post(page_of(rows, "maintain"), filled(superuser, rows, apply_retention=True))
    assert list(page.context["form"].errors) == ["apply_retention"]
    page = superuser.post(page_of(rows, "maintain"), filled(superuser, rows, check="none"))
    assert list(page.context["form"].errors) == ["__all__"]
    assert not AgentJob.objects.filter(kind="backup.maintenance").exists()
    superuser.post(page_of(rows, "maintain"), filled(superuser, rows, check="read_data"))
    job = AgentJob.objects.get(kind="backup.maintenance")
    page = superuser.post(page_of(rows, "maintain"), filled(superuser, rows, check="metadata"))
    assert list(page.context["form"].errors) == ["__all__"]
    assert page.context["open_url"] == reverse("admin:jobs_agentjob_change", args=[job.pk])
    assert AgentJob.objects.filter(kind="backup.maintenance").count() == 1


def test_the_page_of_a_repository_tells_what_came_of_its_maintenance_whatever_the_rows_hold(
    rows: Rows, old: list[BackupSnapshot], superuser: Client
) -> None:
    assert superuser.get(page_of(rows)).context["maintenance"] == []
    superuser.post(page_of(rows, "maintain"), filled(superuser, rows))
    (queued,) = superuser.get(page_of(rows)).context["maintenance"]
    assert queued["asked"] == "check (metadata only), forget 2 snapshots, prune"
    results = {"forgotten": [old[0].engine_id], "kept": [old[1].engine_id], "check": {"ok": True}, "pruned": True}
    for status, came in (
        ({"results": results}, "no damage found, 1 forgotten, 1 still there, pruned"),
        ({"results": ["x"], "spec": "x", "labels": 1}, NOTHING),
        (
            {"results": {"forgotten": 1, "check": "x"}, "spec": {"forget": {}, "check": []}, "error": "<b>lock"},
            "<b>lock",
        ),
    ):
        AgentJob.objects.filter(kind="backup.maintenance").update(**status)
        page = superuser.get(page_of(rows))
        assert page.context["maintenance"][0]["came"] == came
        assert "<b>lock" not in page.text
