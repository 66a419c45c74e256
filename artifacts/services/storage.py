"""The private storage of the bytes. What it must do beyond Django's own is one protocol with a backend each."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol, cast

from django.core.files.base import File
from django.core.files.storage import storages

from .refusals import BytesMissing, StorageUnavailable

ALIAS = "artifacts"
PREFIX = "jobs/"  # of every key that we make; the sweep looks at nothing else

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object as the storage lists it."""

    key: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A request that may be made once with these headers; its address is a bearer and is never logged."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a storage says of an object: its size, and the SHA-256 (hex) if it has checked one itself."""

    size: int
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that a storage must have: `made` now, `kept` from before, or why it cannot be had."""

    what: str
    outcome: str

    @property
    def is_done(self) -> bool:
        """Whether the storage has it now."""
        return self.outcome in ("made", "kept")


class ArtifactStorage(Protocol):
    """What a backend of the `artifacts` alias offers."""

    trouble: ClassVar[tuple[type[Exception], ...]]
    """What its calls raise when it cannot answer; never what says that an object does not exist."""

    def save(self, name: str, content: "File[bytes]") -> str: ...
    def open(self, name: str, mode: str = "rb") -> "File[bytes]":
        """The object's bytes. Raises FileNotFoundError, also for a key that no object can have."""

    def exists(self, name: str) -> bool: ...
    def delete(self, name: str) -> None:
        """Remove an object; one that does not exist is no error."""

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All objects under a prefix, by key in the order of its bytes."""

    def signed_url(self, key: str, *, content_type: str, disposition: str, seconds: int) -> str:
        """An address that serves the object for so long, under that type and disposition and no other.

        Raises FileNotFoundError for a key that no object can have.
        """

    def signed_upload(self, key: str, *, size: int, content_type: str, sha256: str, seconds: int) -> Signed | None:
        """A request that stores exactly these bytes under a new key; None if this storage has none."""

    def head(self, key: str) -> Head | None:
        """What is known of an object; None if it does not exist."""

    def part(self, key: str, *, start: int, length: int) -> bytes:
        """A range of an object's bytes, empty behind its end. Raises FileNotFoundError."""

    def set_up(self, *, origin: str) -> Sequence[Step]:
        """Make the storage what it must be, for browsers that come from `origin`; idempotent. Raises SetupRefused."""

    def fetch(self, key: str, *, signed: bool) -> bytes | None:
        """An object's bytes as somebody outside gets them by its address; None if that somebody is refused."""


@contextmanager
def calling() -> Iterator[ArtifactStorage]:
    """The storage. Its troubles become StorageUnavailable; their texts are not passed on, they may hold addresses."""
    store = cast("ArtifactStorage", storages[ALIAS])
    try:
        yield store
    except store.trouble as error:
        logger.warning("The artifact storage failed: %s", type(error).__name__)
        raise StorageUnavailable from None


def open_bytes(key: str) -> "File[bytes]":
    """The bytes of a key, to read and close. Raises BytesMissing or StorageUnavailable."""
    with calling() as store:
        try:
            return store.open(key)
        except FileNotFoundError:
            raise BytesMissing from None


def discard(key: str) -> None:
    """Remove an object that no row came to need; if the storage fails, the sweep finds it."""
    with suppress(StorageUnavailable), calling() as store:
        store.delete(key)
