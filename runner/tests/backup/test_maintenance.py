"""Real maintenance: what is told is what a listing shows afterwards, and damage ends it before anything is removed."""

import json
from typing import Any

import pytest
from lab import Bell, Lab

pytestmark = pytest.mark.lengthy


def spec(lab: Lab, **more: Any) -> dict[str, Any]:
    return {"version": 1, "repository": lab.located(), "lock_wait_s": 0, **more}


def ids(lab: Lab) -> list[str]:
    return [snapshot["id"] for snapshot in json.loads(lab.restic("snapshots", "--json"))]


def test_the_named_snapshots_are_forgotten_and_no_other(lab: Lab) -> None:
    lab.fill(a=10)
    saved = [lab.saved(), lab.saved(), lab.saved()]
    unknown = "ab" * 32

    report = lab.do(
        "backup.maintenance",
        spec(lab, forget=[saved[0], unknown, saved[2]], prune=True, check="read_data", unlock=True),
    )

    assert (report.status, report.error) == ("done", None)
    assert report.results is not None
    assert report.results["forgotten"] == [saved[0], saved[2]]
    assert (report.results["absent"], report.results["kept"]) == ([unknown], [])
    assert (report.results["pruned"], report.results["unlocked"]) == (True, True)
    assert report.results["check"] == {"ok": True, "depth": "read_data", "message": ""}
    assert ids(lab) == [saved[1]]


def test_damage_is_found_at_its_depth_and_nothing_is_removed(lab: Lab) -> None:
    lab.fill(a=3_000_000)
    saved = [lab.saved(), lab.saved()]
    pack = max((lab.repository / "data").glob("*/*"), key=lambda pack: pack.stat().st_size)
    content = bytearray(pack.read_bytes())
    content[1000] ^= 0xFF
    pack.chmod(0o600)
    pack.write_bytes(content)

    shallow = lab.do("backup.maintenance", spec(lab, check="metadata"))
    deep = lab.do("backup.maintenance", spec(lab, check="read_data", forget=[saved[0]], prune=True))

    assert (shallow.status, shallow.results and shallow.results["check"]["depth"]) == ("done", "metadata")
    assert (deep.status, deep.failure_class, deep.details["code"]) == ("failed", "repository", "repository_damaged")
    assert deep.results is not None
    assert deep.results["check"]["ok"] is False
    assert (deep.results["forgotten"], ids(lab)) == ([], saved)


@pytest.mark.parametrize(
    ("changed", "failure_class", "code"),
    [
        ({"forget": ["latest"]}, "configuration", "payload_unsupported"),
        ({"repository": {"path": "/x", "credential_ref": "none"}}, "configuration", "credential_missing"),
    ],
)
def test_a_maintenance_that_cannot_be_done_says_why(
    lab: Lab, changed: dict[str, Any], failure_class: str, code: str
) -> None:
    report = lab.do("backup.maintenance", {**spec(lab), **changed})

    assert (report.status, report.failure_class, report.details["code"]) == ("failed", failure_class, code)


def test_a_maintenance_that_is_cancelled_says_so(lab: Lab) -> None:
    report = lab.do("backup.maintenance", spec(lab, prune=True), Bell(lambda bell: "prune" in bell.logged))

    assert (report.status, report.results and report.results["pruned"], lab.locks()) == ("cancelled", False, [])


def test_a_folder_of_a_snapshot_is_listed(lab: Lab) -> None:
    lab.fill(a=10)
    (lab.source / "inner").mkdir()
    (lab.source / "inner/deep").write_text("x")
    snapshot = lab.saved()

    report = lab.do("backup.list", {**spec(lab), "snapshot": snapshot, "path": f"{lab.source}/"})
    root = lab.do("backup.list", {**spec(lab), "snapshot": snapshot})

    assert report.results is not None
    assert root.results is not None
    assert [(entry["name"], entry["type"], entry["size"]) for entry in report.results["entries"]] == [
        ("a", "file", 10),
        ("inner", "dir", 0),
    ]
    assert (report.results["path"], report.results["truncated"]) == (str(lab.source), False)
    assert [entry["name"] for entry in root.results["entries"]] == [lab.source.parts[1]]


def test_a_listing_of_a_snapshot_that_is_not_there_says_so(lab: Lab) -> None:
    report = lab.do("backup.list", {**spec(lab), "snapshot": "ab" * 32, "path": "/"})

    assert (report.status, report.details["code"]) == ("failed", "snapshot_not_found")
