"""Receivers of notices in this process: real HTTP and SMTP servers on loopback, which the settings allow here."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_django import Settings

from jobs.models import Agent, AgentJob, Event, Notice, NoticeChannel, NoticeRule
from jobs.services.notices import registry
from jobs.services.notices.matching import match
from tests.factories import AgentFactory, AgentJobFactory

LOOPBACK = ("127.0.0.0/8", "::1/128")
WORK = [Event.FAILED, Event.RISK, Event.RECOVERED]


@dataclass
class Receiver:
    """An HTTP server that notes what it gets and answers as it is told, 204 in the end."""

    url: str = ""
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)

    def bodies(self) -> list[Any]:
        """The JSON documents that came."""
        return [json.loads(body) for _, _, body in self.got]


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """A receiver on loopback, with loopback allowed."""
    settings.NOTICE_NETWORKS = LOOPBACK
    heard = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status, headers, said = heard.answers.pop(0) if heard.answers else (204, {}, b"")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        heard.url = f"http://127.0.0.1:{server.server_port}/hook"
        yield heard
        server.shutdown()
        thread.join()


@dataclass
class MailServer:
    """A mail server that keeps what it takes; `refusal` is what it answers to a recipient instead."""

    port: int = 0
    refusal: str = ""
    messages: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)


@pytest.fixture
def mail_server(settings: Settings) -> Iterator[MailServer]:
    """An SMTP server on loopback, to which the settings lead."""
    kept = MailServer()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 here")
            for line in iter(self.rfile.readline, b""):
                match line.split()[0].upper():
                    case b"RCPT" if kept.refusal:
                        self.say(kept.refusal)
                    case b"RCPT":
                        kept.recipients.append(line.decode().strip().partition(":")[2].strip("<>"))
                        self.say("250 ok")
                    case b"DATA":
                        self.say("354 go on")
                        lines = iter(self.rfile.readline, b".\r\n")
                        kept.messages.append(b"".join(lines).decode())
                        self.say("250 taken")
                    case b"QUIT":
                        self.say("221 bye")
                        return
                    case _:
                        self.say("250 ok")

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        kept.port = server.server_address[1]
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", kept.port
        yield kept
        server.shutdown()
        thread.join()


@pytest.fixture
def webhook(receiver: Receiver, db: None) -> NoticeChannel:
    """A webhook channel that leads to the receiver."""
    made = registry.create_channel(name="hook", transport="webhook", address=receiver.url, by="ada")
    return NoticeChannel.objects.get(pk=made.channel_id)


@pytest.fixture
def listen(webhook: NoticeChannel) -> Callable[..., NoticeRule]:
    """Make a rule for the webhook, with the past read already."""

    def listen(listens_to: list[Event] = WORK, **matches: str) -> NoticeRule:
        name = f"rule {NoticeRule.objects.count()}"
        rule_id = registry.create_rule(name=name, channel=webhook.pk, listens_to=listens_to, **matches)
        match()
        return NoticeRule.objects.get(pk=rule_id)

    return listen


def told() -> list[tuple[str, str]]:
    """What was written into the outbox, in order."""
    return list(Notice.objects.order_by("id").values_list("event", "title"))


def ended(agent: Agent | None = None, **columns: Any) -> AgentJob:
    """A job that plain SQL queued, started and ended; the triggers write its history."""
    agent = agent or Agent.objects.filter(principal_key="ci").first() or AgentFactory(principal_key="ci")
    end = {"status": "done", "verdict": "pass"} | {
        name: columns.pop(name) for name in ("status", "verdict", "error", "failure_class") if name in columns
    }
    if end["status"] != "done":
        end["verdict"] = None
    job = AgentJobFactory(agent=agent, **columns)
    rows = AgentJob.objects.filter(pk=job.pk)
    rows.update(status="running")
    rows.update(**end)
    job.refresh_from_db()
    return job
