"""Restore drills: a sample of a snapshot, into the folder that this machine names for them, and nothing left."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.backup.drills import UNNAMED
from agentstore_runner.backup.plan import Plan
from agentstore_runner.backup.session import SettledError
from agentstore_runner.contract import backup
from agentstore_runner.contract.backup import Sample
from lab import Bell, Lab, at_work

MANY = 2**40


@pytest.fixture
def folder(lab: Lab) -> Path:
    """The folder of drills, as the configuration names it."""
    made = lab.folder / "drills"
    made.mkdir(mode=0o700)
    lab.configure(f'drill_folder = "{made}"\n')
    return made


def drill(lab: Lab, snapshot: str, files: int = 3, **more: Any) -> dict[str, Any]:
    return lab.restore(snapshot, None, overwrite="always", sample={"files": files, "bytes": MANY}, **more)


def test_a_sample_is_restored_and_verified_and_nothing_is_left(lab: Lab, folder: Path) -> None:
    lab.fill(**{f"f{number}": 1000 for number in range(20)})
    locked = lab.source / "read only" / "deep"
    locked.mkdir(parents=True)
    (locked / "[odd]*?").write_bytes(b"x" * 1000)
    locked.chmod(0o500)
    locked.parent.chmod(0o500)
    snapshot = lab.saved()

    few = lab.do("restore", drill(lab, snapshot))
    every = lab.do("restore", drill(lab, snapshot, files=1000))
    locked.parent.chmod(0o700)

    assert (few.status, few.snapshot) == ("succeeded", snapshot), few
    assert few.details["target"]["state"] == "complete, content verified"
    assert few.details["target"]["path"].startswith(f"{folder}/drill-")
    assert few.details["sampled_from"] == {"files": 21, "bytes": 21_000}
    assert few.details["plan"]["files"] == 3
    assert (every.status, every.details["plan"]["files"]) == ("succeeded", 21), every
    assert list(folder.iterdir()) == []


def test_without_a_folder_that_can_be_trusted_it_is_a_fault_of_the_configuration_and_says_so(lab: Lab) -> None:
    lab.fill(a=10)
    spec = drill(lab, lab.saved())
    link, opened = lab.folder / "link", lab.folder / "open"
    opened.mkdir()
    opened.chmod(0o777)
    link.symlink_to(lab.folder)

    for named, said in (
        (None, UNNAMED),
        (lab.folder / "nowhere", "cannot be used"),
        (link, "is not a folder"),
        (opened, "writable by nobody else"),
    ):
        lab.configure(f'drill_folder = "{named}"\n' if named else "")
        report = lab.do("restore", spec)
        assert (report.status, report.failure_class) == ("failed", "configuration")
        assert report.error_code == "drill_folder_unusable"
        assert said in (report.error or "")
    assert list(opened.iterdir()) == []


def test_damage_is_found_and_the_folder_is_emptied_all_the_same(lab: Lab, folder: Path) -> None:
    lab.fill(**{f"f{number}": 2_000_000 for number in range(6)})
    snapshot = lab.saved()
    for pack in (lab.repository / "data").glob("*/*"):
        if pack.stat().st_size > 100_000:
            pack.chmod(0o600)
            pack.write_bytes(b"\0" * pack.stat().st_size)

    report = lab.do("restore", drill(lab, snapshot, files=6))

    assert report.status in ("failed", "partial_failure")
    assert report.failure_class == "repository", report
    assert list(folder.iterdir()) == []


def test_a_cancel_leaves_nothing_behind(lab: Lab, folder: Path) -> None:
    lab.fill(a=60_000_000)

    report = lab.do("restore", drill(lab, lab.saved()), Bell(at_work))

    assert report.status == "cancelled", report
    assert list(folder.iterdir()) == []


def test_what_a_dead_drill_left_is_removed_and_what_a_living_one_uses_is_not(lab: Lab, folder: Path) -> None:
    lab.fill(a=10)
    for name in ("drill-dead", "drill-alive", "mine"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("restored")
    held = os.open(folder / "drill-alive", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert lab.do("restore", drill(lab, lab.saved())).status == "succeeded"
    finally:
        os.close(held)

    assert {path.name for path in folder.iterdir()} == {"drill-alive", "mine"}


def test_the_sample_differs_by_its_seed_and_keeps_to_its_limits() -> None:
    sizes: dict[str, int | None] = {f"/f{number}": number for number in range(100)}
    sizes |= {"/socket": None, "/line\nbreak": 1, "/not\ufffdutf": 1}
    plan = Plan((), sizes)

    one, again, other = (plan.sampled(Sample(10, 10**6, seed)) for seed in ("a", "a", "b"))
    assert one.files == again.files != other.files
    assert len(one.files) == len(one.include) == 10
    assert plan.sampled(Sample(1000, 10**6, "a")).files.keys() == {f"/f{number}" for number in range(100)}
    assert plan.sampled(Sample(1000, 50, "a")).size <= 50
    assert Plan((), {"/big": 10**9, "/bigger": 10**10}).sampled(Sample(5, 10, "a")).files == {"/big": 10**9}
    with pytest.raises(SettledError):
        Plan((), {"/socket": None}).sampled(Sample(5, 10, "a"))


def test_a_sample_goes_into_a_scratch_folder_only_and_older_agents_refuse_it(lab: Lab, tmp_path: Path) -> None:
    spec = drill(lab, "ab" * 32)
    assert "restore.sample" in backup.required(spec)
    spec["restore"]["target"] = {"mode": "directory", "path": str(tmp_path)}
    with pytest.raises(backup.UnsupportedError, match="scratch"):
        backup.read(spec, "restore")
