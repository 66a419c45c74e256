"""The payload of a task, version 1: one backup of one source, or one restore of one snapshot.

Both sides are upgraded apart: members that are not known are ignored. A member that would do harm when it is ignored
is named in `requires`, and an agent that does not know the name refuses the task before it touches anything.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from agentstore_runner.contract import backup_words as words
from agentstore_runner.contract.members import Members, MembersError

VERSION: Final = 1
BACKUP: Final = "backup"
RESTORE: Final = "restore"

MOST_SAMPLED: Final = 1000
SAMPLED_BYTES: Final = 1024**3

CREDENTIAL_REF: Final = r"[a-z0-9][a-z0-9_-]{0,62}"
SNAPSHOT_ID: Final = r"[0-9a-f]{64}"
# A user may stand in a location, a password never: "rest:https://user:password@host" is refused.
LOCATION: Final = r"(?!.*//[^/@]*:[^/]*@)[^\x00-\x20-][^\x00-\x1f]*"
_ABSOLUTE: Final = r"/[^\x00]*"
# restic splits a tag at its commas, and a line break ends a pattern in a file of patterns.
_TAG: Final = r"[^,\x00-\x1f]+"
_PATTERN: Final = r"[^\x00\r\n]+"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


class UnsupportedError(ValueError):
    """This agent must not start the work: it does not understand the payload. The text says what of it."""


@dataclass(frozen=True)
class Repository:
    """Where the snapshots are: `expected_id` is the engine's own id of it, once the server knows it."""

    location: str
    credential_ref: str
    expected_id: str | None
    init_if_missing: bool


@dataclass(frozen=True)
class Reporting:
    """How often and how much is told while the work runs."""

    progress_s: int
    max_error_items: int
    paths: Literal["full", "basename", "none"]


@dataclass(frozen=True)
class Hooks:
    """Names of commands that the agent's own configuration defines."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """Seconds without progress, seconds to wait for a lock, and KiB per second (0: no limit)."""

    stall_s: int
    lock_wait_s: int
    upload_kib: int


@dataclass(frozen=True)
class Backup:
    """One backup of one source; `previous` are files and bytes of the last good one."""

    repository: Repository
    reporting: Reporting
    hooks: Hooks
    limits: Limits
    host: str
    paths: tuple[str, ...]
    excludes: tuple[str, ...]
    tags: tuple[str, ...]
    task_tag: str
    parent: str | None
    one_file_system: bool
    exclude_caches: bool
    allow_empty: bool
    previous: tuple[int, int] | None
    shrink_warn_percent: int


@dataclass(frozen=True)
class Sample:
    """A few files of a snapshot, chosen by `seed`: at most so many, and about so many bytes."""

    files: int
    bytes: int
    seed: str


@dataclass(frozen=True)
class Restore:
    """One restore of one snapshot; `path` is None for the agent's own scratch folder, which is emptied afterwards.

    With a `sample` it is a drill: only some files, and only into the folder that the agent keeps for drills.
    """

    repository: Repository
    reporting: Reporting
    hooks: Hooks
    limits: Limits
    snapshot: str
    include: tuple[str, ...]
    path: str | None
    overwrite: Literal["never", "if_changed", "always"]
    delete_extra: bool
    verify: bool
    dry_run: bool
    sample: Sample | None = None


def read(payload: Mapping[str, Any], kind: str, understood: Collection[str] = words.REQUIREMENTS) -> Backup | Restore:
    """Read the payload of a task; UnsupportedError for another version, an unknown requirement or a wrong member."""
    try:
        members = Members(payload)
        if members.number("version", least=1) != VERSION:
            raise members.error(f"this agent understands version {VERSION} only", "version")
        unknown = [name for name in members.texts("requires") if name not in understood]
        if unknown:
            raise members.error(f"this agent does not know {', '.join(unknown)}", "requires")
        members.word("type", (kind,))
        return _backup(members) if kind == BACKUP else _restore(members)
    except MembersError as error:
        raise UnsupportedError(str(error)) from None


def required(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that `requires` of a payload must list, because an agent that ignores them does harm."""
    hooks, restore = payload.get("hooks") or {}, payload.get("restore") or {}
    found = {
        words.HOOKS: bool(hooks.get("before") or hooks.get("after")),
        words.SCRATCH: (restore.get("target") or {}).get("mode") == "scratch",
        words.DRY_RUN: restore.get("dry_run") is True,
        words.NEVER: restore.get("overwrite") == "never",
        words.IF_CHANGED: restore.get("overwrite") == "if_changed",
        words.DELETE_EXTRA: restore.get("delete_extra") is True,
        words.VERIFY: restore.get("verify") == "content",
        words.SAMPLE: bool(restore.get("sample")),
    }
    return tuple(name for name, needed in found.items() if needed)


def repository(members: Members) -> Repository:
    """Read the repository of a payload or of a maintenance spec; MembersError."""
    members.word("engine", ("restic",), "restic")
    return Repository(
        location=members.text("path", pattern=LOCATION),
        credential_ref=members.text("credential_ref", pattern=CREDENTIAL_REF),
        expected_id=members.optional_text("expected_id", pattern=SNAPSHOT_ID),
        init_if_missing=members.flag("init_if_missing", default=False),
    )


def _backup(members: Members) -> Backup:
    source, settings = members.inner("source"), members.inner("settings")
    previous = settings.inner("previous")
    return Backup(
        repository=repository(members.inner("repository")),
        reporting=_reporting(members.inner("report")),
        hooks=_hooks(members.inner("hooks")),
        limits=_limits(settings),
        host=source.text("host", pattern=r"[^\x00-\x20]+"),
        paths=source.texts("paths", least=1, pattern=_ABSOLUTE),
        excludes=source.texts("excludes", most=1000, pattern=_PATTERN),
        tags=settings.texts("tags", pattern=_TAG),
        task_tag=f"task:{members.text('task_id', pattern=_TAG)}",
        parent=members.optional_text("parent_backup", pattern="[0-9a-f]{8,64}"),
        one_file_system=settings.flag("one_file_system", default=True),
        exclude_caches=settings.flag("exclude_caches", default=True),
        allow_empty=settings.flag("allow_empty", default=False),
        previous=(previous.number("files"), previous.number("bytes")) if list(previous) else None,
        shrink_warn_percent=settings.number("shrink_warn_percent", 0, most=100),
    )


def _restore(members: Members) -> Restore:
    restore = members.inner("restore")
    target = restore.inner("target")
    mode = target.word("mode", ("directory", "in_place", "scratch"))
    path = target.text("path", pattern=_ABSOLUTE) if mode == "directory" else "/" if mode == "in_place" else None
    include = restore.texts("include", most=1000, pattern=_ABSOLUTE)
    delete_extra = restore.flag("delete_extra", default=False)
    if delete_extra and mode == "in_place" and not include:
        raise restore.error("would remove everything else of this machine: name the folders to restore", "delete_extra")
    sample = _sample(restore.inner("sample"), members)
    if sample is not None and mode != "scratch":
        raise restore.error("is only restored into a scratch folder", "sample")
    return Restore(
        repository=repository(members.inner("repository")),
        reporting=_reporting(members.inner("report")),
        hooks=_hooks(members.inner("hooks")),
        limits=_limits(members.inner("settings")),
        snapshot=restore.text("backup_id_in_repository", pattern=SNAPSHOT_ID),
        include=include,
        path=path,
        overwrite=cast(
            'Literal["never", "if_changed", "always"]', restore.word("overwrite", ("never", "if_changed", "always"))
        ),
        delete_extra=delete_extra,
        verify=restore.word("verify", ("none", "content"), "content") == "content",
        dry_run=restore.flag("dry_run", default=False),
        sample=sample,
    )


def _sample(sample: Members, payload: Members) -> Sample | None:
    if not list(sample):
        return None
    return Sample(
        files=sample.number("files", least=1, most=MOST_SAMPLED),
        bytes=sample.number("bytes", SAMPLED_BYTES, least=1),
        seed=payload.text("task_id"),
    )


def _reporting(members: Members) -> Reporting:
    return Reporting(
        progress_s=members.number("progress_s", 5, least=1, most=3600),
        max_error_items=members.number("max_error_items", 50, most=500),
        paths=cast('Literal["full", "basename", "none"]', members.word("paths", ("full", "basename", "none"), "full")),
    )


def _hooks(members: Members) -> Hooks:
    return Hooks(
        before=members.texts("before", most=10, pattern=_NAME), after=members.texts("after", most=10, pattern=_NAME)
    )


def _limits(settings: Members) -> Limits:
    return Limits(
        stall_s=settings.number("stall_s", 3600, least=1),
        lock_wait_s=settings.number("lock_wait_s", 900),
        upload_kib=settings.number("limit_upload_kib", 0),
    )
