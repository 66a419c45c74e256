"""Chat services, through the Apprise library in a process of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentstore_runner.redaction import Redactor

from .addresses import Networks
from .webhooks import UndeliveredError

SECONDS = 20.0  # the library takes one to three of them to load
MAX_URL = 2000
# Services whose messages travel over TLS, and those that name a host and may use plain http.
SERVICES = frozenset({
    "apprises", "cliq", "dingtalk", "discord", "feishu", "flock", "forms", "gchat", "gotifys", "ilert", "incidentio",
    "jsons", "lark", "line", "matrixs", "mmosts", "ntfys", "opsgenie", "pagerduty", "pagertree", "pover", "pushy",
    "rockets", "ryver", "signl4", "slack", "spike", "splunk", "squadcast", "synologys", "tgram", "threema", "twilio",
    "twist", "victorops", "webex", "wecombot", "whatsapp", "workflow", "workflows", "wxteams", "xmls", "zoom", "zulip",
})  # fmt: skip
PLAIN_SERVICES = frozenset({
    "apprise", "form", "gotify", "json", "matrix", "mmost", "ntfy", "rocket", "synology", "xml",
})  # fmt: skip
ROOT = Path(__file__).resolve().parents[3]


def service_of(url: str) -> str:
    """The service that an Apprise URL names."""
    return url.partition("://")[0].lower()


def url_problem(url: str, networks: Networks) -> str:
    """What is wrong with an Apprise URL, or an empty text; the library itself is asked."""
    service = service_of(url)
    if len(url) > MAX_URL or not url.isprintable():
        return f"At most {MAX_URL} printable characters."
    if service not in SERVICES | PLAIN_SERVICES:
        return f"Of Apprise's services these are supported: {', '.join(sorted(SERVICES))}."
    if service in PLAIN_SERVICES and not networks:
        return f"{service}:// is plain http, and the operator has allowed no network for it: use {service}s://."
    try:
        _run(url, networks, send=False, title="", body="", tone="info")
    except UndeliveredError as error:
        return str(error)
    return ""


def send(url: str, networks: Networks, *, title: str, body: str, tone: str) -> None:
    """Send a message; `tone` is info, success, warning or failure. Raises UndeliveredError."""
    _run(url, networks, send=True, title=title, body=body, tone=tone)


def _run(url: str, networks: Networks, *, send: bool, title: str, body: str, tone: str) -> None:
    asked: dict[str, Any] = {
        "url": url, "send": send, "title": title, "body": body, "tone": tone,
        "networks": [str(network) for network in networks], "only_networks": service_of(url) in PLAIN_SERVICES,
    }  # fmt: skip
    # Neither proxies, whose answers nobody could judge, nor anything of the installation's own.
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    words = [sys.executable, "-m", "jobs.services.notices.chat_process"]
    try:
        done = subprocess.run(
            words, input=json.dumps(asked), capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment,
            check=True,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise UndeliveredError(f"The service did not take the message within {SECONDS:.0f} seconds.") from None
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise UndeliveredError("The chat library ended without an answer.") from None
    if not answer["ok"]:
        raise UndeliveredError(_without_secrets(url, answer["error"]))


def _without_secrets(url: str, text: str) -> str:
    """The text without what the URL holds; Apprise's own messages quote hosts and parts of it at times."""
    parts = [part for part in re.split(r"[/:@?&=]+", url) if len(part) > 5]
    return Redactor([url, *parts]).text(text)
