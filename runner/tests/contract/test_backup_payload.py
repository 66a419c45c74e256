"""The payload of a task and the specs of maintenance and listing: strict in what is known, tolerant of what is not."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from agentstore_runner.contract import backup, backup_jobs
from agentstore_runner.contract.backup import UnsupportedError
from agentstore_runner.contract.backup_words import REQUIREMENTS, error_code_known
from hypothesis import given, settings
from hypothesis import strategies as st

REPOSITORY = {"engine": "restic", "path": "rest:https://backup.example/web", "credential_ref": "main-repo"}
BACKUP: dict[str, Any] = {
    "version": 1,
    "requires": [],
    "type": "backup",
    "task_id": "t1",
    "run_id": "r1",
    "job": {"id": "j1", "name": "nightly"},
    "attempt": 1,
    "source": {"id": "s1", "name": "etc", "host": "web-1", "paths": ["/etc", "/srv/www"], "excludes": ["*.tmp"]},
    "repository": {**REPOSITORY, "expected_id": "c4" * 32, "init_if_missing": False},
    "backup_id": "as-run-1-src-1-a1",
    "chain": "job:1/source:1",
    "parent_backup": None,
    "settings": {
        "tags": ["job:1", "source:1", "run:1", "task:t1"],
        "one_file_system": True,
        "exclude_caches": True,
        "max_runtime_s": 86400,
        "stall_s": 3600,
        "lock_wait_s": 900,
        "limit_upload_kib": 0,
        "allow_empty": False,
        "previous": {"files": 1234, "bytes": 987654},
        "shrink_warn_percent": 50,
    },
    "report": {"heartbeat_s": 15, "progress_s": 5, "max_error_items": 50, "paths": "full"},
    "hooks": {"before": ["dump-shop"], "after": []},
}
RESTORE: dict[str, Any] = {
    **{name: BACKUP[name] for name in ("version", "requires", "task_id", "repository", "settings", "report")},
    "type": "restore",
    "restore": {
        "backup_id_in_repository": "ab" * 32,
        "include": ["/etc/nginx"],
        "target": {"mode": "directory", "path": "/var/restore/t1"},
        "overwrite": "never",
        "delete_extra": False,
        "verify": "content",
        "plan": {"files": 120, "bytes": 4567},
    },
}


def changed(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with one member replaced, or removed for a value of None."""
    copied: Any = copy.deepcopy(dict(document))
    inner = copied
    *parents, last = path.split(".")
    for name in parents:
        inner = inner.setdefault(name, {})
    if value is None:
        inner.pop(last, None)
    else:
        inner[last] = value
    return copied  # type: ignore[no-any-return] # a copy of a dict is one


def test_a_whole_payload_of_each_type_is_read() -> None:
    read = backup.read(BACKUP, "backup")
    restore = backup.read(RESTORE, "restore")

    assert isinstance(read, backup.Backup)
    assert isinstance(restore, backup.Restore)
    assert (read.paths, read.host, read.previous) == (("/etc", "/srv/www"), "web-1", (1234, 987654))
    assert (read.hooks.before, read.task_tag) == (("dump-shop",), "task:t1")
    assert (restore.path, restore.overwrite, restore.verify, restore.dry_run) == (
        "/var/restore/t1",
        "never",
        True,
        False,
    )


def test_members_that_may_be_absent_have_careful_defaults() -> None:
    least = {name: BACKUP[name] for name in ("version", "type", "task_id", "source", "repository")}
    read = backup.read(least, "backup")

    assert isinstance(read, backup.Backup)
    assert (read.one_file_system, read.allow_empty, read.limits.stall_s) == (True, False, 3600)
    assert backup.read(changed(RESTORE, "restore.verify", None), "restore").verify is True  # type: ignore[union-attr] # a restore


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("version", "1"),
        ("version", True),
        ("requires", ["restore.overwrite.sometimes"]),
        ("requires", "restore.dry_run"),
        ("type", "restore"),
        ("task_id", "a,b"),
        ("source", []),
        ("source.host", None),
        ("source.host", "two words"),
        ("source.paths", []),
        ("source.paths", ["etc"]),
        ("source.paths", ["/a\0"]),
        ("source.paths", ["/a"] * 101),
        ("source.excludes", ["a\nb"]),
        ("repository.engine", "tar"),
        ("repository.path", ""),
        ("repository.path", "--password-command=x"),
        ("repository.path", "rest:https://user:hunter2@backup.example/web"),
        ("repository.credential_ref", "../etc"),
        ("repository.credential_ref", "Main"),
        ("repository.expected_id", "c4d9"),
        ("settings.tags", ["a,b"]),
        ("settings.stall_s", 0),
        ("settings.stall_s", 1.5),
        ("settings.allow_empty", "yes"),
        ("settings.previous", {"files": 1}),
        ("report.paths", "some"),
        ("hooks.before", ["../x"]),
        ("parent_backup", "latest"),
    ],
)
def test_a_backup_that_is_not_understood_is_refused_with_the_place(path: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match="/" + path.split(".", maxsplit=1)[0]):
        backup.read(changed(BACKUP, path, value), "backup")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("restore.backup_id_in_repository", "latest"),
        ("restore.backup_id_in_repository", "abcdef12"),
        ("restore.include", ["etc"]),
        ("restore.target", None),
        ("restore.target.mode", "elsewhere"),
        ("restore.target.path", None),
        ("restore.target.path", "relative"),
        ("restore.overwrite", None),
        ("restore.overwrite", "maybe"),
        ("restore.verify", "size"),
        ("restore.dry_run", 1),
    ],
)
def test_a_restore_that_is_not_understood_is_refused_with_the_place(path: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match="/restore"):
        backup.read(changed(RESTORE, path, value), "restore")


def test_a_restore_in_place_that_would_remove_everything_else_is_refused() -> None:
    spec = changed(changed(RESTORE, "restore.target", {"mode": "in_place"}), "restore.delete_extra", True)

    assert backup.read(spec, "restore").path == "/"  # type: ignore[union-attr] # a restore
    with pytest.raises(UnsupportedError, match="/restore/delete_extra"):
        backup.read(changed(spec, "restore.include", []), "restore")


@pytest.mark.parametrize("path", ["new", "source.new", "settings.new", "report.new", "repository.new", "hooks.new"])
def test_members_of_a_newer_server_are_ignored(path: str) -> None:
    assert backup.read(changed(BACKUP, path, {"x": 1}), "backup") == backup.read(BACKUP, "backup")


def test_a_requirement_that_is_known_but_that_this_machine_cannot_meet_is_refused() -> None:
    spec = changed(RESTORE, "requires", ["restore.overwrite.if_changed"])

    assert backup.read(spec, "restore")
    with pytest.raises(UnsupportedError, match="if_changed"):
        backup.read(spec, "restore", REQUIREMENTS - {"restore.overwrite.if_changed"})


def test_what_would_do_harm_when_it_is_ignored_has_to_be_required() -> None:
    assert backup.required(BACKUP) == ("backup.hooks",)
    assert backup.required(changed(BACKUP, "hooks", None)) == ()
    assert backup.required(RESTORE) == ("restore.overwrite.never", "restore.verify.content")
    assert backup.required(changed(RESTORE, "restore.dry_run", True))[0] == "restore.dry_run"
    assert set(backup.required(RESTORE)) <= REQUIREMENTS


@pytest.mark.parametrize("location", ["/srv/repo", "sftp:user@host:/srv/repo", "s3:s3.example.com/b", "sftp://u@h/r"])
def test_a_location_may_name_a_user(location: str) -> None:
    assert backup.read(changed(BACKUP, "repository.path", location), "backup").repository.location == location


MAINTENANCE = {"version": 1, "repository": REPOSITORY, "forget": ["ab" * 32], "prune": True, "check": "metadata"}


def test_a_maintenance_names_snapshots_and_never_a_rule() -> None:
    read = backup_jobs.maintenance(MAINTENANCE)

    assert (read.forget, read.prune, read.check, read.unlock) == (("ab" * 32,), True, "metadata", False)
    assert backup_jobs.maintenance({"version": 1, "repository": REPOSITORY}).forget == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("repository", None),
        ("forget", ["latest"]),
        ("forget", ["--keep-last=1"]),
        ("prune", "yes"),
        ("check", "some"),
        ("read_data_subset", "all"),
        ("unlock", 1),
    ],
)
def test_a_maintenance_that_is_not_understood_is_refused(path: str, value: Any) -> None:
    with pytest.raises(UnsupportedError):
        backup_jobs.maintenance(changed(MAINTENANCE, path, value))


def test_a_listing_names_one_snapshot_and_one_folder() -> None:
    spec = {"version": 1, "repository": REPOSITORY, "snapshot": "ab" * 32, "path": "/etc"}

    assert backup_jobs.listing(spec).path == "/etc"
    assert backup_jobs.listing(changed(spec, "path", None)).path == "/"
    with pytest.raises(UnsupportedError, match="/snapshot"):
        backup_jobs.listing(changed(spec, "snapshot", "latest"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    *BACKUP,
    *(
        f"{name}.{member}"
        for name in ("source", "repository", "settings", "report", "hooks")
        for member in BACKUP[name]
    ),
]


@settings(max_examples=60)
@given(st.sampled_from(PLACES), JSON)
def test_any_value_in_any_place_is_read_or_refused(path: str, value: Any) -> None:
    try:
        assert backup.read(changed(BACKUP, path, value), "backup")
    except UnsupportedError as error:
        assert str(error)  # noqa: PT017 # both ends are good, an exception of another kind is not


@pytest.mark.parametrize("code", ["wrong_password", "restic_exit_1", "restic_exit_-9"])
def test_codes_of_the_closed_list_are_known(code: str) -> None:
    assert error_code_known(code)
    assert not error_code_known(code + " ")
