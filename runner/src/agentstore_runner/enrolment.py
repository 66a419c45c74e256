"""A code becomes the token of this host: asked for until there is an answer, and on disk before it counts as one."""

import contextlib
import hashlib
import json
import os
import random
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentstore_runner import __version__, clock
from agentstore_runner.backoff import Backoff
from agentstore_runner.bearer import Bearer, TokenError
from agentstore_runner.claiming import Exit
from agentstore_runner.client import Client, UnansweredError

# The server remembers an enrolment for ten minutes; a person waits no longer than this for one answer.
PATIENCE_S = 120.0


class EnrolmentError(Exception):
    """The host has no token; the text says why and what to do."""


class RefusedError(EnrolmentError):
    """The server gives no token for this code and name."""


class UnreachableError(EnrolmentError):
    """There was no answer; the same command again goes on where this one ended."""


EXIT_CODES: dict[type[Exception], int] = {RefusedError: Exit.REFUSED, UnreachableError: Exit.UNREACHABLE}


@dataclass(frozen=True)
class Pending:
    """An enrolment that was begun: the same id is asked with until its token lies in its file."""

    enrolment_id: str
    purpose: str  # digest of code, name and server: for another one, another id is made


@dataclass(frozen=True)
class Enrolled:
    """Which agent this host acts as from now on."""

    agent: str
    state: str
    token_file: Path


def enrol(
    server: str,
    code: Bearer,
    *,
    name: str,
    token_file: Path,
    force: bool,
    connect: Callable[[Bearer | None], Client],
    rng: random.Random,
    say: Callable[[str], None],
    wait: Callable[[float], None],
) -> Enrolled:
    """Trade the code for a token and write that to `token_file`, for its owner alone; EnrolmentError says why not.

    A file that exists is kept unless `force`. Nothing is asked before it is sure that the token can be written.
    """
    if os.path.lexists(token_file) and not force:
        raise EnrolmentError(f"{token_file} exists: give another --token-file, or --force to replace it")
    beside = token_file.with_name(f".{token_file.name}.enrolling")
    try:
        pending = _begun(beside, hashlib.sha256(f"{server}\n{name}\n{code.reveal()}".encode()).hexdigest())
        with _place(token_file) as place, contextlib.closing(connect(None)) as client:
            body = _asked(client, pending, code, name, rng=rng, say=say, wait=wait)
            token = _token(body)
            _write(place, f"{token.reveal()}\n".encode())
            _into_place(place, token_file, force=force)
        beside.unlink()
    except RefusedError:
        beside.unlink()
        raise
    except OSError as error:
        raise EnrolmentError(f"{token_file} cannot be written: {error.strerror}") from None
    # The token is used once: a copy of the request that is still on its way can no longer replace it.
    with contextlib.suppress(UnansweredError), contextlib.closing(connect(token)) as client:
        client.me()
    return Enrolled(str(body["principal_key"]), str(body["state"]), token_file)


def _asked(
    client: Client,
    pending: Pending,
    code: Bearer,
    name: str,
    *,
    rng: random.Random,
    say: Callable[[str], None],
    wait: Callable[[float], None],
) -> dict[str, Any]:
    """Ask with one id until there is an answer that counts."""
    runner = {"name": "agentstore-runner", "version": __version__}
    request = {"code": code.reveal(), "enrolment_id": pending.enrolment_id, "name": name, "runner": runner}
    content = json.dumps(request).encode()
    backoff, until = Backoff(rng), clock.now() + PATIENCE_S
    while True:
        try:
            answer = client.enrol(content)
        except UnansweredError as error:
            pause = backoff.next(error.retry_after)
            if clock.now() + pause > until:
                raise UnreachableError(
                    f"the server does not answer: {error}; run the same command again within ten minutes"
                ) from None
            say(f"no answer, next try in {pause:.1f} s: {error}")
            wait(pause)
            continue
        if answer.ok:
            return answer.body
        faults = [str(fault.get("detail")) for fault in answer.body.get("errors", []) if isinstance(fault, dict)]
        raise RefusedError(" ".join([f"the server refuses: {answer.sentence}", *faults]))


def _token(body: dict[str, Any]) -> Bearer:
    try:
        return Bearer(str(body["token"]))
    except TokenError as error:
        raise EnrolmentError(f"the server's answer holds no token: {error}") from None


def _begun(path: Path, purpose: str) -> Pending:
    """Return the enrolment that an earlier process began for the same purpose, or begin one and remember it."""
    try:
        found = Pending(**json.loads(path.read_bytes()))
        if found.purpose == purpose:
            return found
    except (FileNotFoundError, ValueError, TypeError):
        pass
    pending = Pending(str(uuid.uuid4()), purpose)
    with _place(path) as place:
        _write(place, json.dumps(asdict(pending)).encode())
        place.replace(path)
    _sync(path.parent)
    return pending


@contextlib.contextmanager
def _place(path: Path) -> Iterator[Path]:
    """A new file beside `path`, of mode 600; it goes away unless it was moved."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    place = Path(name)
    try:
        yield place
    finally:
        place.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _into_place(place: Path, path: Path, *, force: bool) -> None:
    """Give the file its name; one that came meanwhile is kept unless `force`, wherever files can have two names."""
    if force:
        place.replace(path)
    else:
        try:
            os.link(place, path)
        except FileExistsError:
            raise EnrolmentError(f"{path} came into being meanwhile and was kept; revoke the new token") from None
        except OSError:  # a file system without links
            place.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
