"""What this machine's own administrator has configured: credentials, hooks and where restic is. No server sends these.

The folder is AGENTSTORE_RUNNER_CONFIG, else agentstore-runner below XDG_CONFIG_HOME. It holds `backups.toml` and
`credentials/NAME.toml`.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentstore_runner.contract.members import Members, MembersError

VARIABLE: Final = "AGENTSTORE_RUNNER_CONFIG"
FILE: Final = "backups.toml"
CREDENTIALS: Final = "credentials"
_LARGEST: Final = 1024 * 1024
_WRITABLE: Final = 0o022
_OPEN: Final = 0o077
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ConfigurationError(Exception):
    """A file of the configuration cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and the seconds that it may take."""

    argv: tuple[str, ...]
    timeout_s: int


@dataclass(frozen=True)
class Configuration:
    """The content of `backups.toml`; everything in it may be absent."""

    folder: Path
    restic: str
    drill_folder: Path | None
    hooks: Mapping[str, Command]
    credential_commands: Mapping[str, Command]


def folder(environ: Mapping[str, str]) -> Path:
    """Return where the configuration is."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "agentstore-runner"


def present(environ: Mapping[str, str]) -> bool:
    """Say whether somebody has configured backups on this machine."""
    found = folder(environ)
    return (found / FILE).exists() or (found / CREDENTIALS).is_dir()


def read(environ: Mapping[str, str]) -> Configuration:
    """Read the configuration; ConfigurationError if it is there and cannot be trusted or understood."""
    place = folder(environ)
    path = place / FILE
    try:
        # The file names programs to run: nobody but its owner may write it.
        members = Members(_toml(path, _content(path, forbidden=0o022)) if path.exists() else {})
        drills = members.optional_text("drill_folder", pattern=r"/[^\x00]*")
        return Configuration(
            folder=place,
            restic=members.text("restic", "restic"),
            drill_folder=None if drills is None else Path(drills),
            hooks=_commands(members.inner("hooks"), 600),
            credential_commands=_commands(members.inner("credentials"), 30),
        )
    except MembersError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def credential_files(configured: Configuration) -> list[str]:
    """Return the names of the credentials that are files."""
    return [path.stem for path in (configured.folder / CREDENTIALS).glob("*.toml")]


def private_toml(path: Path) -> dict[str, Any]:
    """Read a file that holds secrets: regular, no link, owned by this user, readable by nobody else."""
    return _toml(path, _content(path, forbidden=_OPEN))


def toml(source: str, content: bytes) -> dict[str, Any]:
    """Read TOML; ConfigurationError names the source and no content of it."""
    return _toml(source, content)


def _content(path: Path, *, forbidden: int) -> bytes:
    try:
        # O_NONBLOCK: a named pipe in this place must not hang the runner.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{path} is not a regular file")
        # What root has written into a file without secrets is as good as the runner's own.
        if found.st_uid != os.geteuid() and not (found.st_uid == 0 and forbidden == _WRITABLE):
            raise ConfigurationError(f"{path} belongs to another user than the runner's")
        if found.st_mode & forbidden:
            mode = "go-w" if forbidden == _WRITABLE else "600"
            raise ConfigurationError(f"{path} is open to other users of this machine: chmod {mode} {path}")
        return os.read(descriptor, _LARGEST)
    finally:
        os.close(descriptor)


def _toml(source: Path | str, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # The message of the parser may quote the line, and the line may hold the password.
        where = re.search(r"at line \d+, column \d+", str(error))
        raise ConfigurationError(f"{source} is not TOML{f' ({where[0]})' if where else ''}") from None


def _commands(members: Members, timeout_s: int) -> dict[str, Command]:
    found = {}
    for name in members:
        if _NAME.fullmatch(name) is None:
            raise members.error("is not a name", name)
        inner = members.inner(name)
        found[name] = Command(
            inner.texts("command", least=1), inner.number("timeout_s", timeout_s, least=1, most=86_400)
        )
    return found
