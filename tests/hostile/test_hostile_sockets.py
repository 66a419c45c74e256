"""Bytes on the real server's socket that no client library would send: framing that lies, and headers beyond reason."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from agentstore.config import REPOSITORY, config
from agentstore.supervisor import web_server
from jobs.services import token_format
from tests.outages.installation import wait_until

pytestmark = pytest.mark.database
SILENCE = 20  # seconds; only a server that hangs needs them


@dataclass(frozen=True)
class Server:
    """A running server, and a bearer that it lets in."""

    port: int
    bearer: str
    log: Path

    def exchange(self, sent: bytes, *, cut: bool = False) -> list[tuple[int, bytes]]:
        """Send raw bytes, hang up if they are `cut`, and return status and body of every answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SILENCE) as line:
            received = b""
            try:
                line.sendall(sent)
                if cut:
                    line.shutdown(socket.SHUT_WR)
                while part := line.recv(65536):
                    received += part
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise  # the server may hang up on what it will not read; it may not keep silent
        return list(_answers(received))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(received: bytes) -> Iterator[tuple[int, bytes]]:
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])
        }
        # Without a length the rest is the body: every request asks for the end of the connection.
        length = int(headers.get(b"content-length", len(rest)))
        yield int(lines[0].split()[1]), rest[:length]
        received = rest[length:]


@pytest.fixture(scope="module")
def server(migrated_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Granian as production starts it, with one agent."""
    home = tmp_path_factory.mktemp("web")
    bearer = token_format.mint()
    with psycopg.connect(migrated_database, autocommit=True) as connection:
        connection.execute(
            "WITH a AS (INSERT INTO agents (principal_key, registered_at) VALUES ('raw', now()) RETURNING id)"
            " INSERT INTO agent_tokens (agent_id, digest, prefix, created_by) SELECT id, %s, 'ags_r_', 'test' FROM a",
            [token_format.digest(bearer)],
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = web_server(replace(config, host="127.0.0.1", port=port, workers=1, threads=2))
    environment = {**os.environ, "DATABASE_URL": migrated_database, "AGENTSTORE_HOME": str(home), "PRODUCTION": "0"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: _listens(port) or process.poll() is not None, "the server listens")
        assert process.poll() is None, log.read_text()
        yield Server(port=port, bearer=bearer, log=log)
        assert process.poll() is None, "the server died"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SILENCE)


def request(
    server: Server, body: bytes, *headers: str, path: str = "/api/v1/jobs/claim", method: str = "POST"
) -> bytes:
    """A request whose framing is entirely in `headers`."""
    lines = [
        f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {server.bearer}",
        "Content-Type: application/json", "Connection: close", *headers,
    ]  # fmt: skip
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def claim(**more: object) -> bytes:
    """The body of a claim that finds nothing."""
    body = {"claim_id": str(uuid4()), "kinds": ["none"], "runner": {"name": "raw", "version": "1.0.0"}}
    return json.dumps(body | more).encode()


def chunks(*parts: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def statuses(answers: list[tuple[int, bytes]]) -> list[int]:
    return [status for status, _ in answers]


def test_a_plain_request_is_answered(server: Server) -> None:
    body = claim()
    assert statuses(server.exchange(request(server, body, f"Content-Length: {len(body)}"))) == [204]


def test_a_chunked_body_is_read_whatever_its_pieces(server: Server) -> None:
    body = claim()
    pieces = chunks(*(body[at : at + 1] for at in range(len(body))))
    for sent in (chunks(body), pieces):
        assert statuses(server.exchange(request(server, sent, "Transfer-Encoding: chunked"))) == [204]


def test_a_chunked_body_above_the_limit_is_too_large(server: Server) -> None:
    body = chunks(*[b" " * 65536] * 64)
    for status, said in server.exchange(request(server, body, "Transfer-Encoding: chunked")):
        assert (status, json.loads(said)["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "body",
    [b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n{}", b"5\r\n{}", b"2;x=\x00\r\n{}"],
)
def test_chunks_that_are_none_are_refused(server: Server, body: bytes) -> None:
    assert set(statuses(server.exchange(request(server, body, "Transfer-Encoding: chunked"), cut=True))) <= {400}


def test_a_body_shorter_than_its_length_is_no_request(server: Server) -> None:
    body = claim()
    assert set(statuses(server.exchange(request(server, body, f"Content-Length: {len(body) + 9}"), cut=True))) <= {400}


def test_what_follows_the_length_is_no_second_request(server: Server) -> None:
    body = claim()
    smuggled = request(server, b"", "Content-Length: 0", path="/api/v1/agents/me", method="GET")
    answers = server.exchange(request(server, body + smuggled, f"Content-Length: {len(body)}"))
    assert statuses(answers) == [204]


@pytest.mark.parametrize(
    "framing",
    [
        ("Content-Length: {n}", "Content-Length: 0"), ("Content-Length: 0", "Content-Length: {n}"),
        ("Content-Length: {n}, 0",), ("Content-Length: {n}", "Transfer-Encoding: identity"),
        ("Content-Length: -1",), ("Content-Length: +{n}",), ("Content-Length: 0x10",), ("Content-Length: {n}abc",),
        ("Content-Length: 99999999999999999999999",), ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",), ("Content-Length : {n}",), (" Content-Length: {n}",),
    ],
    ids=" + ".join,
)  # fmt: skip
def test_framing_that_contradicts_itself_is_refused_and_leaves_no_second_request(
    server: Server, framing: tuple[str, ...]
) -> None:
    body = claim()
    headers = [line.format(n=len(body)) for line in framing]
    answers = server.exchange(request(server, body, *headers), cut=True)
    assert len(answers) <= 1
    assert set(statuses(answers)) <= {400, 411, 413, 415, 501}


def test_a_length_beside_chunks_does_not_split_the_request(server: Server) -> None:
    body = claim()
    answers = server.exchange(request(server, chunks(body), "Content-Length: 5", "Transfer-Encoding: chunked"))
    assert statuses(answers) in ([204], [400], [])


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        (["X-Long: " + "x" * 10_240], {204}),
        (["X-Far-Too-Long: " + "x" * 1_000_000], {431, 400}),
        ([f"X-Many-{number}: x" for number in range(2_000)], {431, 400}),
        (["X-Caf\u00e9: \u00e9"], {400}),
        (["X-Value: caf\u00e9 \u00ff"], {204}),
        (["X-Nul: a\x00b"], {400}),
        (["X-Fold: a\r\n b"], {400}),
        (["Authorization: Bearer other"], {401, 400}),
        (["Accept: " + ',"' * 20_000], {204, 431}),
        (["Host: evil.example"], {400}),
        (["Agentstore_Claim_Id: x", "X_Forwarded_For: 1"], {204}),
    ],
    ids=["10 kB", "1 MB", "many", "name not ASCII", "value not ASCII", "NUL", "folded", "two bearers", "quotes",
         "two hosts", "underscores"],
)  # fmt: skip
def test_a_header_beyond_reason_never_makes_a_fault(server: Server, headers: list[str], allowed: set[int]) -> None:
    body = claim()
    answers = server.exchange(request(server, body, f"Content-Length: {len(body)}", *headers))
    assert set(statuses(answers)) <= allowed


@pytest.mark.parametrize(
    "line",
    [b"", b"\r\n\r\n", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00",
     b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
     b"G\x00T / HTTP/1.1\r\n\r\n", b"GET " + b"/x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
     b"GET http://evil.example/api/v1/agents/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
     b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
     b"CONNECT evil:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"],
    ids=range(12),
)  # fmt: skip
def test_what_is_hardly_http_gets_no_fault(server: Server, line: bytes) -> None:
    for status, _ in server.exchange(line, cut=True):
        assert 400 <= status < 500


def test_after_all_that_the_server_answers_and_has_logged_no_fault_and_no_bearer(server: Server) -> None:
    forged = "/api/v1/x%0d%0a2026%20ERROR%20forged%1b%5b2J"
    assert statuses(server.exchange(request(server, b"", "Content-Length: 0", path=forged, method="GET"))) == [404]
    log = server.log.read_text(errors="replace")
    assert "Traceback" not in log
    assert log.count("Invalid HTTP_HOST header") == log.count("DisallowedHost")  # each forged name: one line
    assert "\x1b[2J" not in log
    assert not [line for line in log.splitlines() if line.startswith("2026 ERROR forged")]
    assert server.bearer not in log
