"""Every argument of every command against what should never be typed: one sentence that names it, and nothing written.

Commands and their arguments are found, not listed: a new one fails until it is placed in RIGHT.
"""

import argparse
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandError

from tests.commands.conftest import API_SPEC, agent
from tests.hostile.site import contents
from tests.hostile.test_hostile_authorisation import undone

__all__ = ["agent"]

NEVER = ("a\x00b", "a\udcffb", "x" * 100_000, "9" * 5_000)  # as nothing that any argument could mean
ODD = (
    "", " ", "\t", "-1", "0", "1.5", "1e999", "NaN", "Infinity", "null", "[]", "true", "9" * 30, str(2**63), "\u0663",
    "1_0",
    "10000-01-01T00:00Z", "0001-01-01T00:00+14:00", "2026-02-30T00:00Z", "2026-01-01", "\u202egnp", "a\r\nb", "\x1b[2J",
    "'; DROP TABLE agents;--", "%s%n", "{{7*7}}", "../../etc/passwd", "/", ".", "/dev/null", "javascript:alert(1)",
)  # fmt: skip
MESSAGE = 600  # characters at most: an operator reads it
JOB = "6f1c2c0e-0000-4000-8000-000000000000"

# command → the arguments of a call that is right, by destination. Whoever adds a command or an argument adds it here.
RIGHT: dict[str, dict[str, str]] = {
    "cancel": {"job": JOB, "reason": "wrong branch"},
    "create_agent": {"key": "berlin", "title": "Berlin", "presence": "resident"},
    "enqueue": {
        "agent": "ci", "kind": "uat.quick-task", "spec": str(API_SPEC), "priority": "1",
        "not_before": "2130-01-31T08:00Z", "expires_at": "2131-01-31T08:00Z", "dedupe_key": "d", "concurrency_key": "c",
        "labels": "a=b",
    },
    "enqueue_due": {},
    "issue_token": {"key": "ci", "note": "laptop", "expires_in": "90d"},
    "maintain": {"loop": "5", "probe": ""},
    "reap": {},
    "retry": {"job": JOB, "reason": "again"},
    "setup_storage": {},
    "sweep_artifacts": {"older_than": "2d"},
    "sync_kinds": {},
}  # fmt: skip
# Django's own, whose arguments are Django's.
OF_DJANGO = {"migrate"}
# What is told to the history or used elsewhere, and stands in no row after a call that had nothing to do.
UNWRITTEN = {
    (name, "by") for name in ("enqueue_due", "maintain", "reap", "setup_storage", "sweep_artifacts", "sync_kinds")
}
UNWRITTEN |= {("maintain", "probe")}
# Odd, and yet what the argument asks for; a loop would not end.
MEANT = {("maintain", "loop"): {"1.5"}}


def commands() -> Iterator[tuple[str, BaseCommand]]:
    for name, app in sorted(get_commands().items()):
        if app in ("jobs", "artifacts") and name not in OF_DJANGO:
            yield name, load_command_class(app, name)


def arguments(command: BaseCommand, name: str) -> dict[str, argparse.Action]:
    """The arguments of a command that take a value, by destination, without those of every Django command."""
    base = {action.dest for action in BaseCommand().create_parser("manage.py", name)._actions}
    parser = command.create_parser("manage.py", name)
    return {action.dest: action for action in parser._actions if action.dest not in base and action.nargs != 0}


FOUND = {name: arguments(command, name) for name, command in commands()}
PLACES = [(name, dest) for name, found in FOUND.items() for dest in found]


def words(name: str, given: dict[str, str]) -> list[str]:
    """The command line of these arguments."""
    options, places = [], []
    for dest, value in given.items():
        action = FOUND[name][dest]
        if action.option_strings:
            options.append(f"{action.option_strings[-1]}={value}")
        else:
            places.append(value)
    return [*options, "--", *places] if places else options


def test_every_command_and_argument_is_placed() -> None:
    assert {name: set(found) - {"by"} for name, found in FOUND.items()} == {n: set(r) for n, r in RIGHT.items()}
    assert all("by" in found for found in FOUND.values())


@pytest.mark.parametrize(("name", "dest"), PLACES, ids=[" ".join(place) for place in PLACES])
def test_an_odd_value_is_refused_in_one_sentence_or_kept_as_it_was_typed(
    name: str, dest: str, agent: Any, store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    needed = {one for one, action in FOUND[name].items() if action.required}
    before = contents()
    for value in {*NEVER, *ODD} - MEANT.get((name, dest), set()):
        given = {one: RIGHT[name][one] for one in needed if one in RIGHT[name]} | {dest: value}
        with undone():
            said, after = answer(name, given), contents()
        if said is not None:
            judge(said, FOUND[name][dest], dest, value)
            assert after == before, value
        else:
            assert value not in NEVER, f"{value[:20]!a} was taken"
            assert "Traceback" not in capsys.readouterr().err
            assert value == "" or (name, dest) in UNWRITTEN or holds(after, before, value), ascii(value)


def answer(name: str, given: dict[str, str]) -> str | None:
    """What the command says of a refusal, with which it ends otherwise than with 0."""
    try:
        call_command(name, *words(name, given))
    except CommandError as refusal:
        return str(refusal) if refusal.returncode else ""
    return None


def judge(said: str, action: argparse.Action, dest: str, value: str) -> None:
    names = {dest, *action.option_strings, str(action.metavar)} - {"None"}
    assert any(name in said for name in names) or "There is no such" in said, (said[:200], value[:40])
    assert len(said.splitlines()) == 1, said[:300]
    assert len(said) <= MESSAGE, (len(said), said[:100])
    assert said.isprintable(), ascii(said[:200])


def holds(after: dict[str, list[str]], before: dict[str, list[str]], value: str) -> bool:
    """Whether a new row holds the value as typed, as text or as a number."""
    written = json.dumps(value, ensure_ascii=False)
    new = [row for table, rows in after.items() for row in set(rows) - set(before[table])]
    return any(written in row or f": {value}" in row for row in new)
