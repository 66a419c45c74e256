"""Refusals of the artifact services. The docstring is the message; doors map each class to their own answer."""

from artifacts.models import JobArtifact
from jobs.services.errors import Refusal


class OverLimit(Refusal):
    """The file does not fit."""

    def __init__(self, message: str, limit: int) -> None:
        Exception.__init__(self, message)
        self.limit = limit


class Incomplete(Refusal):
    """The body ended before its Content-Length; send the whole file again."""


class DigestMismatch(Refusal):
    """The bytes that arrived do not have the SHA-256 that was announced; send the file again."""


class ArtifactMismatch(Refusal):
    """The job has another file of this name; a file never changes, so choose another name."""

    def __init__(self, artifact: JobArtifact) -> None:
        super().__init__()
        self.artifact = artifact


class DirectUnavailable(Refusal):
    """This installation's storage takes no direct uploads; send the file through the API."""


class Withheld(Refusal):
    """The file is sensitive; it takes a permission of its own to open it."""


class BytesMissing(Refusal):
    """The file's bytes are not in the storage."""


class StorageUnavailable(Refusal):
    """The storage cannot answer now; ask again."""


class SetupRefused(Refusal):
    """The storage could not be set up."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
