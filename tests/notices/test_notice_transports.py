"""What leaves the house, and what must not: addresses, redirects, certificates, mail, and the Apprise library."""

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_string
from email.policy import default
from ipaddress import ip_network
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pytest_django import Settings

from jobs.models import Event, Notice, NoticeChannel
from jobs.services.errors import Invalid
from jobs.services.notices import addresses, chat, registry, sending, webhooks
from jobs.services.notices.addresses import RefusedAddressError, judge, resolve
from jobs.services.notices.webhooks import UndeliveredError, post
from tests.notices.conftest import LOOPBACK, MailServer, Receiver

LOOP = [ip_network(text) for text in LOOPBACK]

REFUSED = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001:0:4136:e378:8000:63bf:56ff:fefe", "::127.0.0.1", "nonsense", "",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_inside_is_refused_in_every_spelling(address: str) -> None:
    with pytest.raises(RefusedAddressError):
        judge(address, [])


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_allowed_but_not_for_plain_http(address: str) -> None:
    assert judge(address, [])
    with pytest.raises(RefusedAddressError, match="Plain http"):
        judge(address, LOOP, only_networks=True)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_an_allowed_network_opens_only_itself(address: str) -> None:
    assert judge(address, LOOP, only_networks=True)
    with pytest.raises(RefusedAddressError):
        judge("169.254.169.254", LOOP)


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "017700000001", "localhost", "0"])
def test_a_host_is_judged_by_what_it_resolves_to_however_it_is_spelled(host: str) -> None:
    with pytest.raises(RefusedAddressError):
        resolve(host, 443, [])


def answering(*answers: list[str]) -> Any:
    """A resolver that gives one list of addresses after another, the last one for ever."""
    left = list(answers)

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    return getaddrinfo


def test_one_bad_answer_among_good_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses.socket, "getaddrinfo", answering(["8.8.8.8", "10.0.0.1"]))
    with pytest.raises(RefusedAddressError):
        resolve("example.org", 443, [])


def test_a_name_that_changes_its_answer_after_the_check_is_not_asked_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = receiver.url.split(":")[2].split("/")[0]
    lookups = []
    answers = answering(["127.0.0.1"], ["169.254.169.254"])
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **named: Any) -> Any:
        if host != "rebind.example.org":
            return real(host, *rest, **named)
        lookups.append(host)
        return answers(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    post(f"http://rebind.example.org:{port}/hook", b"{}", {}, LOOP)
    assert lookups == ["rebind.example.org"]
    assert receiver.got[0][1]["host"] == f"rebind.example.org:{port}"


def test_loopback_is_refused_unless_the_operator_allows_it(receiver: Receiver) -> None:
    with pytest.raises(UndeliveredError, match="Plain http goes only to networks"):
        post(receiver.url, b"{}", {}, [])
    with pytest.raises(UndeliveredError, match="not a public address"):
        post(receiver.url.replace("http:", "https:"), b"{}", {}, [])
    assert receiver.got == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(status: int, receiver: Receiver) -> None:
    receiver.answers = [(status, {"Location": receiver.url}, b"")]
    with pytest.raises(UndeliveredError, match="redirect"):
        post(receiver.url, b"{}", {}, LOOP)
    assert len(receiver.got) == 1


def test_of_a_refusal_only_its_beginning_is_kept(receiver: Receiver) -> None:
    receiver.answers = [(400, {}, b"x" * 1_000_000)]
    with pytest.raises(UndeliveredError) as refusal:
        post(receiver.url, b"{}", {}, LOOP)
    assert len(str(refusal.value)) < 400


@pytest.fixture
def odd_server() -> Iterator[Any]:
    """A listener whose connections a function of the test handles."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(handle: Any) -> str:
            def run() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    handle(connection)

            threads.append(threading.Thread(target=run))
            threads[-1].start()
            return f"http://127.0.0.1:{listener.getsockname()[1]}/"

        yield serve
        for thread in threads:
            thread.join()


def test_an_answer_that_drips_is_cut_when_the_whole_time_is_over(
    odd_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TOTAL", 0.3)
    cut = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        try:
            while not cut.wait(0.02):
                connection.sendall(b"X: y\r\n")
        except OSError:
            cut.set()

    url = odd_server(drip)
    with pytest.raises(UndeliveredError):
        post(url, b"{}", {}, LOOP)
    cut.set()


@pytest.mark.parametrize("said", [b"", b"220 mail.example.org ESMTP\r\n", b"\x00\xff" * 100, b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_is_a_failure_with_a_reason(said: bytes, odd_server: Any) -> None:
    url = odd_server(lambda connection: connection.sendall(said))
    with pytest.raises(UndeliveredError, match=r"HTTP|connection failed"):
        post(url, b"{}", {}, LOOP)


def test_a_closed_port_is_a_failure_with_a_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UndeliveredError, match="Connection refused"):
        post(f"http://127.0.0.1:{port}/", b"{}", {}, LOOP)


def test_a_certificate_that_nobody_vouches_for_is_refused(odd_server: Any, tmp_path: Any) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with pytest.raises((ssl.SSLError, OSError)):
                context.wrap_socket(connection, server_side=True)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(UndeliveredError, match="certificate is not trusted"):
            post(f"https://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {}, LOOP)
        thread.join()


def mail_channel(address: str = "ada@example.org, bob@example.org") -> NoticeChannel:
    """A channel of mail."""
    made = registry.create_channel(name="mail", transport="email", address=address, by="ada")
    return NoticeChannel.objects.get(pk=made.channel_id)


def test_a_mail_reaches_every_recipient_with_a_message_id_that_repetitions_share(
    db: None, mail_server: MailServer
) -> None:
    title = "Failed: café\r\nBcc: eve@example.org"
    notice = Notice.objects.create(
        channel=mail_channel(), event=Event.FAILED, title=title, body="why", path="/admin/x/"
    )
    notice.refresh_from_db()
    sending.send(notice)
    sending.send(notice)
    assert mail_server.recipients == ["ada@example.org", "bob@example.org"] * 2
    first, second = (message_from_string(text, policy=default) for text in mail_server.messages)
    assert first["Subject"].strip() == "[agentstore] Failed: café Bcc: eve@example.org"
    assert first["Bcc"] is None
    assert first["Message-ID"] == second["Message-ID"] == f"<{notice.delivery_id}@localhost>"
    assert first["Auto-Submitted"] == "auto-generated"
    assert first.get_content().split() == ["why", "http://127.0.0.1:8000/admin/x/"]


def test_a_refusal_of_the_mail_server_is_the_reason(db: None, mail_server: MailServer) -> None:
    mail_server.refusal = "550 no such user"
    notice = Notice.objects.create(channel=mail_channel("nobody@example.org"), event=Event.FAILED, title="x")
    with pytest.raises(UndeliveredError, match="no such user"):
        sending.send(notice)


def apprise_channel(url: str) -> NoticeChannel:
    """A channel of a chat service."""
    made = registry.create_channel(name="chat", transport="apprise", address=url, by="ada")
    return NoticeChannel.objects.get(pk=made.channel_id)


def test_apprise_delivers_to_a_real_endpoint_and_its_address_is_kept_sealed(receiver: Receiver, db: None) -> None:
    host = receiver.url.removeprefix("http://")
    channel = apprise_channel(f"json://ada:hunter2hunter2@{host}")
    assert channel.address == "json://…"
    assert "hunter2" not in (channel.secret or "")
    sending.send(Notice(channel=channel, event=Event.FAILED, title="Failed: x", body="why", path="/admin/x/"))
    ((path, headers, _),) = receiver.got
    (body,) = receiver.bodies()
    assert path == "/hook"
    assert "authorization" in headers
    assert (body["title"], body["type"]) == ("[agentstore] Failed: x", "failure")
    assert body["message"].startswith("why")


def test_apprise_is_held_to_the_same_addresses_also_after_the_check(receiver: Receiver, db: None) -> None:
    host = receiver.url.removeprefix("http://")
    with pytest.raises(UndeliveredError, match="Plain http goes only to networks"):
        chat.send(f"json://{host}", [ip_network("10.0.0.0/8")], title="x", body="x", tone="info")
    with pytest.raises(UndeliveredError, match="not a public address"):
        chat.send(f"jsons://{host}", [], title="x", body="x", tone="info")
    assert receiver.got == []


def test_apprise_follows_no_redirect_and_its_reason_holds_no_secret(receiver: Receiver, db: None) -> None:
    receiver.answers = [(302, {"Location": receiver.url}, b"")] * 9
    host = receiver.url.removeprefix("http://")
    with pytest.raises(UndeliveredError) as refusal:
        chat.send(f"json://ada:hunter2hunter2@{host}", LOOP, title="x", body="x", tone="info")
    assert "hunter2" not in str(refusal.value)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(("transport", "address", "said"), [
    ("webhook", "ftp://example.org/", "https://"), ("webhook", "https://", "https://"), ("webhook", "x", "https://"),
    ("webhook", "http://example.org/", "Only https"), ("webhook", "https://ada:pw@example.org/", "user name"),
    ("webhook", "https://example.org/\nHost: x", "ASCII"), ("webhook", "https://[::1/", "no web address"),
    ("webhook", "https://example.org:99999/", "no web address"), ("webhook", "https://e/" + "x" * 2000, "2000"),
    ("webhook", "https://example.org/#x", "fragment"), ("webhook", "\x00", "NUL"),
    ("email", "ada@example.org", "No mail server"), ("apprise", "syslog://", "supported"),
    ("apprise", "x", "supported"),
    ("apprise", "json://example.org", "plain http"), ("apprise", "slack://", "understand"),
    ("apprise", "dbus://", "supported"),
    ("pigeon", "x", "One of"),
])  # fmt: skip
def test_an_address_that_cannot_be_is_refused_with_the_reason(
    transport: str, address: str, said: str, db: None, settings: Settings
) -> None:
    settings.EMAIL_HOST = ""
    with pytest.raises(Invalid) as refusal:
        registry.create_channel(name="n", transport=transport, address=address, by="ada")
    assert said in " ".join(problem.message for problem in refusal.value.problems)


@pytest.mark.parametrize("address", ["", "ada", "ada@", "a@example.org " * 21, "ada@example.org, eve"])
def test_recipients_that_cannot_be_are_refused(address: str, db: None, mail_server: MailServer) -> None:
    addresses_given = " ".join(f"{n}{part}" for n, part in enumerate(address.split())) if "a@ex" in address else address
    with pytest.raises(Invalid):
        registry.create_channel(name="n", transport="email", address=addresses_given, by="ada")
