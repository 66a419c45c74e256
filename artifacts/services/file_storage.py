"""The bytes on a file system, the embedded default."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import File
from django.core.files.storage import FileSystemStorage
from django.urls import reverse

from .refusals import SetupRefused
from .signing import Grant, read, sign
from .storage import Head, Signed, Step, StoredObject

PRIVATE = 0o700


class PrivateFileStorage(FileSystemStorage):
    """Files under one folder that no web server serves; what was saved survives a power failure."""

    trouble: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def _save(self, name: str, content: "File[bytes]") -> str:
        try:
            name = super()._save(name, content)  # type: ignore[misc]  # missing in the stubs
        except OSError:
            # A full disk keeps the beginning of each file; as many of them as fail would look like a foreign storage.
            with suppress(OSError):
                self.delete(name)
            raise
        path = Path(self.path(name))
        # The file, its name, and the name of the folder that it may be the first in.
        for saved in (path, path.parent, path.parent.parent):
            _sync(saved)
        return name

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        # Rows of plain SQL clients name any key: one that no file can have is missing like any other.
        try:
            path = Path(self.path(name))
            if path.is_file():
                return File(path.open(mode))
        except SuspiciousFileOperation:
            pass
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.ENOENT):
                raise
        raise FileNotFoundError(errno.ENOENT, "No such artifact", name)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """All files under the folder `prefix`, which ends with a slash, by key in the order of its bytes."""
        folder = Path(self.path(prefix))
        entries: list[tuple[str, os.DirEntry[str]]] = []
        try:
            with os.scandir(folder) as found:
                entries = [(f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}", entry) for entry in found]
        except FileNotFoundError:
            return
        for key, entry in sorted(entries, key=lambda pair: pair[0]):
            if key.endswith("/"):
                yield from self.objects(key)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # removed since it was listed
            yield StoredObject(
                key=key, size=status.st_size, modified_at=datetime.fromtimestamp(status.st_mtime, tz=UTC)
            )

    def signed_url(self, key: str, *, content_type: str, disposition: str, seconds: int) -> str:
        """An address of our own view that serves the file for so long."""
        grant = Grant(key=key, content_type=content_type, disposition=disposition)
        return reverse("artifacts:bytes", args=[sign(grant, seconds=seconds)])

    def signed_upload(self, key: str, *, size: int, content_type: str, sha256: str, seconds: int) -> Signed | None:
        """None: all files come through the API, which writes them to the same disk."""
        return None

    def head(self, key: str) -> Head | None:
        """The size; a file system checks nothing itself."""
        path = Path(self.path(key))
        return Head(size=path.stat().st_size, sha256=None) if path.is_file() else None

    def part(self, key: str, *, start: int, length: int) -> bytes:
        """A range of the file."""
        with self._open(key) as file:
            file.seek(start)
            content: bytes = file.read(length)
            return content

    def set_up(self, *, origin: str) -> Sequence[Step]:
        """Make the folder, for this account only; its bytes are served by our own view, whatever the origin."""
        folder = Path(self.location)
        try:
            outcome = "kept" if folder.is_dir() else "made"
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o777 != PRIVATE:
                folder.chmod(PRIVATE)
                outcome = "made"
        except OSError as error:
            raise SetupRefused(f"The folder {folder} cannot be made private: {error.strerror}.") from None
        return [Step(what=f"private folder {folder}", outcome=outcome)]

    def fetch(self, key: str, *, signed: bool) -> bytes | None:
        """What our own view gives for a signed address; without one, what other accounts of the machine can read."""
        if not signed:
            others_may_read = Path(self.location).stat().st_mode & 0o077
            return Path(self.path(key)).read_bytes() if others_may_read else None
        address = self.signed_url(key, content_type="application/octet-stream", disposition="attachment", seconds=60)
        grant = read(address.rpartition("/")[2])
        if grant is None:
            return None
        with self._open(grant.key) as file:
            content: bytes = file.read()
            return content


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
