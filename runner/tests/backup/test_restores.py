"""Real restores: the right bytes in the right place, nothing overwritten unasked, and the truth about the target."""

from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.backup import engine
from lab import Bell, Lab

pytestmark = pytest.mark.lengthy

UNTOUCHED = "nothing was written"


def chooses_overwrite(lab: Lab) -> bool:
    return engine.find("restic", lab.environ).chooses_overwrite


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill_tree(lab: Lab) -> dict[str, bytes]:
    lab.fill(a=3000, **{"with: colon": 10, "[x]*": 10, "new\nline": 10})
    inner = lab.source / "inner"
    inner.mkdir()
    (inner / "big").write_bytes(b"0123456789" * 50_000)
    (inner / "empty").touch()
    return tree(lab.source)


def test_a_restore_elsewhere_brings_every_byte_and_says_where(lab: Lab) -> None:
    content = fill_tree(lab)
    snapshot, target = lab.saved(), lab.folder / "target"

    report = lab.do("restore", lab.restore(snapshot, target))

    assert (report.status, report.snapshot, report.error_code) == ("succeeded", snapshot, None)
    assert tree(target / str(lab.source).lstrip("/")) == content
    assert report.details["target"] == {
        "path": str(target),
        "overwrite": "never",
        "state": "complete, content verified",
    }
    assert report.details["plan"] == {
        "files": len(content),
        "bytes": sum(map(len, content.values())),
        "conflicts": 0,
    }
    assert report.counters["files_skipped"] == 0
    assert report.counters["files_processed"] >= len(content)
    assert report.counters["bytes_processed"] == report.counters["bytes_written"] == sum(map(len, content.values()))


def test_only_what_is_asked_for_is_restored_and_a_path_is_no_pattern(lab: Lab) -> None:
    content = fill_tree(lab)
    (lab.source / "x-match").write_text("would match the pattern")
    snapshot, target = lab.saved(), lab.folder / "target"

    wanted = [str(lab.source / "[x]*"), str(lab.source / "inner/")]
    report = lab.do("restore", lab.restore(snapshot, target, include=wanted))

    assert report.status == "succeeded"
    names = ("[x]*", "inner/big", "inner/empty")
    assert tree(target / str(lab.source).lstrip("/")) == {name: content[name] for name in names}


def test_a_dry_run_tells_of_conflicts_and_writes_nothing(lab: Lab) -> None:
    content = fill_tree(lab)
    snapshot, target = lab.saved(), lab.folder / "target"
    there = target / str(lab.source).lstrip("/")
    there.mkdir(parents=True)
    (there / "a").write_text("mine")

    report = lab.do("restore", lab.restore(snapshot, target, dry_run=True, overwrite="always"))

    assert (report.status, report.snapshot, report.details["dry_run"]) == ("succeeded", None, True)
    assert report.details["plan"]["conflicts"] == 1
    assert report.details["plan"]["first_conflicts"] == [str(lab.source / "a")]
    assert (report.counters["files_processed"], report.details["target"]["state"]) == (len(content), UNTOUCHED)
    assert tree(target) == {str((there / "a").relative_to(target)): b"mine"}


def test_files_that_are_there_are_overwritten_only_when_that_is_asked_for(lab: Lab) -> None:
    content = fill_tree(lab)
    snapshot = lab.saved()
    mine = lab.source / "a"
    mine.write_text("changed since")

    never = lab.do("restore", lab.restore(snapshot, Path("/")))
    kept = mine.read_text()
    always = lab.do("restore", lab.restore(snapshot, Path("/"), overwrite="always"))

    assert (never.status, never.error_code, kept) == ("failed", "target_conflict", "changed since")
    assert never.details["target"]["state"] == UNTOUCHED
    assert always.status == "succeeded"
    assert tree(lab.source) == content


def test_what_the_engine_cannot_do_is_refused_before_anything_is_written(lab: Lab) -> None:
    if chooses_overwrite(lab):
        pytest.skip("this restic can choose what to overwrite")
    lab.fill(a=10)
    snapshot, target = lab.saved(), lab.folder / "target"

    for asked in ({"overwrite": "if_changed"}, {"delete_extra": True}):
        report = lab.do("restore", lab.restore(snapshot, target, **asked))
        assert (report.error_code, target.exists()) == ("engine_too_old", False)
    spec = {**lab.restore(snapshot, target), "requires": ["restore.overwrite.if_changed"]}
    assert lab.do("restore", spec).error_code == "payload_unsupported"


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({"overwrite": "never"}, ["--overwrite=never", "--verify"]),
        ({"overwrite": "if_changed", "verify": "none"}, ["--overwrite=if-changed"]),
        ({"overwrite": "always", "delete_extra": True}, ["--overwrite=always", "--delete", "--verify"]),
    ],
)
def test_a_newer_engine_is_told_what_to_overwrite(lab: Lab, asked: dict[str, Any], flags: list[str]) -> None:
    lab.fill(a=10)
    snapshot, seen = lab.saved(), lab.folder / "seen"
    lab.wrap(
        '[ "$1" != version ] || { echo restic 0.18.0; exit 0; }\n'
        f'[ "$1" != restore ] || {{ printf "%s\\n" "$@" > {seen}; exit 1; }}'
    )

    lab.do("restore", lab.restore(snapshot, lab.folder / "target", **asked))

    said = ["restore", "--json", f"--target={lab.folder / 'target'}", *flags, "--", snapshot]
    assert seen.read_text().split() == said


def test_the_scratch_target_is_gone_with_the_task(lab: Lab) -> None:
    fill_tree(lab)
    report = lab.do("restore", lab.restore(lab.saved(), None))

    assert (report.status, report.details["target"]["state"]) == ("succeeded", "complete, content verified")
    assert not Path(report.details["target"]["path"]).exists()


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"include": ["/nowhere"]}, "nothing_matched"), ({"backup_id_in_repository": "ab" * 32}, "snapshot_not_found")],
)
def test_a_restore_of_nothing_ends_before_the_target_is_touched(lab: Lab, changed: dict[str, Any], code: str) -> None:
    lab.fill(a=10)
    target = lab.folder / "target"

    report = lab.do("restore", lab.restore(lab.saved(), target, **changed))

    assert (report.status, report.failure_class, report.error_code) == ("failed", "configuration", code)
    assert (report.details["target"]["state"], target.exists()) == (UNTOUCHED, False)


def test_damage_in_the_repository_is_named_with_the_files_that_it_cost(lab: Lab) -> None:
    lab.fill(**{f"f{number}": 2_000_000 for number in range(12)})
    snapshot, target = lab.saved(), lab.folder / "target"
    packs = sorted((lab.repository / "data").glob("*/*"), key=lambda pack: pack.stat().st_size)
    packs[-1].chmod(0o600)
    packs[-1].write_bytes(b"\0" * packs[-1].stat().st_size)

    report = lab.do("restore", lab.restore(snapshot, target))

    assert (report.status, report.failure_class) == ("partial_failure", "repository"), report.details
    assert report.counters["files_skipped"] == report.details["items_total"] > 0
    assert report.details["target"]["state"].startswith("incomplete")


def test_a_file_in_the_place_of_the_target_is_a_conflict(lab: Lab) -> None:
    lab.fill(a=10)
    target = lab.folder / "target"
    target.write_text("mine")

    report = lab.do("restore", lab.restore(lab.saved(), target, overwrite="always"))

    assert (report.status, report.error_code, target.read_text()) == ("failed", "target_conflict", "mine")


def test_a_restore_that_is_stopped_says_that_the_target_is_unusable(lab: Lab) -> None:
    lab.fill(big=3_000_000)
    snapshot, target = lab.saved(), lab.folder / "target"
    lab.wrap('[ "$1" != restore ] || set -- --limit-download=30 "$@"')

    # The lock comes first, then the folders, then the content, which takes longer than the test at that pace.
    folder = target / str(lab.source).lstrip("/")
    report = lab.do("restore", lab.restore(snapshot, target), Bell(lambda _: folder.exists(), "cancel"))

    assert (report.status, report.error_code, lab.locks()) == ("cancelled", "cancelled_by_admin", [])
    assert report.details["target"]["state"].startswith("do not use")
