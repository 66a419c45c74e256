"""The password of a repository and the keys of its back end: resolved here, given to restic only, masked everywhere."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentstore_runner.backup import configuration
from agentstore_runner.backup.child import environment
from agentstore_runner.backup.configuration import CREDENTIALS, Configuration, ConfigurationError
from agentstore_runner.redaction import MIN_LENGTH

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,100}")
# It has to fit into a pipe that nobody reads yet.
_PASSWORD = re.compile(r"[^\x00\n]{1,4096}")
# The runner sets these itself, or they would change what is executed.
_RESERVED = re.compile(r"PATH|LD_.*|RESTIC_(PASSWORD.*|REPOSITORY.*|PROGRESS_FPS|CACHE_DIR|FROM_.*)|AGENTSTORE_.*")


@dataclass(frozen=True)
class Credential:
    """A password and the environment of a back end; neither shows in a repr."""

    password: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @property
    def secrets(self) -> list[str]:
        """Return the values that must never leave; a shorter one is a region or a port and would mask plain words."""
        return [value for value in (self.password, *self.environment.values()) if len(value) >= MIN_LENGTH]


def resolve(ref: str, configured: Configuration, environ: Mapping[str, str]) -> Credential:
    """Return the credential of a name, from its command or its file; ConfigurationError says why there is none."""
    command = configured.credential_commands.get(ref)
    if command is None:
        path = configured.folder / CREDENTIALS / f"{ref}.toml"
        return _credential(str(path), configuration.private_toml(path))
    source = f"the command of the credential {ref}"
    try:
        said = subprocess.run(
            command.argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=command.timeout_s, check=True,
            env=environment(environ, {}), start_new_session=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(f"{source} ended with exit code {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{source} took longer than {command.timeout_s} s") from None
    except OSError as error:
        raise ConfigurationError(f"{source} cannot be started: {error.strerror}") from None
    return _credential(source, configuration.toml(source, said.stdout))


def _credential(source: str, document: Mapping[str, Any]) -> Credential:
    password, variables = document.get("password"), document.get("environment", {})
    if not isinstance(password, str) or not _PASSWORD.fullmatch(password):
        raise ConfigurationError(f"{source} holds no password of one line and at most 4096 characters")
    if not isinstance(variables, dict):
        raise ConfigurationError(f"{source}: environment must be a table")
    for name, value in variables.items():
        if _VARIABLE.fullmatch(name) is None or _RESERVED.fullmatch(name):
            raise ConfigurationError(f"{source}: {name[:100]} is no variable of a back end")
        if not isinstance(value, str) or "\0" in value:
            raise ConfigurationError(f"{source}: {name} must be a text")
    return Credential(password, variables)
