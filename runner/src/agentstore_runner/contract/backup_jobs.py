"""The specs of the job kinds `backup.maintenance` and `backup.list`, version 1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentstore_runner.contract import backup
from agentstore_runner.contract.members import Members, MembersError

MAINTENANCE: Final = "backup.maintenance"
LISTING: Final = "backup.list"
MOST_FORGOTTEN: Final = 10_000
MOST_ENTRIES: Final = 2_000
CHECKS: Final = ("none", "metadata", "read_data_subset", "read_data")
_SHARE: Final = r"[1-9][0-9]{0,3}/[1-9][0-9]{0,3}|[0-9]{1,2}(\.[0-9]{1,2})?%|[1-9][0-9]{0,8}[KMGT]"


@dataclass(frozen=True)
class Maintenance:
    """What is to be done with one repository: `forget` are snapshot ids, never a rule; `subset` is what is read."""

    repository: backup.Repository
    forget: tuple[str, ...]
    prune: bool
    check: str
    subset: str
    unlock: bool
    lock_wait_s: int


@dataclass(frozen=True)
class Listing:
    """One folder of one snapshot."""

    repository: backup.Repository
    snapshot: str
    path: str


def maintenance(spec: Mapping[str, Any]) -> Maintenance:
    """Read the spec; UnsupportedError says what is wrong with it."""
    try:
        members = _versioned(spec)
        return Maintenance(
            repository=backup.repository(members.inner("repository")),
            forget=members.texts("forget", most=MOST_FORGOTTEN, pattern=backup.SNAPSHOT_ID),
            prune=members.flag("prune", default=False),
            check=members.word("check", CHECKS, "none"),
            subset=members.text("read_data_subset", "5%", pattern=_SHARE),
            unlock=members.flag("unlock", default=False),
            lock_wait_s=members.number("lock_wait_s", 900),
        )
    except MembersError as error:
        raise backup.UnsupportedError(str(error)) from None


def listing(spec: Mapping[str, Any]) -> Listing:
    """Read the spec; UnsupportedError says what is wrong with it."""
    try:
        members = _versioned(spec)
        return Listing(
            repository=backup.repository(members.inner("repository")),
            snapshot=members.text("snapshot", pattern=backup.SNAPSHOT_ID),
            path=members.text("path", "/", pattern=r"/[^\x00]*"),
        )
    except MembersError as error:
        raise backup.UnsupportedError(str(error)) from None


def _versioned(spec: Mapping[str, Any]) -> Members:
    members = Members(spec)
    if members.number("version", least=1) != backup.VERSION:
        raise members.error(f"this agent understands version {backup.VERSION} only", "version")
    return members
