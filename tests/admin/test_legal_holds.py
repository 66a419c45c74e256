"""Legal holds in the admin: placed and released with a reason, shown on the page of every attempt."""

from collections.abc import Callable
from typing import Any

from django.test import Client
from django.urls import reverse

from jobs.models import AgentJob, LegalHold
from tests.admin.conftest import Rows

REASON = {"_form_submitted": "on", "reason": "court order 7"}


def page(client: Client, job: AgentJob) -> Any:
    return client.get(reverse("admin:jobs_agentjob_part", args=[job.pk]))


def press(client: Client, what: str, job: AgentJob, **form: str) -> Any:
    return client.post(reverse(f"admin:jobs_agentjob_{what}_row", args=[job.pk]), REASON | form)


def test_a_hold_is_placed_shown_with_its_reason_and_released(rows: Rows, login: Callable[[str], Client]) -> None:
    governor, viewer = login("Governors"), login("Viewers")
    assert press(governor, "hold", rows.failed).status_code == 302
    hold = LegalHold.objects.get()
    assert (hold.root_id, hold.placed_by, hold.reason) == (rows.failed.chain_id, "governors", "court order 7")
    assert "placed by governors: court order 7" in page(viewer, rows.failed).content.decode()
    offered = {action["name"] for action in page(governor, rows.failed).context["actions"]}
    assert "release_row" in offered
    assert "hold_row" not in offered
    press(governor, "release", rows.failed)
    assert not LegalHold.objects.exists()
    assert "court order 7" not in page(viewer, rows.queued).content.decode()


def test_a_hold_without_a_reason_is_asked_again(rows: Rows, superuser: Client) -> None:
    press(superuser, "hold", rows.failed, reason=" ")
    assert not LegalHold.objects.exists()


def test_a_second_hold_says_that_there_is_one(rows: Rows, superuser: Client) -> None:
    press(superuser, "hold", rows.failed)
    press(superuser, "hold", rows.failed, reason="another")
    said = superuser.get(reverse("admin:jobs_agentjob_change", args=[rows.failed.pk])).content.decode()
    assert "under a legal hold already" in said
    assert LegalHold.objects.get().reason == "court order 7"
