"""What people do with notices: channels and their secrets, rules, a test message, another try. Nothing is deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from jobs import audit
from jobs.models import Agent, AgentTask, Event, JobKind, Notice, NoticeChannel, NoticeRule
from jobs.services.documents import UNSTORABLE
from jobs.services.errors import Invalid, NotFound

from . import chat, mail, webhooks
from .outbox import attempt
from .sealing import seal
from .sending import allowed_networks

MAX_NAME, MAX_TEXT = 100, 200
DIGEST_OVER, DIGEST_SECONDS = range(1, 1001), range(10, 86401)
LISTENABLE = tuple(event for event in Event if event not in (Event.DIGEST, Event.TEST))
Transport = NoticeChannel.Transport


@dataclass(frozen=True, kw_only=True)
class MadeChannel:
    """A channel; `secret` is the signing key of a webhook, shown once and in no repr, and empty for the others."""

    channel_id: UUID
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What became of a test message; an empty error means that it was taken."""

    notice_id: int
    error: str


@transaction.atomic
def create_channel(
    *, name: str, transport: str, address: str, digest_over: int = 5, digest_seconds: int = 300, by: str
) -> MadeChannel:
    """Add a channel. `address` is the recipients, the webhook's URL or the Apprise URL, which is kept sealed.

    Raises Invalid.
    """
    problems = _channel_problems(name, digest_over, digest_seconds)
    if transport not in Transport.values:
        problems.append(Problem("/transport", f"One of {', '.join(Transport.values)}."))
    elif problem := _address_problem(Transport(transport), address):
        problems.append(Problem("/address", problem))
    if problems:
        raise Invalid(problems)
    secret = webhooks.new_secret() if transport == Transport.WEBHOOK else ""
    sealed = address if transport == Transport.APPRISE else secret
    try:
        with transaction.atomic():
            channel = NoticeChannel.objects.create(
                name=name, transport=transport, address=_shown(Transport(transport), address),
                secret=seal(sealed) if sealed else None, digest_over=digest_over, digest_seconds=digest_seconds,
            )  # fmt: skip
    except IntegrityError:
        raise Invalid([Problem("/name", "There is a channel of that name already.")]) from None
    if sealed:
        audit.record(audit.Tag.CHANNEL_SECRET, channel, actor=by, details={"name": name})
    return MadeChannel(channel_id=channel.pk, secret=secret)


@transaction.atomic
def change_channel(
    *, channel_id: UUID, name: str, address: str, enabled: bool, digest_over: int, digest_seconds: int, by: str
) -> None:
    """Change a channel; an empty address of a chat service keeps the one that is sealed. Raises Invalid or NotFound."""
    channel = _channel(channel_id)
    transport = Transport(channel.transport)
    keeps = transport is Transport.APPRISE and not address
    problems = _channel_problems(name, digest_over, digest_seconds)
    if not keeps and (problem := _address_problem(transport, address)):
        problems.append(Problem("/address", problem))
    if problems:
        raise Invalid(problems)
    said: dict[str, Any] = {} if keeps else {"address": _shown(transport, address)}
    if transport is Transport.APPRISE and address:
        said["secret"] = seal(address)
        audit.record(audit.Tag.CHANNEL_SECRET, channel, actor=by, details={"name": name})
    said |= {"name": name, "enabled": enabled, "digest_over": digest_over, "digest_seconds": digest_seconds}
    _save(NoticeChannel, channel_id, said)


@transaction.atomic
def renew_secret(*, channel_id: UUID, by: str, reason: str) -> MadeChannel:
    """Give a webhook another signing key, which holds at once; messages under way are signed with it too.

    Raises NotFound, or Invalid for a channel of another transport.
    """
    channel = _channel(channel_id)
    if channel.transport != Transport.WEBHOOK:
        raise Invalid([Problem("/transport", "Only a webhook has a signing key.")])
    secret = webhooks.new_secret()
    NoticeChannel.objects.filter(pk=channel_id).update(secret=seal(secret))
    audit.record(audit.Tag.CHANNEL_SECRET, channel, actor=by, reason=reason, details={"name": channel.name})
    return MadeChannel(channel_id=channel_id, secret=secret)


def send_test(*, channel_id: UUID, by: str) -> Tested:
    """Send a test message now, once, over a channel that may be switched off, and keep what came of it.

    Outside of a transaction, since it waits for somebody else's server. Raises NotFound.
    """
    channel = _channel(channel_id)
    notice = Notice.objects.create(
        channel=channel, event=Event.TEST, title=_("Test of the channel %s") % channel.name,
        body=_("%s asked for it. Nothing is wrong.") % by, attempts=1, status=Notice.Status.REFUSED,
        last_error=_("The test was interrupted."), path="/admin/",
    )  # fmt: skip
    error = attempt(notice).error
    mine = Notice.objects.filter(pk=notice.pk)
    if error:
        mine.update(last_error=error)
    else:
        mine.update(status=Notice.Status.SENT, sent_at=Now(), last_error="")
    return Tested(notice_id=notice.pk, error=error)


@transaction.atomic
def create_rule(*, name: str, channel: UUID | None, listens_to: Sequence[str], **matches: str) -> UUID:
    """Add a rule; `matches` are those of `change_rule`. Raises Invalid."""
    said = _rule(name=name, channel=channel, listens_to=listens_to, **matches)
    try:
        with transaction.atomic():
            rule: UUID = NoticeRule.objects.create(**said).pk
            return rule
    except IntegrityError:
        raise Invalid([Problem("/name", "There is a rule of that name already.")]) from None


@transaction.atomic
def change_rule(
    *, rule_id: UUID, name: str, channel: UUID | None, listens_to: Sequence[str], enabled: bool, **matches: str
) -> None:
    """Change a rule for what happens from now on. `matches`: kind, agent, schedule, label ("key" or "key=value").

    What it was told before stays told: a failure that lasts is no news because the rule changed. Raises Invalid or
    NotFound.
    """
    said = _rule(name=name, channel=channel, listens_to=listens_to, **matches)
    _save(NoticeRule, rule_id, said | {"enabled": enabled})


@transaction.atomic
def send_again(*, notice_id: int) -> None:
    """Let a notice that was given up start anew, with the same delivery id. Raises NotFound or Invalid."""
    row = Notice.objects.filter(pk=notice_id)
    if not row.exists():
        raise NotFound
    dead = row.filter(status=Notice.Status.DEAD)
    if not dead.update(status=Notice.Status.WAITING, attempts=0, next_attempt_at=Now()):
        raise Invalid([Problem("/status", "Only a notice that was given up is sent again.")])


def _save(model: type[NoticeChannel] | type[NoticeRule], row_id: UUID, said: Mapping[str, Any]) -> None:
    try:
        with transaction.atomic():
            if not model.objects.filter(pk=row_id).update(**said):
                raise NotFound
    except IntegrityError:
        raise Invalid([Problem("/name", "There is another one of that name already.")]) from None


def _channel(channel_id: UUID) -> NoticeChannel:
    channel = NoticeChannel.objects.filter(pk=channel_id).first()
    if channel is None:
        raise NotFound
    return channel


def _shown(transport: Transport, address: str) -> str:
    if transport is Transport.APPRISE:
        return f"{chat.service_of(address)}://…"
    return ", ".join(mail.recipients(address)) if transport is Transport.EMAIL else address


def _address_problem(transport: Transport, address: str) -> str:
    if UNSTORABLE.search(address):
        return "Without NUL or half surrogate pairs."
    networks = allowed_networks()
    match transport:
        case Transport.EMAIL:
            return mail.address_problem(address)
        case Transport.WEBHOOK:
            return webhooks.url_problem(address, may_be_plain=bool(networks))
        case Transport.APPRISE:
            return chat.url_problem(address, networks)


def _channel_problems(name: str, digest_over: int, digest_seconds: int) -> list[Problem]:
    problems = _name_problems(name)
    for place, number, allowed in (
        ("digest_over", digest_over, DIGEST_OVER),
        ("digest_seconds", digest_seconds, DIGEST_SECONDS),
    ):
        if number not in allowed:
            problems.append(Problem(f"/{place}", f"From {allowed[0]} to {allowed[-1]}."))
    return problems


def _name_problems(name: str) -> list[Problem]:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        return [Problem("/name", f"1 to {MAX_NAME} printable characters.")]
    return []


def _rule(*, name: str, channel: UUID | None, listens_to: Sequence[str], **matches: str) -> dict[str, Any]:
    """The columns of a rule. Raises Invalid: one that can match nothing looks like protection and is none."""
    said = {place: matches.get(place, "") for place in ("kind", "agent", "schedule", "label")}
    problems = _name_problems(name)
    if channel is None or not NoticeChannel.objects.filter(pk=channel).exists():
        problems.append(Problem("/channel", "There is no such channel."))
    if not listens_to or set(listens_to) - set(LISTENABLE):
        problems.append(Problem("/listens_to", f"At least one of {', '.join(LISTENABLE)}."))
    elif set(listens_to) == {Event.RECOVERED}:
        problems.append(Problem("/listens_to", "Choose what can go wrong too: only what was told gets good again."))
    unstorable = [
        Problem(f"/{place}", f"At most {MAX_TEXT} characters, without NUL or half surrogate pairs.")
        for place, text in said.items()
        if len(text) > MAX_TEXT or UNSTORABLE.search(text)
    ]
    problems += unstorable or _match_problems(**said)
    if problems:
        raise Invalid(problems)
    return {"name": name, "channel_id": channel, "listens_to": list(dict.fromkeys(listens_to)), **said}


def _match_problems(*, kind: str, agent: str, schedule: str, label: str) -> list[Problem]:
    problems = []
    if kind and kind not in AgentTask.Type.values and not JobKind.objects.filter(name=kind).exists():
        problems.append(Problem("/kind", "There is no kind of that name."))
    if agent and not Agent.objects.filter(principal_key=agent).exists():
        problems.append(Problem("/agent", "There is no agent of that key."))
    if label.startswith("="):
        problems.append(Problem("/label", "A key, such as branch, or key=value, such as branch=main."))
    return problems
