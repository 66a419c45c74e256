"""Notices in the admin: channels with secrets shown once, rules, a test with its real answer, and another try."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import AuditEvent, Notice, NoticeChannel, NoticeRule
from jobs.services.notices import sealing
from tests.admin.conftest import Rows
from tests.notices.conftest import Receiver, receiver

__all__ = ["receiver"]

ADD_CHANNEL, ADD_RULE = reverse("admin:jobs_noticechannel_add"), reverse("admin:jobs_noticerule_add")


def channel_form(**other: str) -> dict[str, str]:
    """A form that is right, apart from `other`."""
    right = {"name": "ops", "transport": "webhook", "address": "https://hooks.example.com/x", "digest_over": "5",
             "digest_seconds": "300"}  # fmt: skip
    return right | other


def rule_form(channel: NoticeChannel, /, **other: Any) -> dict[str, Any]:
    """The same for a rule."""
    right = {"name": "nightly", "channel": str(channel.pk), "listens_to": ["failed", "recovered"], "kind": "echo",
             "agent": "", "schedule": "", "label": ""}  # fmt: skip
    return right | other


def page(name: str, key: object) -> str:
    """An address about one row."""
    return reverse(f"admin:jobs_{name}", args=[key])


def test_the_signing_key_of_a_webhook_is_shown_once(rows: Rows, superuser: Client) -> None:
    answer = superuser.post(ADD_CHANNEL, channel_form()).content.decode()
    (shown,) = re.findall(r"whsec_[A-Za-z0-9+/=]+", answer)
    channel = NoticeChannel.objects.get(name="ops")
    assert sealing.unseal(channel.secret or "") == shown
    for url in (page("noticechannel_change", channel.pk), reverse("admin:jobs_noticechannel_changelist"), ADD_CHANNEL):
        assert "whsec_" not in superuser.get(url).content.decode()


def test_a_new_signing_key_replaces_the_old_one_with_a_line_in_the_audit_trail(rows: Rows, superuser: Client) -> None:
    before = rows.channel.secret
    url = page("noticechannel_secret", rows.channel.pk)
    assert "whsec_" not in superuser.post(url, {"reason": ""}).content.decode()
    answer = superuser.post(url, {"reason": "it leaked"}).content.decode()
    rows.channel.refresh_from_db()
    assert sealing.unseal(rows.channel.secret or "") in answer
    assert rows.channel.secret != before
    line = AuditEvent.objects.get(tag="channel_secret")
    assert (line.reason, line.actor, line.subject_id) == ("it leaked", "superuser", rows.channel.pk)


def test_an_apprise_address_is_never_shown_and_kept_when_left_empty(rows: Rows, superuser: Client) -> None:
    address = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/"
    superuser.post(ADD_CHANNEL, channel_form(transport="apprise", address=address))
    channel = NoticeChannel.objects.get(name="ops")
    url = page("noticechannel_change", channel.pk)
    shown = superuser.get(url).content.decode()
    assert "slack://…" in shown
    assert "T1JJ3T3L2" not in shown
    superuser.post(url, channel_form(name="chat", address="", enabled="on"))
    channel.refresh_from_db()
    assert (channel.name, sealing.unseal(channel.secret or "")) == ("chat", address)


@pytest.mark.parametrize(("field", "value"), [
    ("name", ""), ("name", "x" * 101), ("name", "\x00"), ("address", ""), ("address", "http://example.com/"),
    ("address", "https://u:p@example.com/"), ("address", "\x00"), ("transport", "pigeon"), ("digest_over", "0"),
    ("digest_over", "9" * 5000), ("digest_seconds", "9"), ("name", "channel"),
], ids=lambda text: text[:8].encode("unicode_escape").decode())  # fmt: skip
def test_a_channel_that_cannot_be_is_refused_at_the_field(
    field: str, value: str, rows: Rows, superuser: Client
) -> None:
    NoticeChannel.objects.update(name="channel")
    answer = superuser.post(ADD_CHANNEL, channel_form(**{field: value}))
    assert answer.context["form"].errors[field]
    assert NoticeChannel.objects.count() == 1


def test_a_channel_is_changed_but_keeps_its_transport(rows: Rows, superuser: Client) -> None:
    url = page("noticechannel_change", rows.channel.pk)
    superuser.post(url, channel_form(transport="email", name="on-call"))
    rows.channel.refresh_from_db()
    assert (rows.channel.name, rows.channel.transport, rows.channel.enabled) == ("on-call", "webhook", False)


def test_a_test_message_goes_out_now_and_its_answer_is_shown(rows: Rows, superuser: Client, receiver: Receiver) -> None:
    NoticeChannel.objects.update(address=receiver.url)
    url = page("noticechannel_send_test", rows.channel.pk)
    receiver.answers = [(403, {}, b"who are you")]
    refused = superuser.post(url, {"_form_submitted": "on"}, follow=True)
    assert "The receiver answered 403 Forbidden: who are you" in refused.content.decode()
    taken = superuser.post(url, {"_form_submitted": "on"}, follow=True)
    assert "took the test message" in taken.content.decode()
    assert [body["type"] for body in receiver.bodies()] == ["notice.test"] * 2
    tests = Notice.objects.filter(event="test").order_by("id")
    assert [notice.status for notice in tests] == ["refused", "sent"]


def test_a_rule_is_added_and_changed(rows: Rows, superuser: Client) -> None:
    superuser.post(ADD_RULE, rule_form(rows.channel))
    rule = NoticeRule.objects.get(name="nightly")
    assert (rule.channel_id, rule.listens_to, rule.kind) == (rows.channel.pk, ["failed", "recovered"], "echo")
    superuser.post(page("noticerule_change", rule.pk), rule_form(rows.channel, label="branch=main", kind=""))
    rule.refresh_from_db()
    assert (rule.label, rule.kind, rule.enabled) == ("branch=main", "", False)


@pytest.mark.parametrize(("field", "value"), [
    ("name", ""), ("name", "rule"), ("channel", ""), ("channel", "x"), ("channel", str(UUID(int=0))),
    ("listens_to", []), ("listens_to", ["recovered"]), ("listens_to", ["test"]), ("kind", "no-such"),
    ("agent", "no-such"), ("label", "=x"), ("label", "\x00"), ("schedule", "x" * 201),
], ids=lambda value: str(value)[:12].encode("unicode_escape").decode())  # fmt: skip
def test_a_rule_that_cannot_be_is_refused_at_the_field(field: str, value: Any, rows: Rows, superuser: Client) -> None:
    NoticeRule.objects.update(name="rule")
    answer = superuser.post(ADD_RULE, rule_form(rows.channel, **{field: value}))
    assert answer.context["form"].errors[field]
    assert NoticeRule.objects.count() == 1


def test_a_rule_keeps_a_kind_that_is_gone_when_something_else_is_changed(rows: Rows, superuser: Client) -> None:
    NoticeRule.objects.update(agent=rows.agent.principal_key, kind="echo")
    rows.kind.delete()
    shown = superuser.get(page("noticerule_change", rows.rule.pk)).content.decode()
    assert '<option value="echo" selected>' in shown


def test_a_notice_says_why_it_did_not_arrive_and_is_sent_again_by_a_governor(rows: Rows, superuser: Client) -> None:
    shown = superuser.get(page("notice_change", rows.notice.pk)).content.decode()
    assert "The receiver answered 500." in shown
    again = page("notice_send_again", rows.notice.pk)
    assert again in shown
    superuser.post(again, {"_form_submitted": "on"})
    rows.notice.refresh_from_db()
    assert (rows.notice.status, rows.notice.attempts) == ("waiting", 0)
    twice = superuser.post(again, {"_form_submitted": "on"}, follow=True)
    assert "Only a notice that was given up" in twice.content.decode()


@pytest.mark.parametrize("key", ["x", "0", "99999999999999999999", "-1", "\N{DIGIT ONE}x", "٣"])
@pytest.mark.parametrize("name", ["notice_change", "notice_send_again"])
def test_a_notice_that_is_none_is_not_found(name: str, key: str, rows: Rows, superuser: Client) -> None:
    assert superuser.get(page(name, key)).status_code == 404


def test_the_front_page_counts_what_was_given_up(rows: Rows, superuser: Client) -> None:
    def tile() -> Any:
        tiles = superuser.get(reverse("admin:index")).context["tiles"]
        return next(tile for tile in tiles if tile.label == "Notices given up")

    assert (tile().value, tile().tone) == (1, "bad")
    assert superuser.get(tile().url).context["cl"].result_count == 1
    Notice.objects.update(status="refused", event="test")
    assert (tile().value, tile().tone) == (0, "quiet")
