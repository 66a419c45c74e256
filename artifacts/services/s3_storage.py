"""The bytes in an S3 bucket, as production keeps them: private, never overwritten, opened by presigned addresses."""

import base64
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from django.core.exceptions import ImproperlyConfigured, SuspiciousOperation
from django.core.files.base import File
from storages.backends.s3 import S3Storage

from . import s3_bucket
from .storage import Head, Signed, Step, StoredObject

SPOOLED = 1024 * 1024  # bytes of an object that is read; more of it waits in a temporary file
WHOLE = 64 * 1024 * 1024  # bytes that go in one request: its object is there completely, or not at all
CLIENT = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"total_max_attempts": 3, "mode": "standard"},
    # Other makes of S3 do not know the checksums that boto3 adds by itself.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class PrivateS3Storage(S3Storage):
    """One private bucket. Options are those of django-storages; what would make an object public is refused."""

    client_config: Config
    public_endpoint: str
    trouble: ClassVar[tuple[type[Exception], ...]] = (BotoCoreError, ClientError, Boto3Error, OSError)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._given = options
        if self.custom_domain or not self.querystring_auth:
            raise ImproperlyConfigured("Evidence is opened by signed addresses only: unset custom_domain.")
        if self.default_acl or "ACL" in self.object_parameters:
            raise ImproperlyConfigured("The objects of evidence have no ACL of their own: unset default_acl.")
        self.client_config = CLIENT.merge(self.client_config)  # what an installation sets has the last word

    def get_default_settings(self) -> dict[str, Any]:
        """The defaults of django-storages, except those that overwrite or publish."""
        return {
            **super().get_default_settings(),
            "file_overwrite": False,
            "default_acl": None,
            "signature_version": "s3v4",
            "querystring_auth": True,
            "querystring_expire": 60,
            "max_memory_size": SPOOLED,
            "public_endpoint": "",  # what browsers and runners reach, where it is not what this server reaches
            "transfer_config": TransferConfig(multipart_threshold=WHOLE, use_threads=False),
        }

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        try:
            found: File[bytes] = super()._open(name, mode)
        except SuspiciousOperation:
            raise FileNotFoundError(name) from None
        return found

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All objects under a prefix, by key in the order of its bytes, as S3 lists them."""
        root = f"{self.location.strip('/')}/" if self.location else ""
        for found in self.bucket.objects.filter(Prefix=root + prefix):
            yield StoredObject(key=found.key.removeprefix(root), size=found.size, modified_at=found.last_modified)

    def signed_url(self, key: str, *, content_type: str, disposition: str, seconds: int) -> str:
        """A presigned address; S3 answers with the type and disposition that its signature holds."""
        answer = {
            "ResponseContentType": content_type,
            "ResponseContentDisposition": disposition,
            "ResponseCacheControl": "private, no-store",
        }
        try:
            url: str = self._outside.url(key, parameters=answer, expire=seconds)
        except (ParamValidationError, SuspiciousOperation):
            raise FileNotFoundError(key) from None
        return url

    @cached_property
    def _outside(self) -> Self:
        """The same bucket as those outside reach it: a signature holds the host it was made for."""
        if not self.public_endpoint:
            return self
        return type(self)(**{**self._given, "endpoint_url": self.public_endpoint, "public_endpoint": ""})

    def signed_upload(self, key: str, *, size: int, content_type: str, sha256: str, seconds: int) -> Signed | None:
        """A presigned PUT that is bound to size, type and digest, and never replaces an object."""
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        asked = {
            "ContentLength": size, "ContentType": content_type, "ChecksumSHA256": checksum, "IfNoneMatch": "*",
        }  # fmt: skip
        client = self._outside.connection.meta.client
        url = client.generate_presigned_url("put_object", Params=self._named(key) | asked, ExpiresIn=seconds)
        headers = {
            "Content-Length": str(size), "Content-Type": content_type, "If-None-Match": "*",
            "x-amz-checksum-sha256": checksum,
        }  # fmt: skip
        return Signed(method="PUT", url=url, headers=headers)

    def head(self, key: str) -> Head | None:
        """Size and, where the server keeps it, the digest that it has checked."""
        try:
            found = self.connection.meta.client.head_object(**self._named(key), ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise
        checksum = found.get("ChecksumSHA256")
        # That of a multipart upload is one of checksums; and there are servers that repeat whatever header came with
        # the bytes without looking at them. Those that do look say what their checksum is of.
        is_whole = checksum and found.get("ChecksumType") == "FULL_OBJECT"
        return Head(size=found["ContentLength"], sha256=base64.b64decode(checksum).hex() if is_whole else None)

    def part(self, key: str, *, start: int, length: int) -> bytes:
        """A range of the object."""
        wanted = f"bytes={start}-{start + length - 1}"
        try:
            found = self.connection.meta.client.get_object(**self._named(key), Range=wanted)
            with found["Body"] as body:
                content: bytes = body.read()
                return content
        except ClientError as error:
            match error.response["ResponseMetadata"]["HTTPStatusCode"]:
                case 416:
                    return b""
                case 404:
                    raise FileNotFoundError(key) from None
            raise

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket_name, "Key": self._normalize_name(key)}

    def set_up(self, *, origin: str) -> Sequence[Step]:
        """Create the bucket or check it."""
        client, region = self.connection.meta.client, self.region_name or "us-east-1"
        return s3_bucket.set_up(client, bucket=self.bucket_name, region=region, origin=origin)

    def fetch(self, key: str, *, signed: bool) -> bytes | None:
        """What anybody gets who has the address."""
        address = self.signed_url(key, content_type="application/octet-stream", disposition="attachment", seconds=60)
        try:
            with urlopen(address if signed else address.partition("?")[0], timeout=10) as answer:  # noqa: S310  boto3 made it
                content: bytes = answer.read()
                return content
        except HTTPError as refused:
            refused.close()
            return None
