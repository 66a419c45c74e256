"""What the commands of operators share: who acts, one JSON line on request, and refusals as one sentence each."""

import json
import os
import pwd
import re
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pghistory
from agentstore_runner.contract.problem import Problem
from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import InterfaceError, OperationalError, ProgrammingError

from jobs.engine.errors import EngineRefusal
from jobs.services.documents import UNSTORABLE
from jobs.services.errors import AlreadyRetried, Duplicate, Invalid, Refusal

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
YEARS = range(2000, 3000)  # PostgreSQL holds years that Python cannot read back
UNDEFINED_TABLE = "42P01"
MAX_TEXT = 4_000  # characters of any argument; a path has at most 4,096 bytes, and services have limits of their own
MAX_MESSAGE = 400


class _Formatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Django's order of options, and examples that keep their lines."""


class OperatorCommand(BaseCommand):
    """A command that makes one call of a service; `act` returns what `--json` prints and what is said otherwise."""

    example: ClassVar[str]
    requires_system_checks = ()  # they would import every page of the admin first

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser with this command's example under its options."""
        epilog = f"example:\n  {self.example}"
        parser = super().create_parser(prog_name, subcommand, formatter_class=_Formatter, epilog=epilog, **kwargs)
        refuse = parser.error

        def in_short(message: str) -> None:
            half = MAX_MESSAGE // 2
            refuse(message if len(message) <= MAX_MESSAGE else f"{message[:half]} … {message[-half:]}")

        parser.error = in_short  # type: ignore[method-assign]  # argparse quotes whatever was typed, at any length
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options that every such command has."""
        parser.add_argument("--by", default=f"command:{_account()}", help="who acts, for the audit trail")
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def act(self, **options: Any) -> tuple[dict[str, Any], str]:
        """Do it; return the fields of the JSON line, and the sentence for people."""
        raise NotImplementedError

    def handle(self, *_: str, **options: Any) -> None:
        """Act, and say what came of it. Raises CommandError with one sentence for each reason."""
        texts = [(name, text) for name, value in options.items() for text in _texts(value)]
        if unstorable := [name for name, text in texts if UNSTORABLE.search(text)]:
            raise CommandError(f"{unstorable[0]}: The text is not UTF-8 or holds a NUL character.")
        if too_long := [name for name, text in texts if len(text) > MAX_TEXT]:
            raise CommandError(f"{too_long[0]}: At most {MAX_TEXT:,} characters.")
        if not options["by"].strip():
            raise CommandError("by: Say who acts.")
        try:
            with pghistory.context(actor=options["by"]):
                fields, sentence = self.act(**options)
        except (Refusal, EngineRefusal) as refusal:
            raise CommandError(_sentences(refusal)) from None
        except (OperationalError, InterfaceError) as error:
            raise CommandError(f"The database does not answer: {_first_line(error)}") from None
        except ProgrammingError as error:
            if getattr(error.__cause__, "sqlstate", None) != UNDEFINED_TABLE:
                raise
            raise CommandError("The database lacks a table: run manage.py migrate first.") from None
        self.stdout.write(json.dumps(fields, default=str) if options["json"] else sentence)


def duration(text: str) -> timedelta:
    """Return the time that a text such as 90d, 12h or 30m means."""
    match = re.fullmatch(r"([1-9][0-9]{0,3})([smhdw])", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no duration: use a number and s, m, h, d or w, such as 90d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def whole_number(text: str) -> int:
    """Return the number that plain digits write; int() would take others, underscores among them."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def moment(text: str) -> datetime:
    """Return an ISO 8601 time; it must say its zone, since the server's and the operator's may differ."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: use ISO 8601, such as 2030-01-31T08:00Z") from None
    if found.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} names no zone: add Z for UTC, or an offset such as +02:00")
    if found.year not in YEARS:
        raise ArgumentTypeError(f"{text!r} lies outside the years {YEARS[0]} to {YEARS[-1]}")
    return found


def label(text: str) -> tuple[str, str]:
    """Return key and value of a text such as branch=main."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is no label: use key=value")
    return key, value


def _account() -> str:
    # Not the environment: LOGNAME can say anything.
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _texts(value: object) -> Iterable[str]:
    match value:
        case str():
            yield value
        case list() | tuple():
            for part in value:
                yield from _texts(part)


def _sentences(refusal: Refusal | EngineRefusal) -> str:
    match refusal:
        case Invalid(problems=problems) if problems:
            return "\n".join(_named(problem) for problem in problems)
        case Duplicate(job_id=other) | AlreadyRetried(row_id=other) if other:
            return f"{refusal} It is {other}."
    return str(refusal)


def _named(problem: Problem) -> str:
    place = problem.pointer.removeprefix("/")
    return f"{place}: {problem.message}" if place else problem.message


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
