"""Setting the storage up and trying it out: on both storages, and with the answers that only S3 itself gives."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.stub import Stubber
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.test import Client

from artifacts.services import s3_bucket
from artifacts.services.refusals import SetupRefused, StorageUnavailable
from artifacts.services.self_check import Probe, self_check
from tests.artifacts.conftest import S3, S3Server, Store, on_both_storages, s3_options, s3_serving

ORIGIN = "https://jobs.example.com"
BUCKET = {"Bucket": "agent-artifacts"}
BLOCK = {"PublicAccessBlockConfiguration": s3_bucket.CLOSED}
FOREIGN_RULE = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "x/"}, "Expiration": {"Days": 9}}
TIDY = {
    "ID": "agentstore", "Status": "Enabled", "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
}  # fmt: skip
CORS = {
    "ID": "agentstore", "AllowedMethods": ["PUT"], "AllowedOrigins": [ORIGIN], "AllowedHeaders": ["*"],
    "MaxAgeSeconds": 3000,
}  # fmt: skip


def said(*arguments: str) -> str:
    """What the command says."""
    out = io.StringIO()
    call_command("setup_storage", *arguments, stdout=out)
    return out.getvalue().strip()


@pytest.fixture
def s3() -> Iterator[tuple[Any, Stubber]]:
    """A client that expects calls, in their order."""
    client = boto3.client("s3", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stubber:
        yield client, stubber
        stubber.assert_no_pending_responses()


def set_up(client: Any) -> dict[str, str]:
    steps = s3_bucket.set_up(client, bucket="agent-artifacts", region="eu-central-1", origin=ORIGIN)
    return {step.what: step.outcome for step in steps}


def test_a_new_bucket_is_made_private_and_tidy(s3: tuple[Any, Stubber]) -> None:
    client, stub = s3
    stub.add_client_error("head_bucket", "404", http_status_code=404)
    stub.add_response(
        "create_bucket", {}, {**BUCKET, "CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}}
    )
    stub.add_client_error("get_public_access_block", "NoSuchPublicAccessBlockConfiguration", http_status_code=404)
    stub.add_response("put_public_access_block", {}, {**BUCKET, **BLOCK})
    stub.add_response("get_public_access_block", BLOCK, BUCKET)
    for _ in range(2):
        stub.add_client_error("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration")
    stub.add_response("put_bucket_lifecycle_configuration", {}, {**BUCKET, "LifecycleConfiguration": {"Rules": [TIDY]}})
    stub.add_response("get_bucket_lifecycle_configuration", {"Rules": [TIDY]}, BUCKET)
    for _ in range(2):
        stub.add_client_error("get_bucket_cors", "NoSuchCORSConfiguration")
    stub.add_response("put_bucket_cors", {}, {**BUCKET, "CORSConfiguration": {"CORSRules": [CORS]}})
    stub.add_response("get_bucket_cors", {"CORSRules": [CORS]}, BUCKET)
    assert set(set_up(client).values()) == {"made"}


def test_what_is_right_is_left_alone(s3: tuple[Any, Stubber]) -> None:
    client, stub = s3
    stub.add_response("head_bucket", {}, BUCKET)
    stub.add_response("get_public_access_block", BLOCK, BUCKET)
    stub.add_response("get_bucket_lifecycle_configuration", {"Rules": [FOREIGN_RULE, TIDY]}, BUCKET)
    stub.add_response("get_bucket_cors", {"CORSRules": [CORS]}, BUCKET)
    assert set(set_up(client).values()) == {"kept"}


def test_the_rules_of_others_in_an_adopted_bucket_stay(s3: tuple[Any, Stubber]) -> None:
    client, stub = s3
    stub.add_response("head_bucket", {}, BUCKET)
    stub.add_response("get_public_access_block", BLOCK, BUCKET)
    old = {**TIDY, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 30}}
    for _ in range(2):
        stub.add_response("get_bucket_lifecycle_configuration", {"Rules": [FOREIGN_RULE, old]}, BUCKET)
    both = {"Rules": [FOREIGN_RULE, TIDY]}
    stub.add_response("put_bucket_lifecycle_configuration", {}, {**BUCKET, "LifecycleConfiguration": both})
    stub.add_response("get_bucket_lifecycle_configuration", both, BUCKET)
    stub.add_response("get_bucket_cors", {"CORSRules": [CORS]}, BUCKET)
    assert set_up(client)["abandoned multipart uploads removed"] == "made"


def test_a_bucket_of_somebody_else_is_refused_with_the_servers_word(s3: tuple[Any, Stubber]) -> None:
    client, stub = s3
    stub.add_client_error("head_bucket", "403", http_status_code=403)
    with pytest.raises(SetupRefused, match=r"agent-artifacts cannot be looked at: 403\."):
        set_up(client)


def test_missing_rights_are_said_for_each_rule(s3: tuple[Any, Stubber]) -> None:
    client, stub = s3
    stub.add_response("head_bucket", {}, BUCKET)
    for call in ("get_public_access_block", "get_bucket_lifecycle_configuration", "get_bucket_cors"):
        stub.add_client_error(call, "AccessDenied", http_status_code=403)
    assert list(set_up(client).values())[1:] == ["refused by this server (AccessDenied)"] * 3


def test_the_command_makes_the_bucket_once_and_says_what_this_server_cannot(s3_server: S3Server, settings: Any) -> None:
    bucket = f"made-{uuid4().hex[:12]}"
    options = s3_options(s3_server, bucket)
    settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": S3, "OPTIONS": options}}
    first = said()
    assert first.startswith(f"bucket {bucket} (made); cannot: public access blocked: ")
    assert "\n" not in first
    assert said() == first.replace("(made)", "(kept)")
    assert (s3_server.root / bucket).is_dir()
    assert said("--check") == "The storage keeps, serves by signed addresses, and refuses all others."


def test_the_folder_is_made_for_its_account_only(store: Store) -> None:
    assert said() == f"private folder {store.folder} (made)."
    assert said() == f"private folder {store.folder} (kept)."
    store.folder.chmod(0o755)
    assert said() == f"private folder {store.folder} (made)."
    assert store.folder.stat().st_mode & 0o777 == 0o700


@on_both_storages
def test_a_private_storage_passes_its_check_and_keeps_nothing_of_it(store: Store) -> None:
    assert self_check() == "ok"
    assert store.files == []


def test_a_folder_that_others_can_read_fails_the_check(store: Store) -> None:
    said()
    store.folder.chmod(0o755)
    with pytest.raises(CommandError, match="The storage is public"):
        said("--check")


def test_a_bucket_that_anybody_can_read_fails_the_check(tmp_path: Path, settings: Any) -> None:
    (tmp_path / "root" / "open").mkdir(parents=True)
    with s3_serving(tmp_path / "root") as server:
        options = s3_options(server, "open")
        settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": S3, "OPTIONS": options}}
        assert self_check() == "public: an object can be read without a signature"


def test_a_bucket_that_is_not_there_fails_the_check(s3_server: S3Server, settings: Any) -> None:
    options = s3_options(s3_server, "never-made")
    settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": S3, "OPTIONS": options}}
    with pytest.raises(CommandError, match="cannot answer now"):
        said("--check")


def test_people_are_sent_to_the_public_endpoint_and_the_server_uses_its_own(s3_server: S3Server, settings: Any) -> None:
    options = {**s3_options(s3_server, "b"), "public_endpoint": "https://files.example.com"}
    settings.STORAGES = {**settings.STORAGES, "artifacts": {"BACKEND": S3, "OPTIONS": options}}
    backend: Any = storages["artifacts"]
    url = backend.signed_url("jobs/1/2", content_type="image/png", disposition="inline", seconds=60)
    assert url.startswith("https://files.example.com/b/jobs/1/2?")
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in url
    assert backend.connection.meta.client.meta.endpoint_url == s3_server.url


def test_readiness_reports_the_storage_and_asks_it_once_a_minute() -> None:
    checks, now = 0, 0.0

    def check() -> str:
        nonlocal checks
        checks += 1
        return "ok"

    probe = Probe(check, clock=lambda: now)
    assert probe.latest() == "not checked yet"
    assert probe.running is not None
    probe.running.join()
    now = 59.0
    assert (probe.latest(), checks) == ("ok", 1)
    now = 61.0
    probe.latest()
    probe.running.join()
    assert checks == 2


@pytest.mark.django_db
def test_a_storage_that_is_away_never_makes_the_installation_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> str:
        raise StorageUnavailable

    probe = Probe(check)
    probe.latest()
    assert probe.running is not None
    probe.running.join()
    monkeypatch.setattr("agentstore.health.Probe", lambda: probe)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["storage"]) == (200, "unavailable")
