"""Evidence that people open: who may, what is written down, and what the bytes can do in a browser."""

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from botocore.config import Config
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone

from agentstore import log_lines
from artifacts.models import JobArtifact
from artifacts.services import signing, thumbnails
from artifacts.services.evidence import signed_url
from artifacts.services.s3_storage import PrivateS3Storage
from jobs.models import AuditEvent
from tests.artifacts.conftest import Runner, Store, on_both_storages, picture

pytestmark = pytest.mark.django_db

HTML = b"<!doctype html><script>document.title='ran'</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
OPEN, VIEW = "open_jobartifact", "view_agentjob"


def person(*permissions: str, **values: Any) -> Client:
    """A browser in which somebody with these permissions is logged in."""
    user = User.objects.create_user(f"user-{uuid4()}", **{"is_staff": True} | values)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db: None) -> Client:
    """Somebody who may open evidence."""
    return person(OPEN, VIEW)


def opened(client: Client, artifact: JobArtifact, query: str = "") -> Any:
    """Open a file as a browser does, without following."""
    return client.get(f"/artifacts/{artifact.pk}/open{query}")


def fetched(address: str, client: Client | None = None, method: str = "GET") -> Any:
    """An answer that was read to its end, as a server would; its bytes in `body`. Without a client: no session."""
    response: Any = (client or Client()).generic(method, address)
    response.body = response.getvalue() if response.streaming else response.content
    return response


def served(client: Client, artifact: JobArtifact, query: str = "") -> Any:
    """The bytes at the address that opening leads to, asked for without a session."""
    return fetched(opened(client, artifact, query)["Location"])


MATRIX: dict[str, tuple[Callable[[], Client], int, int]] = {
    # who: (browser, status of open, status of thumbnail)
    "nobody": (Client, 302, 302),
    "a user who is no staff": (lambda: person(OPEN, VIEW, is_staff=False), 403, 403),
    "a user who was deactivated": (lambda: person(OPEN, VIEW, is_active=False), 302, 302),
    "plain staff": (person, 403, 403),
    "a viewer": (lambda: person(VIEW), 403, 200),
    "one who may open but not see jobs": (lambda: person(OPEN), 403, 403),
    "an operator": (lambda: person(OPEN, VIEW), 302, 200),
    "a superuser": (lambda: person(is_superuser=True), 302, 200),
}
MAY_OPEN = ("an operator", "a superuser")


@pytest.mark.parametrize("who", MATRIX)
def test_only_those_with_both_permissions_open_evidence(runner: Runner, who: str) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    thumbnails.make_thumbnails()
    make, open_status, thumbnail_status = MATRIX[who]
    client = make()
    answer, small = opened(client, artifact), fetched(f"/artifacts/{artifact.pk}/thumbnail", client)
    assert (answer.status_code, small.status_code) == (open_status, thumbnail_status)
    assert AuditEvent.objects.count() == (who in MAY_OPEN)
    if open_status == 302:
        where = "/artifacts/bytes/" if who in MAY_OPEN else "/admin/login/?next=/artifacts/"
        assert answer["Location"].startswith(where)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("what", ["open", "thumbnail"])
def test_evidence_is_only_ever_read(runner: Runner, operator: Client, method: str, what: str) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    assert operator.generic(method, f"/artifacts/{artifact.pk}/{what}").status_code == 405
    assert operator.generic(method, opened(operator, artifact)["Location"]).status_code == 405


def test_opening_is_written_down_with_who_what_and_how(runner: Runner, operator: Client) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    thumbnails.make_thumbnails()
    opened(operator, artifact)
    opened(operator, artifact, "?download=1")
    first, second = AuditEvent.objects.order_by("id")
    assert (first.tag, first.subject_id) == ("artifact_opened", runner.job.pk)
    assert first.actor == User.objects.get().username
    assert first.details == {"artifact_id": str(artifact.pk), "name": "a.png", "download": False}
    assert second.details["download"] is True


def test_a_head_request_writes_nothing_and_therefore_gets_no_address(runner: Runner, operator: Client) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    response = operator.head(f"/artifacts/{artifact.pk}/open")
    assert response.status_code == 200
    assert "Location" not in response
    assert not AuditEvent.objects.exists()


def test_the_way_to_the_bytes_is_kept_by_nobody(runner: Runner, operator: Client) -> None:
    response = opened(operator, runner.attach("a.png", picture()).artifact)
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_checked_image_is_shown_and_saved_when_asked(runner: Runner, operator: Client, image_format: str) -> None:
    content = picture(image_format)
    artifact = runner.attach("shot", content).artifact
    assert served(operator, artifact)["Content-Disposition"] == 'attachment; filename="shot"'  # nobody decoded it yet
    thumbnails.make_thumbnails()
    shown, saved = served(operator, artifact), served(operator, artifact, "?download=1")
    assert shown.body == saved.body == content
    assert shown["Content-Type"] == f"image/{image_format.lower()}"
    assert shown["Content-Disposition"] == 'inline; filename="shot"'
    assert saved["Content-Disposition"] == 'attachment; filename="shot"'
    assert shown["Content-Length"] == str(len(content))


@pytest.mark.parametrize(
    ("name", "content", "content_type"),
    [
        ("x.svg", SVG, "application/octet-stream"),
        ("x.html", HTML, "application/octet-stream"),
        ("x.xhtml", b"<?xml version='1.0'?>" + HTML, "application/octet-stream"),
        ("x.xml", b"<?xml version='1.0'?><x/>", "application/octet-stream"),
        ("x.pdf", b"%PDF-1.7\n", "application/octet-stream"),
        ("x.js", b"alert(1)", "application/octet-stream"),
        ("x.png", HTML, "application/octet-stream"),
        ("x.png", b"\x89PNG\r\n\x1a\n" + HTML, "application/octet-stream"),
        ("x.log", HTML, "text/plain; charset=utf-8"),
        ("x.json", b"{}", "text/plain; charset=utf-8"),
    ],
)
def test_everything_else_is_only_saved(
    runner: Runner, operator: Client, name: str, content: bytes, content_type: str
) -> None:
    response = served(operator, runner.attach(name, content).artifact)
    assert response.body == content
    assert response["Content-Type"] == content_type
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'


def sealed(response: Any) -> bool:
    """Whether an answer can run nothing and stays nowhere."""
    return (
        response["X-Content-Type-Options"] == "nosniff"
        and response["Content-Security-Policy"] == "default-src 'none'; sandbox"
        and response["Cross-Origin-Resource-Policy"] == "same-origin"
        and response["Cache-Control"].startswith("private")
    )


def test_every_answer_of_the_bytes_is_sealed(runner: Runner, operator: Client, store: Store) -> None:
    artifact = runner.attach("a.png", picture() + HTML).artifact  # a polyglot
    thumbnails.make_thumbnails()
    address = opened(operator, artifact)["Location"]
    small = fetched(f"/artifacts/{artifact.pk}/thumbnail", operator)
    assert sealed(small)
    assert small["Cache-Control"] == "private, max-age=300"
    assert sealed(fetched(address))
    assert fetched(address)["Cache-Control"] == "private, no-store"
    head = fetched(address, method="HEAD")
    assert sealed(head)
    assert (head.status_code, head.body) == (200, b"")
    assert sealed(fetched(address + "x"))
    store.backend.delete(artifact.storage_path)
    gone = fetched(address)
    assert (gone.status_code, sealed(gone)) == (404, True)


def test_an_address_is_good_for_its_seconds_only(
    runner: Runner, operator: Client, time_machine: Any, settings: Any
) -> None:
    settings.AGENTSTORE_SIGNED_URL_SECONDS = 90
    now = timezone.now()
    time_machine.move_to(now, tick=False)
    address = opened(operator, runner.attach("a.png", picture()).artifact)["Location"]
    time_machine.shift(89)
    assert fetched(address).status_code == 200
    time_machine.shift(2)
    assert fetched(address).status_code == 403


def test_no_setting_makes_an_address_last_longer_than_five_minutes(
    runner: Runner, operator: Client, time_machine: Any, settings: Any
) -> None:
    settings.AGENTSTORE_SIGNED_URL_SECONDS = 10**6
    time_machine.move_to(timezone.now(), tick=False)
    address = opened(operator, runner.attach("a.png", picture()).artifact)["Location"]
    time_machine.shift(301)
    assert fetched(address).status_code == 403


def test_no_character_of_an_address_can_be_changed(runner: Runner, operator: Client) -> None:
    address = opened(operator, runner.attach("a.png", picture()).artifact)["Location"]
    start = len("/artifacts/bytes/")
    for place in range(start, len(address), 7):
        changed = address[:place] + ("A" if address[place] != "A" else "B") + address[place + 1 :]
        assert fetched(changed).status_code == 403


def test_a_signature_made_for_something_else_opens_nothing() -> None:
    grant = {"key": "jobs/x", "content_type": "text/html", "disposition": "inline", "until": 2**40}
    foreign = signing.signing.Signer(salt="something.else").sign_object(grant)
    assert Client().get(f"/artifacts/bytes/{foreign}").status_code == 403


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "/etc/passwd", "", ".", "jobs", "x" * 5000, "a\nb", "jobs/nothing"]
)
@on_both_storages
def test_a_key_that_plain_sql_wrote_never_leads_out_of_the_storage(runner: Runner, store: Store, key: str) -> None:
    store.folder.mkdir(exist_ok=True)
    (store.folder.parent / "passwd").write_text("secret")
    artifact = JobArtifact.objects.create(
        job=runner.job, name="a\r\nX: 1.html", storage_path=key, content_type="text/html"
    )
    client = person(OPEN, VIEW)
    response = opened(client, artifact)
    if not store.is_s3:
        assert response.status_code == 302
        response = fetched(response["Location"])
        assert response.status_code == 404
        assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    else:
        assert response.status_code in (302, 404)  # the bucket itself says that there is nothing


def test_a_row_of_plain_sql_is_saved_and_never_shown(runner: Runner, operator: Client, store: Store) -> None:
    ours = runner.attach("a.png", picture()).artifact
    theirs = JobArtifact.objects.create(job=runner.job, name="b.png", storage_path=ours.storage_path)
    assert theirs.content_type == "image/png"
    response = served(operator, theirs)
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"].startswith("attachment")


def test_what_is_not_there_is_said_to_be_missing(runner: Runner, operator: Client) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    assert operator.get(f"/artifacts/{uuid4()}/open").status_code == 404
    assert operator.get(f"/artifacts/{uuid4()}/thumbnail").status_code == 404
    assert operator.get(f"/artifacts/{artifact.pk}/thumbnail").status_code == 404  # not made yet
    JobArtifact.objects.update(missing_at=timezone.now())
    response = opened(operator, artifact)
    assert (response.status_code, b"missing" in response.content) == (404, True)
    assert not AuditEvent.objects.exists()


def test_a_storage_that_is_down_is_said_to_be_so(
    runner: Runner, operator: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = opened(operator, runner.attach("a.png", picture()).artifact)["Location"]

    def failing(*args: Any) -> None:
        raise OSError("away")

    monkeypatch.setattr(type(store.backend), "_open", failing)
    response = fetched(address)
    assert (response.status_code, response["Retry-After"]) == (503, "30")


def test_a_live_address_is_cut_in_the_logs(
    runner: Runner, operator: Client, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    artifact = runner.attach("a.png", picture()).artifact
    address = opened(operator, artifact)["Location"]
    store.backend.delete(artifact.storage_path)
    fetched(address)
    written = [log_lines.clean(record.getMessage()) for record in caplog.records]
    assert any("/artifacts/bytes/…" in line for line in written)
    assert not any(address[len("/artifacts/bytes/") :] in line for line in written)


@pytest.mark.parametrize(
    "address",
    [
        "https://s3.example/b/k?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2026&X-Amz-Signature=deadbeefdeadbeef",
        "http://localhost/artifacts/bytes/.eJwVzNEOgiAUgOFXaVxHcgQUbb2JWzvgwSgFN",
    ],
)
def test_no_signature_reaches_a_log_line(address: str) -> None:
    line = log_lines.clean(f"GET {address} failed")
    assert re.search("AKIA|deadbeef|eJwV", line) is None
    assert line.endswith(" failed")


# -- presigned addresses of S3


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_s3_serves_a_presigned_address_with_our_type_and_disposition_and_nothing_else(
    runner: Runner, store: Store, operator: Client
) -> None:
    image = runner.attach("файл.png", picture()).artifact
    thumbnails.make_thumbnails()
    address = opened(operator, image)["Location"]
    with httpx2.Client() as http:
        shown = http.get(address)
        assert (shown.status_code, shown.content) == (200, picture())
        assert shown.headers["content-type"] == "image/png"
        assert shown.headers["content-disposition"] == "inline; filename*=utf-8''%D1%84%D0%B0%D0%B9%D0%BB.png"
        html = http.get(signed_url(runner.attach("x.html", HTML).artifact, inline=True))
        assert html.headers["content-type"] == "application/octet-stream"
        assert html.headers["content-disposition"] == 'attachment; filename="x.html"'
        assert http.get(address.replace("inline", "attachment")).status_code == 403
        assert http.get(address.partition("?")[0]).status_code in (400, 403)
    assert "X-Amz-Expires=60" in address


def test_an_s3_storage_is_private_and_overwrites_nothing_without_being_told() -> None:
    storage = PrivateS3Storage(bucket_name="b", region_name="us-east-1")
    assert (storage.file_overwrite, storage.default_acl, storage.querystring_expire) == (False, None, 60)
    assert (storage.client_config.signature_version, storage.client_config.read_timeout) == ("s3v4", 30)
    patient = PrivateS3Storage(bucket_name="b", client_config=Config(read_timeout=90))
    assert (patient.client_config.read_timeout, patient.client_config.connect_timeout) == (90, 5)


@pytest.mark.parametrize(
    "options",
    [
        {"custom_domain": "cdn.example"},
        {"querystring_auth": False},
        {"default_acl": "public-read"},
        {"object_parameters": {"ACL": "public-read"}},
    ],
)
def test_an_s3_storage_that_would_publish_evidence_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfigured):
        PrivateS3Storage(bucket_name="b", **options)
