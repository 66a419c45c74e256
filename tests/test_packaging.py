"""What is pinned, and that the pins, the package and the repository say the same."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from agentstore.config import REPOSITORY
from checks import committed_files

REQUIREMENTS = REPOSITORY / "requirements"
INPUTS = sorted(path.name for path in REQUIREMENTS.glob("*.in"))


def names(lines: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9_.-]+(\[[a-z0-9_,-]+\])?", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", match[0].lower()) for match in found if match}


def directs(name: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in (REQUIREMENTS / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


@pytest.mark.parametrize(
    ("package", "floor"),
    [("django", (5, 2, 19)), ("django-unfold", (0, 88, 0)), ("pillow", (13, 0, 0))],
)
def test_no_package_is_older_than_its_last_known_hole(package: str, floor: tuple[int, ...]) -> None:
    assert tuple(int(part) for part in version(package).split(".")[:3]) >= floor


@pytest.mark.parametrize("name", INPUTS)
def test_every_direct_requirement_is_pinned_and_hashed(name: str) -> None:
    compiled = (REQUIREMENTS / name).with_suffix(".txt").read_text()
    blocks = dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)(?=[^\n]*\\\n    --hash=sha256:)", compiled, re.MULTILINE))
    assert len(blocks) == len(re.findall(r"^[a-z0-9]\S*==", compiled, re.MULTILINE))
    for line in directs(name):
        package, operator, wanted = re.fullmatch(r"([A-Za-z0-9-]+)(?:\[.*?\])?(==|~=)(\S+)", line).groups()  # type: ignore[union-attr]
        pinned = blocks[package.lower()]
        assert pinned == wanted if operator == "==" else pinned.startswith(wanted.rpartition(".")[0] + ".")


def test_all_environments_have_the_same_version_of_a_package() -> None:
    pins: dict[str, set[str]] = {}
    for name in INPUTS:
        compiled = (REQUIREMENTS / name).with_suffix(".txt").read_text()
        for package, pinned in re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", compiled, re.MULTILINE):
            pins.setdefault(package, set()).add(pinned)
    assert {package: found for package, found in pins.items() if len(found) > 1} == {}


def test_the_package_that_overwrites_urllib3_is_never_pulled_in() -> None:
    for path in REQUIREMENTS.glob("*.txt"):
        assert not re.search(r"^(niquests|urllib3-future)==", path.read_text(), re.MULTILINE), path.name


def test_the_package_declares_what_is_pinned() -> None:
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    assert names(declared) - {"agentstore-runner"} == names(directs("base.in"))


def test_the_runner_declares_what_is_pinned() -> None:
    declared = tomllib.loads((REPOSITORY / "runner" / "pyproject.toml").read_text())["project"]["dependencies"]
    assert names(declared) == names(directs("runner.in"))


def test_the_committed_files_are_free_of_hosts_and_local_paths() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = REPOSITORY / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            found += committed_files.findings(name, content.decode(errors="replace"))
    assert found == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package-lock.json", '"resol|ved": "x"'),
        ("package-lock.json", "https://regi|stry.npm|js.org/jedison"),
        ("requirements.txt", "--index|-url somewhere"),
        ("requirements.txt", "    --extra-index|-url=somewhere"),
        ("a.txt", "https://files.python|hosted.org/x"),
        ("uv.lock", ""),
        ("a.py", 'open("/ro|ot/x")'),
        ("a.py", "/ho|me/alice/agentstore"),
        ("a.md", "/Us|ers/alice"),
        ("a.txt", "file:/|//opt/simple"),
    ],
)
def test_the_scan_of_committed_files_finds_what_it_is_for(name: str, text: str) -> None:
    # Written with bars, so that this file passes the scan itself.
    (finding, *_) = committed_files.findings(name, "first line\n" + text.replace("|", ""))
    assert finding.startswith(name)


@pytest.mark.parametrize("text", ["/home/runner/work", "https://example.com/root/x", "~/work/x", "file:///etc/passwd"])
def test_the_scan_leaves_ordinary_text_alone(text: str) -> None:
    assert list(committed_files.findings("a.md", text)) == []


def test_the_vendored_front_end_files_are_built_and_never_committed() -> None:
    vendor = REPOSITORY / "static" / "vendor"
    for name in ("jedison.umd.js", "unfold/js/alpine/alpine.js"):
        text = (vendor / name).read_text()
        assert len(text) > 10_000
        assert "sourceMappingURL=" not in text  # manifest storage looks for the file and fails
    assert len(list(vendor.rglob("*LICENSE*"))) == 3
    tracked = subprocess.run(["git", "ls-files", "static/vendor"], cwd=REPOSITORY, check=True, capture_output=True)
    assert tracked.stdout == b""


def test_the_modules_of_the_composition_root_stay_readable() -> None:
    long = {
        str(path.relative_to(REPOSITORY)): lines
        for folder in ("agentstore", "jobs", "artifacts", "checks", "runner/src")
        for path in Path(REPOSITORY / folder).rglob("*.py")
        if "migrations" not in path.parts and (lines := len(path.read_text().splitlines())) > 420
    }
    assert long == {}
