"""The documentation says what is true: variables, commands, targets and links are those that exist."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text()
OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text()
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def rows(page: str, heading: str = "") -> list[str]:
    """The first cells of the tables of a page, or of the one whose first column has this heading."""
    lines = page.splitlines()
    if heading:
        start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
        lines = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    return [line.split("|")[1] for line in lines if line.startswith("| `")]


def test_the_tables_list_every_variable_that_the_configuration_reads_and_no_other() -> None:
    source = (REPOSITORY / "agentstore" / "config.py").read_text()
    read = set(re.findall(r'read\.\w+\(\s*"([A-Z0-9_]+)"', source))
    named = {name for row in rows(README) + rows(OPERATIONS) for name in re.findall(r"`([A-Z0-9_]+)`", row)}

    # The supervisor sets this one for its own web processes; AWS' tools find theirs themselves.
    assert {name for name in named if not name.startswith("AWS_")} == read - {"AGENTSTORE_PROCESS"}


def test_the_operations_page_lists_every_command_and_no_other() -> None:
    named = {row.split("`")[1].split()[0] for row in rows(OPERATIONS, "command")}

    assert named == {name for name, app in get_commands().items() if app in ("jobs", "artifacts")}


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_every_link_of_a_page_leads_to_a_file(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text())

    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_every_make_target_that_a_page_names_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("program", ["psql", "pg_dump", "pg_restore"])
def test_the_programs_of_the_operations_page_come_with_the_embedded_postgresql(program: str) -> None:
    words = [sys.executable, "-m", "agentstore.embedded_postgres", "run", "--", program, "--version"]
    found = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert found.stdout.startswith(f"{program} (PostgreSQL) 18.")
