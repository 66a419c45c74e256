"""Text on its way in: credentials are masked before it is kept, by the same rules as on the runner."""

import codecs
import hashlib
import io
from dataclasses import dataclass
from typing import BinaryIO

from agentstore_runner.redaction import Redactor

from artifacts.models import RASTER

from . import sniffing

LARGEST_MASKED = 8 * 1024 * 1024  # bytes; a longer text is kept as it is, and as sensitive
TRACE_TAIL = 1024 * 1024  # bytes at the end of an archive, where its list of members is
ZIP = b"PK\x03\x04"
TRACE_MEMBERS = (b"trace.trace", b"trace.network")
SENSITIVE_ENDINGS = (".har", ".trace", "trace.zip")


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What will be kept of a file, and what was done to it."""

    size: int
    sha256: str  # of what is kept
    received_sha256: str | None  # of what came, where it differs
    content_type: str
    masked: int
    sensitive: bool


def arrival(file: BinaryIO, *, name: str, size: int, sha256: str, sensitive: bool) -> tuple[BinaryIO, Arrival]:
    """What becomes of a complete, seekable file of `size` bytes; `sensitive` is the sender's own word."""
    content_type = sniffing.content_type(file, name=name, size=size)
    sensitive = sensitive or ends_sensitive(name) or holds_trace(*_ends(file, size))
    received, masked = None, 0
    if content_type not in RASTER and sniffing.is_text(file):
        if size > LARGEST_MASKED:
            sensitive = True
        else:
            file.seek(0)
            redactor = Redactor()
            clean = redactor.text(file.read().decode()).encode()
            if redactor.count:
                masked, received = redactor.count, sha256
                file, size, sha256 = io.BytesIO(clean), len(clean), hashlib.sha256(clean).hexdigest()
    file.seek(0)
    return file, Arrival(
        size=size, sha256=sha256, received_sha256=received, content_type=content_type, masked=masked,
        sensitive=sensitive,
    )  # fmt: skip


def ends_sensitive(name: str) -> bool:
    """Whether a name is one of those that records of a browser's session have; they hold what was typed."""
    return name.lower().endswith(SENSITIVE_ENDINGS)


def holds_trace(head: bytes, tail: bytes) -> bool:
    """Whether the first and last bytes of a file are those of a Playwright trace, whatever its name."""
    return head.startswith(ZIP) and any(member in tail for member in TRACE_MEMBERS)


def starts_as_text(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 without NUL; the last character may be cut."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def _ends(file: BinaryIO, size: int) -> tuple[bytes, bytes]:
    file.seek(0)
    head = file.read(len(ZIP))
    file.seek(max(0, size - TRACE_TAIL))
    return head, file.read(TRACE_TAIL) if head == ZIP else b""
