"""A body on its way in: counted, digested and set aside until all of it is there."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Protocol, cast

from .refusals import DigestMismatch, Incomplete, StorageUnavailable

BLOCK = 256 * 1024
IN_MEMORY = 1024 * 1024  # bytes; more than that waits in a temporary file


class Stream(Protocol):
    """A body that is read once."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def received(stream: Stream, *, length: int, sha256: str) -> Iterator[BinaryIO]:
    """The `length` bytes of a stream, complete and with the digest `sha256` (hex), as a seekable file.

    The storage never sees bytes that were not checked, and a failed write to it can be repeated.
    Raises Incomplete, DigestMismatch or StorageUnavailable.
    """
    digest, left = hashlib.sha256(), length
    with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        while left:
            block = _read(stream, min(BLOCK, left))
            digest.update(block)
            left -= len(block)
            try:
                file.write(block)
            except OSError:
                raise StorageUnavailable from None  # no room for temporary files
        if digest.hexdigest() != sha256:
            raise DigestMismatch
        yield cast("BinaryIO", file)


def _read(stream: Stream, size: int) -> bytes:
    try:
        block = stream.read(size)
    except OSError:
        raise Incomplete from None  # the connection broke
    if not block:
        raise Incomplete
    return block
