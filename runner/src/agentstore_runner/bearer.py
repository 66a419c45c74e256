"""The agent's token: where it may come from, and what must never leave besides it."""

import os
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import BinaryIO

VARIABLE = "AGENTSTORE_TOKEN"
# Shorter values would mask ordinary words in everything that the runner writes.
SHORTEST_SECRET = 6
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 8192


class TokenError(Exception):
    """The token cannot be used; the text says why and what to do."""


class Bearer:
    """A token that shows itself only to `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        value = value.strip()
        if not value:
            raise TokenError("the token is empty")
        if len(value) > _LONGEST_TOKEN or not value.isascii() or not value.isprintable() or " " in value:
            raise TokenError("the token is not one line of printable ASCII: is it the right file?")
        if len(value) < _SHORTEST_TOKEN:
            raise TokenError(f"the token has {len(value)} characters: it was not copied whole")
        self._value = value

    def reveal(self) -> str:
        """Return the token itself, for the Authorization header and for redaction."""
        return self._value

    def known(self) -> list[str]:
        """Return every value that must be masked."""
        return [self._value]

    def __repr__(self) -> str:
        return "Bearer(…)"


def from_file(path: Path) -> Bearer:
    """Read a token from a file that nobody but its owner and group may read; TokenError says what is wrong."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                raise TokenError(f"{path} can be read by everybody on this machine: chmod 600 {path}")
            return from_stream(file, str(path))
    except OSError as error:
        raise TokenError(f"{path} cannot be read: {error.strerror}") from None


def from_stream(file: BinaryIO, name: str) -> Bearer:
    """Read a token, or an enrolment code, that is all there is in a stream; TokenError says what is wrong."""
    try:
        return Bearer(file.read(_LONGEST_TOKEN + 1).decode("ascii"))
    except UnicodeDecodeError:
        raise TokenError(f"{name} is not one line of printable ASCII: is it the right file?") from None


def take_from(environ: MutableMapping[str, str]) -> Bearer | None:
    """Remove the token from the environment, so that no child process inherits it, and return it."""
    value = environ.pop(VARIABLE, None)
    return None if value is None else Bearer(value)


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the values of the environment that must never leave: test secrets and the tokens of a workflow."""
    return [
        value
        for name, value in environ.items()
        if len(value.strip()) >= SHORTEST_SECRET
        and (name.startswith("UAT_") or name == "GITHUB_TOKEN" or (name.startswith("ACTIONS_") and "TOKEN" in name))
    ]
