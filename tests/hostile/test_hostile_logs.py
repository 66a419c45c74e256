"""What others write never becomes a second log line, a forged one, or a command to a terminal."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from agentstore import log_lines
from jobs.management.clockwork import Clockwork, Duty
from jobs.models import Agent
from tests.hostile.site import Callers, Subjects, ask

FORGERIES = {
    "CR LF": 'a\r\n{"level":"error","event":"forged"}',
    "LF": "a\n2026-01-01 level=error event=forged",
    "ANSI": "a\x1b[2J\x1b]0;forged\x07",
    "C1": "a\x9b2J\x85forged",
    "line separators": "a\u2028forged\u2029forged",
    "bidi": "a\u202eforged\u2066\u200f\u061c",
    "backspace": "a\b\b\bforged",
    "surrogate": "a\udcff",
}
DANGEROUS = set(map(chr, [*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F),
                          *range(0x2066, 0x206A), *range(0xD800, 0xE000)]))  # fmt: skip


@pytest.fixture(params=[True, False], ids=["production", "development"])
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """All that is logged, as this installation would write it."""
    stream = io.StringIO()
    formatter = log_lines.logging_configuration(level="DEBUG", json=request.param)["formatters"]["line"]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter["()"](**{key: value for key, value in formatter.items() if key != "()"}))
    root, before = logging.getLogger(), logging.getLogger().level
    root.handlers.insert(0, handler)  # as the only one: those of pytest write on the record
    root.setLevel("DEBUG")
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def judge(stream: io.StringIO, least: int = 1) -> list[str]:
    """Every line is one that the formatter began, and none holds what a terminal or a reader would take for more."""
    text = stream.getvalue()
    assert not set(text) - {"\n"} & DANGEROUS
    written = text.split("\n")[:-1]
    assert len(written) >= least
    for line in written:
        if line.startswith("{"):
            assert json.loads(line)["level"]
        else:
            assert line.startswith("at=20"), line
    assert not [line for line in written if line.startswith(('{"level":"error","event":"forged"', "2026-01-01 level"))]
    return written


@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES.keys())
def test_an_address_that_nobody_has_is_one_line(text: str, lines: io.StringIO, callers: Callers) -> None:
    for who in ("anonymous", "superuser", "agent"):
        for place in ("/api/v1/{}", "/admin/{}", "/admin/jobs/agentjob/{}/change/", "/{}"):
            ask(callers[who], "GET", place.format(text.encode("utf-8", "surrogatepass").decode("latin-1")))
    judge(lines, 12)


@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES.keys())
def test_what_forms_headers_and_bodies_say_is_one_line_each(
    text: str, lines: io.StringIO, subjects: Subjects, callers: Callers
) -> None:
    agent = subjects.rows.agent
    Agent.objects.filter(pk=agent.pk).update(title=text.replace("\udcff", ""))
    header = text.encode("utf-8", "surrogatepass").decode("latin-1")
    typed = text.encode("utf-8", "replace").decode()  # a form is UTF-8
    for who in ("anonymous", "superuser", "agent"):
        client = callers[who]
        ask(
            client, "GET", "/api/v1/agents/me", HTTP_USER_AGENT=header, HTTP_X_FORWARDED_FOR=header, HTTP_REFERER=header
        )
        ask(client, "GET", "/admin/", HTTP_HOST=header)
        client.post("/admin/login/", {"username": typed, "password": typed})
        client.post(reverse("admin:jobs_agentjob_cancel_row", args=[subjects.rows.queued.pk]), {"reason": typed})
        claim = {"claim_id": text, "kinds": [text], "runner": {"name": text, "version": text}}
        ask(client, "POST", "/api/v1/jobs/claim", data=json.dumps(claim), content_type="application/json")
        name = f"/api/v1/jobs/{subjects.rows.running.pk}/artifacts?name="
        ask(client, "PUT", name + "x", data=b"x", HTTP_CONTENT_DIGEST=header, HTTP_AGENTSTORE_CLAIM_ID=header)
    judge(lines)


@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES.keys())
def test_the_error_of_a_duty_of_maintenance_is_one_line(text: str, lines: io.StringIO, db: None) -> None:
    def act() -> None:
        raise ValueError(text)

    Clockwork([Duty(name="odd", act=act)], stop=threading.Event()).once()
    assert "ValueError" in judge(lines)[-1]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:99999", "a\r\nb", "\x1b[2J", "x" * 5000])
@pytest.mark.parametrize("path", ["/admin/", "/api/v1/agents/me", "/", "/artifacts/x"])
def test_a_forged_host_name_is_one_short_line_without_a_traceback(
    host: str, path: str, lines: io.StringIO, db: None
) -> None:
    answer = Client(raise_request_exception=False).get(path, HTTP_HOST=host)
    assert answer.status_code == 400
    told = [line for line in judge(lines) if "HTTP_HOST" in line]
    assert len(told) == 1
    assert "Traceback" not in told[0]
    assert "warning" in told[0]
    assert len(told[0]) < 2_000


def test_the_installation_logs_through_that_formatter_only() -> None:
    assert list(settings.LOGGING["handlers"]) == ["stderr"]
    assert not [one for one in settings.LOGGING["loggers"].values() if one["handlers"]]
