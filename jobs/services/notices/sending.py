"""One notice on its way: what it says on each transport."""

import json
import time
from collections.abc import Callable
from ipaddress import ip_network

from django.conf import settings

from jobs.models import Event, Notice, NoticeChannel

from . import chat, mail, webhooks
from .addresses import Networks
from .sealing import UnsealableError, unseal
from .webhooks import UndeliveredError

TONES = {Event.RECOVERED: "success", Event.RISK: "warning", Event.TOKEN_EXPIRING: "warning", Event.TEST: "info"}


def allowed_networks() -> Networks:
    """The networks that are not public and may be told all the same, as the operator set them."""
    return [ip_network(text) for text in settings.NOTICE_NETWORKS]


def send(notice: Notice) -> None:
    """Send a notice over its channel, once. Touches no row. Raises UndeliveredError."""
    try:
        _TRANSPORTS[NoticeChannel.Transport(notice.channel.transport)](notice)
    except UnsealableError as error:
        raise UndeliveredError(str(error)) from None


def link(notice: Notice) -> str:
    """The address of the page that a notice leads to."""
    return f"{settings.PUBLIC_URL}{notice.path}" if notice.path else ""


def _mail(notice: Notice) -> None:
    mail.send(notice.channel.address, message_id=str(notice.delivery_id), title=_title(notice), body=_text(notice))


def _webhook(notice: Notice) -> None:
    at = int(time.time())
    body = json.dumps({
        "type": f"notice.{notice.event}",
        "timestamp": notice.created_at.isoformat(),
        "data": {
            "title": notice.title, "text": notice.body, "url": link(notice),
            "job": str(notice.root_id) if notice.root_id else None, "rule": notice.rule.name if notice.rule else None,
        },
    }).encode()  # fmt: skip
    message_id, secret = str(notice.delivery_id), unseal(notice.channel.secret or "")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "agentstore",
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": webhooks.signature(secret, message_id, at, body),
    }
    webhooks.post(notice.channel.address, body, headers, allowed_networks())


def _chat(notice: Notice) -> None:
    tone = TONES.get(Event(notice.event), "failure")
    url = unseal(notice.channel.secret or "")
    chat.send(url, allowed_networks(), title=_title(notice), body=_text(notice), tone=tone)


_TRANSPORTS: dict[NoticeChannel.Transport, Callable[[Notice], None]] = {
    NoticeChannel.Transport.EMAIL: _mail,
    NoticeChannel.Transport.WEBHOOK: _webhook,
    NoticeChannel.Transport.APPRISE: _chat,
}


def _title(notice: Notice) -> str:
    return f"[agentstore] {notice.title}"


def _text(notice: Notice) -> str:
    return "\n\n".join(part for part in (notice.body, link(notice)) if part) or notice.title
