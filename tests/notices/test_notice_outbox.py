"""The outbox: signed, at least once under one delivery id, retried with bounds, and one digest in a storm."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import close_old_connections, connection
from django.db.models import F
from django.db.models.functions import Now
from pytest_django import Settings

from jobs.models import Event, Notice, NoticeChannel, NoticeRule
from jobs.services.notices import outbox, registry, sealing
from jobs.services.notices.matching import match
from jobs.services.notices.outbox import DELAYS, MAX_ATTEMPTS, deliver
from tests.notices.conftest import MailServer, Receiver, ended

pytestmark = pytest.mark.django_db


def hold(channel: NoticeChannel, count: int = 1, event: Event = Event.FAILED) -> list[Notice]:
    """Notices as matching leaves them."""
    made = [Notice(channel=channel, event=event, title=f"Failed: thing {n}", path="/admin/x/") for n in range(count)]
    return Notice.objects.bulk_create(made)


def later(**span: float) -> None:
    """Let time pass for what the outbox remembers."""
    Notice.objects.update(
        released_at=F("released_at") - timedelta(**span), next_attempt_at=F("next_attempt_at") - timedelta(**span)
    )


def test_a_webhook_is_signed_as_standard_webhooks_says(webhook: NoticeChannel, receiver: Receiver) -> None:
    (notice,) = hold(webhook)
    assert deliver().sent == 1

    ((path, headers, body),) = receiver.got
    assert path == "/hook"
    assert headers["webhook-id"] == str(Notice.objects.get(pk=notice.pk).delivery_id)
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    key = base64.b64decode(sealing.unseal(webhook.secret or "").removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(body)["type"] == "notice.failed"
    assert json.loads(body)["data"]["title"] == "Failed: thing 0"


def test_a_failure_travels_from_the_end_of_a_job_to_the_receiver(
    listen: Callable[..., NoticeRule], receiver: Receiver
) -> None:
    listen()
    job = ended(status="failed", error="no disk")
    match()
    deliver()
    (body,) = receiver.bodies()
    assert body["data"]["title"] == "Failed: echo on ci"
    assert body["data"]["text"] == "no disk"
    assert body["data"]["job"] == str(job.root_id)
    assert body["data"]["url"].endswith(f"/admin/jobs/agentjob/{job.pk}/change/")


def test_a_receiver_that_is_down_is_tried_again_under_the_same_delivery_id_until_it_answers(
    webhook: NoticeChannel, receiver: Receiver
) -> None:
    receiver.answers = [(502, {}, b"bad gateway"), (500, {}, b"")]
    (notice,) = hold(webhook)
    assert deliver().failed == 1
    notice.refresh_from_db()
    assert (notice.status, notice.attempts, notice.last_error) == (
        "waiting", 1, "The receiver answered 502 Bad Gateway: bad gateway",
    )  # fmt: skip
    assert deliver().failed == 0, "it is not due yet"
    for delay in DELAYS[:2]:
        later(seconds=delay)
        deliver()
    notice.refresh_from_db()
    assert (notice.status, notice.attempts, notice.last_error) == ("sent", 3, "")
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1


def test_a_notice_is_given_up_after_the_last_attempt_and_a_person_may_start_it_anew(
    webhook: NoticeChannel, receiver: Receiver
) -> None:
    receiver.answers = [(500, {}, b"")] * MAX_ATTEMPTS
    (notice,) = hold(webhook)
    for _ in range(MAX_ATTEMPTS + 3):
        deliver()
        later(days=1)
    notice.refresh_from_db()
    assert (notice.status, notice.attempts, len(receiver.got)) == ("dead", MAX_ATTEMPTS, MAX_ATTEMPTS)
    assert "500" in notice.last_error

    registry.send_again(notice_id=notice.pk)
    assert deliver().sent == 1
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1


def test_a_sender_that_dies_between_sending_and_saying_so_sends_again_under_the_same_delivery_id(
    webhook: NoticeChannel, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notice,) = hold(webhook)

    def die(outcome: Any) -> bool:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_note", die)
        with pytest.raises(SystemExit):
            deliver()
    assert deliver().sent == 0, "it may still be on its way"
    later(seconds=outbox.TAKEN.total_seconds())
    assert deliver().sent == 1
    first, second = (headers["webhook-id"] for _, headers, _ in receiver.got)
    assert first == second == str(Notice.objects.get(pk=notice.pk).delivery_id)


def test_a_slow_sender_does_not_overwrite_what_the_one_after_it_wrote(
    webhook: NoticeChannel, receiver: Receiver
) -> None:
    hold(webhook)
    outbox._release(webhook.pk)
    (slow,) = outbox._take()
    later(minutes=5)
    assert deliver().sent == 1
    outbox._note(outbox.Outcome(notice=slow, error="no answer"))
    assert Notice.objects.get().status == "sent"


@pytest.mark.django_db(transaction=True)
def test_of_many_senders_at_once_each_notice_is_sent_by_one(webhook: NoticeChannel, receiver: Receiver) -> None:
    NoticeChannel.objects.update(digest_over=1000)
    hold(webhook, 30)
    outbox._release(webhook.pk)
    start = threading.Barrier(5)

    def work() -> None:
        start.wait()
        try:
            deliver()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close_old_connections()
    assert set(Notice.objects.values_list("status", "attempts")) == {("sent", 1)}
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == len(receiver.got) == 30


@pytest.mark.django_db(transaction=True)
def test_of_many_that_release_a_storm_at_once_one_makes_the_digest(webhook: NoticeChannel, receiver: Receiver) -> None:
    hold(webhook, 30)
    start = threading.Barrier(5)

    def work() -> None:
        start.wait()
        try:
            outbox._release(webhook.pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Notice.objects.filter(event="digest").count() == 1
    assert Notice.objects.filter(status="digested", digest__isnull=False).count() == 30


def test_few_notices_go_alone_and_in_order(webhook: NoticeChannel, receiver: Receiver) -> None:
    hold(webhook, 5)
    assert deliver().sent == 5
    assert [body["data"]["title"] for body in receiver.bodies()] == [f"Failed: thing {n}" for n in range(5)]


def test_a_storm_becomes_one_message_with_a_list_and_another_one_after_the_window(
    webhook: NoticeChannel, receiver: Receiver
) -> None:
    hold(webhook, 3)
    deliver()
    hold(webhook, 100)
    deliver()
    hold(webhook, 7)
    deliver()
    hold(webhook, 2)
    deliver()
    assert [body["type"] for body in receiver.bodies()] == ["notice.failed"] * 3 + ["notice.digest"]
    digest = receiver.bodies()[-1]["data"]
    assert digest["title"] == "100 events"
    assert digest["text"].splitlines()[0] == "Failed: thing 0"
    assert digest["text"].splitlines()[-1] == "and 60 more"

    later(minutes=6)
    deliver()
    assert receiver.bodies()[-1]["data"]["title"] == "9 events"
    assert Notice.objects.exclude(status__in=["sent", "digested"]).count() == 0


def test_after_a_storm_single_notices_go_alone_again(webhook: NoticeChannel, receiver: Receiver) -> None:
    hold(webhook, 100)
    deliver()
    later(minutes=6)
    hold(webhook)
    deliver()
    assert [body["type"] for body in receiver.bodies()] == ["notice.digest", "notice.failed"]


def test_one_channel_in_trouble_holds_up_no_other(
    webhook: NoticeChannel, receiver: Receiver, mail_server: MailServer
) -> None:
    registry.create_channel(name="mail", transport="email", address="ada@example.org", by="ada")
    mail = NoticeChannel.objects.get(name="mail")
    receiver.answers = [(500, {}, b"")] * 9
    hold(webhook, 3)
    hold(mail, 3)
    deliver()
    assert set(Notice.objects.filter(channel=mail).values_list("status", flat=True)) == {"sent"}
    assert set(Notice.objects.filter(channel=webhook).values_list("status", flat=True)) == {"waiting"}


def test_a_channel_that_is_off_keeps_its_notices_until_it_is_on(webhook: NoticeChannel, receiver: Receiver) -> None:
    hold(webhook)
    NoticeChannel.objects.update(enabled=False)
    assert deliver().sent == 0
    NoticeChannel.objects.update(enabled=True)
    assert deliver().sent == 1


def test_a_secret_of_another_secret_key_is_said_and_one_of_an_older_key_still_works(
    webhook: NoticeChannel, receiver: Receiver, settings: Settings
) -> None:
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another " * 10
    (notice,) = hold(webhook)
    deliver()
    notice.refresh_from_db()
    assert notice.last_error == "The secret was stored under another SECRET_KEY: set it anew."
    settings.SECRET_KEY_FALLBACKS = [old]
    later(seconds=30)
    assert deliver().sent == 1


def test_the_database_holds_no_secret_in_clear(webhook: NoticeChannel) -> None:
    made = registry.renew_secret(channel_id=webhook.pk, by="ada", reason="rotation")
    assert made.secret not in repr(made)
    with connection.cursor() as cursor:
        for table in ("notice_channels", "notice_channel_events", "audit_events", "notices"):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t")
            assert made.secret.removeprefix("whsec_") not in cursor.fetchone()[0], table


def test_what_ended_long_ago_is_forgotten_and_what_waits_is_not(webhook: NoticeChannel) -> None:
    hold(webhook, 3)
    Notice.objects.update(created_at=Now() - outbox.KEPT - timedelta(days=1))
    first = Notice.objects.order_by("id").first()
    assert first
    Notice.objects.filter(pk=first.pk).update(status="sent")
    assert outbox.forget().notices == 1
    assert Notice.objects.count() == 2
