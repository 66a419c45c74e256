"""Schedules of a backup job in the admin: the same form as for jobs, and all next times of a job together."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import BackupJob, BackupJobRun, Schedule
from jobs.services import schedule_registry as registry
from tests.admin.conftest import Rows

SAID = {
    "name": "every night", "expression": "30 2 * * *", "zone": "Europe/Berlin", "misfire": "skip",
    "splay_seconds": 600, "grace_seconds": 900,
}  # fmt: skip


def page_of(row: Any, act: str = "change") -> str:
    return reverse(f"admin:jobs_{row._meta.model_name}_{act}", args=[row.pk])


def add_url(rows: Rows) -> str:
    return f"{reverse('admin:jobs_schedule_add')}?backup_job={rows.backup_job.pk}"


def schedule(rows: Rows, name: str, expression: str, zone: str = "UTC") -> Schedule:
    definition = registry.BackupDefinition(name=name, backup_job=rows.backup_job.pk, expression=expression, zone=zone)
    return registry.create_schedule(definition, by="ada")


def test_a_schedule_is_added_from_the_page_of_its_backup_job_and_changed(rows: Rows, superuser: Client) -> None:
    job = page_of(rows.backup_job)
    assert superuser.get(job).context["schedule_url"] == add_url(rows)
    form = superuser.get(add_url(rows)).context["form"]
    assert (form["name"].value(), form["zone"].value()) == (rows.backup_job.name, "UTC")
    assert [word for word, _ in form.fields["misfire"].choices] == ["skip", "latest"]
    assert superuser.post(add_url(rows), SAID)["Location"] == job
    made = Schedule.objects.get(backup_job=rows.backup_job)
    assert {name: getattr(made, name) for name in SAID} == SAID
    (shown,) = superuser.get(job).context["schedules"]
    assert (shown["name"], shown["url"]) == ("every night", page_of(made))
    assert "Europe/Berlin" in superuser.get(page_of(made, "edit")).text
    superuser.post(page_of(made, "edit"), SAID | {"expression": "15 3 * * *", "misfire": "latest"})
    made.refresh_from_db()
    assert (made.expression, made.misfire, made.backup_job) == ("15 3 * * *", "latest", rows.backup_job)
    assert [line.what for line in superuser.get(job).context["timeline"]] == [
        "changed: every night", "created: every night",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"expression": "every night"}, "expression"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"misfire": "all"}, "misfire"),
        ({"splay_seconds": -1}, "splay_seconds"),
        ({"expression": "* * * * *"}, "splay_seconds"),
        ({"grace_seconds": 1}, "grace_seconds"),
        ({"name": ""}, "name"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_with_what_was_typed(
    said: dict[str, Any], field: str, rows: Rows, superuser: Client
) -> None:
    page = superuser.post(add_url(rows), SAID | said)
    assert list(page.context["form"].errors) == [field]
    assert not Schedule.objects.filter(backup_job__isnull=False).exists()


def test_a_retired_backup_job_gets_no_schedule_and_offers_none(rows: Rows, superuser: Client) -> None:
    BackupJob.objects.update(state="retired")
    assert superuser.get(page_of(rows.backup_job)).context["schedule_url"] == ""
    assert superuser.post(add_url(rows), SAID).context["form"].non_field_errors()
    nobody = reverse("admin:jobs_schedule_add") + "?backup_job=latest"
    assert superuser.get(nobody).status_code == 404


def test_the_next_times_of_all_schedules_stand_together_without_those_that_launch_nothing(
    rows: Rows, superuser: Client
) -> None:
    schedule(rows, "nightly", "0 2 * * *", "Europe/Berlin")
    schedule(rows, "yearly", "0 0 1 1 *")
    paused = schedule(rows, "hourly", "0 * * * *")
    registry.pause_schedule(schedule_id=paused.pk, by="ada", note="moving house")
    times = superuser.get(page_of(rows.backup_job)).context["next_times"]
    assert len(times) == 10
    assert [time["iso"] for time in times] == sorted(time["iso"] for time in times)
    assert {time["name"] for time in times} <= {"nightly", "yearly"}
    registry.resume_schedule(schedule_id=paused.pk, by="ada")
    until = timezone.now() + timedelta(hours=3)
    registry.pause_schedule(schedule_id=paused.pk, by="ada", note="moving house", until=until)
    times = superuser.get(page_of(rows.backup_job)).context["next_times"]
    assert min(time["iso"] for time in times if time["name"] == "hourly") > until.isoformat()
    BackupJob.objects.update(state="paused")
    assert superuser.get(page_of(rows.backup_job)).context["next_times"] == []


def test_a_slot_of_a_backup_leads_to_its_run(rows: Rows, superuser: Client) -> None:
    made = schedule(rows, "nightly", "0 2 * * *")
    BackupJobRun.objects.filter(pk=rows.run.pk).update(job=None)  # so that none of this job is open
    answer = superuser.post(page_of(made, "run"), {"_form_submitted": "on"})
    run = BackupJobRun.objects.get(job=rows.backup_job)
    assert answer["Location"] == page_of(run)
    (slot,) = superuser.get(page_of(made)).context["slots"]
    assert (slot["job"], slot["url"]) == (str(run.pk)[:8], page_of(run))
    assert page_of(run) in superuser.get(reverse("admin:jobs_scheduleslot_changelist")).text
