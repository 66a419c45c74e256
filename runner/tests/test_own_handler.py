"""The documented example of a handler: installed by pip beside the runner, it is found, advertised and honest."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Process
from standin import StandIn

EXAMPLE = Path(__file__).parents[2] / "examples/handlers/disk_space"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the example, built from a copy of its source and installed as anybody would."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("place")
    for name in ("pyproject.toml", "disk_space.py"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--target", str(place), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(place)


def test_the_example_is_found_by_its_entry_point_and_its_kind_is_asked_for(
    server: StandIn, launch: Callable[..., Process], installed: str
) -> None:
    rows = [server.add("host.disk-space", spec={"path": "/", "free_gb": wanted}) for wanted in (0, 10**9)]
    for expected, row in zip(("pass", "fail"), rows, strict=True):
        assert launch("run", "--once", PYTHONPATH=installed).code() == 0
        assert (row.status, row.verdict, row.result["results"]["path"]) == ("done", expected, "/")
    kinds = server.called("claim")[0].body["kinds"]
    assert kinds == ["host.disk-space", "http.probe", "uat.quick-task"]


def test_an_exception_of_a_handler_is_an_honest_failure(
    server: StandIn, launch: Callable[..., Process], installed: str
) -> None:
    row = server.add("host.disk-space", spec={"path": f"{os.sep}there-is-no-such-place", "free_gb": 1})
    assert launch("run", "--once", PYTHONPATH=installed).code() == 1
    assert (row.status, row.result["failure_class"], row.verdict) == ("failed", "internal", None)
    assert "there-is-no-such-place" in row.result["error"]


def test_the_example_is_as_short_as_it_says() -> None:
    assert len((EXAMPLE / "disk_space.py").read_text().splitlines()) <= 25
