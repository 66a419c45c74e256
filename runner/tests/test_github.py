"""A bearer of a workflow run: replaced before it ends, kept while nobody answers, masked from its first moment."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from agentstore_runner import clock
from agentstore_runner.client import Client
from agentstore_runner.github import RENEW_WITHIN_S, RETRY_S, ExchangeError, Provider, RefusedError, RunBearer

KEY = "key-of-the-run-2f9a"
LIVES_S = 900


class Both(ThreadingHTTPServer):
    """GitHub's token address and the server's exchange in one; each exchange gives another bearer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.given, self.status = 0, 201


class _Handler(BaseHTTPRequestHandler):
    server: Both

    def do_GET(self) -> None:
        self._say(200, {"value": "a.b.c"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status != 201:
            return self._say(self.server.status, {"status": self.server.status, "code": "token_refused"})
        self.server.given += 1
        return self._say(201, {"token": bearer(self.server.given), "agent": "ci", "expires_in": LIVES_S})

    def _say(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def bearer(number: int) -> str:
    return f"ags_r_{number:039}"


@pytest.fixture
def both() -> Iterator[Both]:
    with Both() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock's hand, to be moved."""
    at = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: at[0])
    return at


def provider(both: Both) -> Provider:
    environ = {"ACTIONS_ID_TOKEN_REQUEST_URL": f"{both.url}/token?x=1", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": KEY}
    found = Provider.taken_from(environ)
    assert environ == {}  # no child process inherits them
    return found


def test_a_bearer_is_replaced_before_it_ends_and_every_value_is_told_first(both: Both, time: list[float]) -> None:
    told: list[str] = []
    run = RunBearer(provider(both), Client(both.url, None), audience="x", tell=told.append)
    assert run.reveal() == bearer(1)
    time[0] += LIVES_S - RENEW_WITHIN_S - 1
    assert run.reveal() == bearer(1)
    time[0] += 1
    assert [run.reveal(), run.reveal()] == [bearer(2)] * 2
    assert told == run.known() == [bearer(1), bearer(2)]
    assert bearer(1) not in repr(run)


def test_a_bearer_that_cannot_be_replaced_now_is_used_on_and_asked_for_again_later(
    both: Both, time: list[float]
) -> None:
    run = RunBearer(provider(both), Client(both.url, None), audience="x", tell=lambda _: None)
    time[0] += LIVES_S - RENEW_WITHIN_S
    both.status = 503
    assert run.reveal() == bearer(1)
    both.status = 201
    assert run.reveal() == bearer(1)  # not asked again at once
    time[0] += RETRY_S
    assert run.reveal() == bearer(2)


def test_threads_that_meet_at_the_end_of_a_bearer_ask_for_one_new_one(both: Both, time: list[float]) -> None:
    run = RunBearer(provider(both), Client(both.url, None), audience="x", tell=lambda _: None)
    time[0] += LIVES_S
    threads = [threading.Thread(target=run.reveal) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert both.given == 2


def test_a_refusal_says_what_the_server_says(both: Both) -> None:
    both.status = 401
    with pytest.raises(RefusedError, match="401 token_refused"):
        RunBearer(provider(both), Client(both.url, None), audience="x", tell=lambda _: None)


@pytest.mark.parametrize("url", ["", "http://github.example/token", "https://user:secret@github.example/", "x"])
def test_an_address_for_tokens_that_would_give_the_key_away_is_refused(url: str) -> None:
    with pytest.raises(ExchangeError):
        Provider.taken_from({"ACTIONS_ID_TOKEN_REQUEST_URL": url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": KEY})
