"""The browser's one way out, spoken to as a browser does."""

import base64
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from agentstore_runner.contract.grants import REQUESTS, Grant
from agentstore_runner.uat.fence import Fence
from agentstore_runner.uat.gate import Gate
from workbench import Site

SECONDS = 10
NO_TUNNEL = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def gate(*urls: str, local: bool = True, restricted: tuple[str, ...] = REQUESTS) -> Iterator[Gate]:
    """A gate to these sites."""
    grant = Grant(name="x", origins=urls, hosts=(), secrets=(), allow_local=local, restricted=restricted)
    with Gate(Fence(urls[0], tuple(url.partition("//")[2] for url in urls[1:]), grant=grant)) as opened:
        yield opened.open()
        opened.shutdown()


def say(gate: Gate, text: str, more: bytes = b"") -> bytes:
    """Everything that comes back."""
    with socket.create_connection(gate.server_address[:2], timeout=SECONDS) as line:  # type: ignore[arg-type]  # IPv4
        line.sendall(text.replace("\n", "\r\n").encode() + b"\r\n\r\n" + more)
        found = b""
        while block := line.recv(65_536):
            found += block
        return found


def get(url: str, *headers: str) -> str:
    return "\n".join([f"GET {url} HTTP/1.1", f"Host: {url.split('/')[2]}", *headers])


def test_a_plain_request_arrives_with_its_path_and_without_what_was_meant_for_the_proxy(web: Site) -> None:
    web.page("/a", "<p>home</p>")
    with gate(web.url) as opened:
        answer = say(opened, get(f"{web.url}/a?b=//c", "Proxy-Connection: keep-alive", "X-Own: 1"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"<p>home</p>")
    ((path, headers, _),) = web.seen
    assert (path, headers["x-own"], headers["connection"]) == ("/a", "1", "close")
    assert "proxy-connection" not in headers


def test_a_body_is_passed_on(web: Site) -> None:
    web.page("/form", "taken")
    with gate(web.url) as opened:
        head = get(f"{web.url}/form", "Content-Length: 5").replace("GET", "POST")
        assert say(opened, head, b"a=b&c").endswith(b"taken")
    assert web.seen[0][2] == "a=b&c"


@pytest.mark.parametrize("word", ["GET", "CONNECT"])
@pytest.mark.parametrize("asked", ["another port", "another host", "no address"])
def test_nobody_gets_to_where_the_fence_is_closed(web: Site, word: str, asked: str) -> None:
    place = {"another port": "127.0.0.1:1", "another host": f"localhost:{web.server_port}", "no address": "[::x"}[asked]
    target = place if word == "CONNECT" else f"http://{place}/"
    with gate(web.url) as opened:
        answer = say(opened, f"{word} {target} HTTP/1.1\nHost: {place}")
    assert answer == (b"" if word == "GET" else NO_TUNNEL)
    assert web.seen == []


@pytest.mark.parametrize("words", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe x y\r\n\r\n", b"a" * 300_000])
def test_nonsense_ends_its_connection_and_nothing_else(web: Site, words: bytes) -> None:
    web.page("/", "home")
    with gate(web.url) as opened:
        with socket.create_connection(opened.server_address[:2], timeout=SECONDS) as line:  # type: ignore[arg-type]
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            assert read_to_end(line) in (b"", NO_TUNNEL)
        assert say(opened, get(f"{web.url}/")).endswith(b"home")


def read_to_end(line: socket.socket) -> bytes:
    try:
        return line.recv(1000)
    except ConnectionResetError:
        return b""


def test_a_tunnel_carries_both_directions(web: Site) -> None:
    web.page("/", "through")
    place = web.url.partition("//")[2]
    with gate(web.url) as opened:
        inside = f"GET / HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n".encode()
        answer = say(opened, f"CONNECT {place} HTTP/1.1\nHost: {place}", inside)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200")
    assert answer.endswith(b"through")


def test_a_name_that_leads_to_the_machine_itself_after_all_leads_nowhere(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, own = f"http://rebound.test:{web.server_port}", socket.getaddrinfo
    answers = iter(["192.0.2.7", "127.0.0.1"])
    given: list[str] = []

    def resolve(host: str, port: Any, *rest: Any, **more: Any) -> list[Any]:
        if host != "rebound.test":
            return own(host, port, *rest, **more)
        given.append(next(answers))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (given[-1], port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with gate(url, local=False) as opened:
        assert say(opened, get(f"{url}/")) == b""
    assert given == ["192.0.2.7", "127.0.0.1"]
    assert web.seen == []


def test_what_a_target_leaves_open_may_be_loaded_from_any_host_but_this_machine(web: Site) -> None:
    with gate("http://elsewhere.example", local=False, restricted=("script",)) as opened:
        assert say(opened, get(f"{web.url}/")) == b""
    with gate("http://elsewhere.example", local=True, restricted=("script",)) as opened:
        assert say(opened, get(f"{web.url}/")).startswith(b"HTTP/1.1 404")


def test_why_nobody_answered_is_known_until_somebody_does(web: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    down = f"127.0.0.1:{port}"
    with gate(web.url, f"http://{down}", "http://nobody.invalid") as opened:
        for place, word in ((down, "ERR_CONNECTION_REFUSED"), ("nobody.invalid", "ERR_NAME_NOT_RESOLVED")):
            assert say(opened, get(f"http://{place}/")) == b""
            assert word in opened.failures.values()
        opened.failures["127.0.0.1", web.server_port] = "ERR_CONNECTION_REFUSED"
        assert say(opened, get(f"{web.url}/")).startswith(b"HTTP/1.1 404")
        assert set(opened.failures) == {("127.0.0.1", port), ("nobody.invalid", 80)}


class Upstream(socketserver.ThreadingTCPServer):
    """A proxy of a company: it keeps what it was asked, and answers a tunnel or a request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.heads: list[list[bytes]] = []


class _Asked(socketserver.StreamRequestHandler):
    server: Upstream

    def handle(self) -> None:
        head = []
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            head.append(line.strip())
        self.server.heads.append(head)
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.wfile.write(b"from upstream")


@pytest.mark.parametrize("word", ["GET", "CONNECT"])
def test_a_proxy_of_the_environment_is_used_with_its_password(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    with Upstream() as upstream:
        threading.Thread(target=upstream.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://jane:p%40ss@127.0.0.1:{upstream.server_address[1]}")
        monkeypatch.setenv("no_proxy", "")
        url = "http://shop.example"
        asked = "CONNECT shop.example:80 HTTP/1.1\nHost: shop.example:80" if word == "CONNECT" else get(f"{url}/a")
        with gate(url, local=False) as opened:
            assert say(opened, asked).endswith(b"from upstream")
        upstream.shutdown()
    (head,) = upstream.heads
    assert head[0] == (
        b"CONNECT shop.example:80 HTTP/1.1" if word == "CONNECT" else b"GET http://shop.example/a HTTP/1.1"
    )
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"jane:p@ss") in head
