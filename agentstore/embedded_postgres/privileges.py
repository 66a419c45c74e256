"""Running PostgreSQL as somebody less than root, which it insists on, without widening any folder's permissions."""

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agentstore.embedded_postgres.place import EmbeddedPostgresError

# From linux/prctl.h and linux/capability.h
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Account:
    """A user of the system that is not root."""

    uid: int
    gid: int


def account(data: Path) -> Account | None:
    """Return None when we are not root, else the owner of the data folder, else `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (found := data.stat()).st_uid != 0:
        return Account(found.st_uid, found.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and this system has neither a user postgres nor nobody: "
        "run as a normal user, or set DATABASE_URL."
    )


def needed_capability(account: Account | None, paths: Sequence[Path]) -> int | None:
    """Return the capability that `account` needs to reach all of `paths`, or None; call it before any thread starts."""
    if account is None or _reaches(account, paths):
        return None
    held = int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapPrm" in line).split()[1], 16
    )
    # READ_SEARCH opens less; a container often leaves root only OVERRIDE.
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if held >> capability & 1:
            return capability
    raise EmbeddedPostgresError(
        f"PostgreSQL does not run as root, and user {account.uid} cannot reach {' or '.join(map(str, paths))}: "
        "run as a normal user, move the folder to where others may pass, or set DATABASE_URL."
    )


def _reaches(account: Account, paths: Sequence[Path]) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _switch(account.uid, account.gid)
            status = 0 if all(os.access(path, os.X_OK) for path in paths) else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def become(parent: int, identity: tuple[int, int, int | None] | None, command: list[str]) -> NoReturn:
    """Replace this process by `command`, as another user if `identity` (uid, gid, capability) is given.

    The kernel interrupts the command when the process `parent`, which must have started us, ends.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if identity:
            uid, gid, capability = identity
            if capability is not None:
                _call(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
            _switch(uid, gid)
            if capability is not None:
                _keep_only(libc, capability)
        # Last: a change of the user clears it. SIGINT is PostgreSQL's fast shutdown.
        _call(libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0))
        if os.getppid() != parent:
            sys.exit("The guardian is gone.")
        # The guardian ignores these, and a new program would inherit that.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o077)
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run as an unprivileged user ({error.strerror}): "
                 "run as a normal user, or set DATABASE_URL.")  # fmt: skip


def _switch(uid: int, gid: int) -> None:
    os.setgroups([gid])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _keep_only(libc: ctypes.CDLL, capability: int) -> None:
    """Drop all capabilities but one and pass that one on to the program that follows."""
    bits = 1 << capability
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable; the second three are for capabilities above 31.
    data = (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
    _call(libc.capset(header, data))
    _call(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
