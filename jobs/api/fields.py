"""The members of a JSON body, read strictly: nothing is coerced, and every fault is named at once."""

import re
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from agentstore_runner.contract.problem import Problem as Fault
from agentstore_runner.contract.problem import pointer

from jobs.services.documents import UNSTORABLE

from .limits import MAX_COUNT
from .problem import Problem, faults

UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MISSING = "Is required."


class Fields:
    """Reads members of one object, collects what is wrong and raises Problem (400 `invalid`) at the end of `with`.

    A member that is null counts as absent. Members that nobody asks for are no fault: both sides are upgraded apart.
    After a fault the rest is read with a stand-in, which never leaves the `with`.
    """

    def __init__(self, document: dict[str, Any], *place: str) -> None:
        self._document, self._place = document, place
        self._faults: list[Fault] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._faults and kind is None:
            raise Problem(400, "invalid", "The body does not hold what it must.", errors=faults(self._faults))

    def uuid(self, name: str) -> UUID:
        """A required UUID in its canonical text form."""
        found = self.optional_uuid(name)
        if found is None:
            self._fault(name, MISSING)
        return found or UUID(int=0)

    def optional_uuid(self, name: str) -> UUID | None:
        """A UUID in its canonical text form."""
        match self._document.get(name):
            case None:
                return None
            case str(text) if UUID_TEXT.fullmatch(text):
                return UUID(text)
        self._fault(name, "Must be a UUID such as 8c1f6a52-0c3f-4f0e-9d55-6a0d1f5f6b7a.")
        return UUID(int=0)

    def text(self, name: str, *, longest: int) -> str:
        """A required text that is not blank, of at most `longest` characters that PostgreSQL can store."""
        found = self.optional_text(name, longest=longest)
        if found is None:
            self._fault(name, MISSING)
        return found or ""

    def optional_text(self, name: str, *, longest: int) -> str | None:
        """A text that is not blank, of at most `longest` characters that PostgreSQL can store."""
        value = self._document.get(name)
        if value is not None and (wrong := _text_fault(value, longest)):
            self._fault(name, wrong)
            return ""
        return value

    def texts(self, name: str, *, longest: int, most: int) -> list[str]:
        """A required list of 1 to `most` texts."""
        found = self.optional_texts(name, longest=longest, most=most)
        if found is None:
            self._fault(name, MISSING)
        elif not found and self._document[name] == []:
            self._fault(name, "Must not be empty.")
        return found or []

    def optional_texts(self, name: str, *, longest: int, most: int) -> list[str] | None:
        """A list of at most `most` texts."""
        match self._document.get(name):
            case None:
                return None
            case list(values) if len(values) <= most:
                wrong = [(str(place), _text_fault(value, longest)) for place, value in enumerate(values)]
                for place, detail in wrong:
                    if detail:
                        self._fault(name, detail, place)
                return values
        self._fault(name, f"Must be a list of at most {most} texts.")
        return []

    def one_of(self, name: str, words: Collection[str]) -> str:
        """A required word out of `words`."""
        found = self.optional_one_of(name, words)
        if found is None:
            self._fault(name, MISSING)
        return found or ""

    def optional_one_of(self, name: str, words: Collection[str]) -> str | None:
        """A word out of `words`."""
        match self._document.get(name):
            case None:
                return None
            case str(word) if word in words:
                return word
        self._fault(name, f"Must be one of {', '.join(words)}.")
        return ""

    def any_text(self, name: str) -> str | None:
        """A text of any length and any characters: the service repairs and cuts it, since it reports finished work."""
        match self._document.get(name):
            case None:
                return None
            case str(text):
                return text
        self._fault(name, "Must be a text.")
        return None

    def inner(self, name: str) -> "Fields":
        """The members of a required object; their faults are collected here."""
        found = self.optional_inner(name)
        if found is None:
            self._fault(name, MISSING)
        return found or Fields({})

    def optional_inner(self, name: str) -> "Fields | None":
        """The members of an object; their faults are collected here."""
        before = len(self._faults)
        members = self.optional_object(name)
        if members is None:
            return None
        inner = Fields(members, *self._place, name)
        if len(self._faults) == before:
            inner._faults = self._faults
        return inner

    def optional_object(self, name: str) -> dict[str, Any] | None:
        """An object whose members the service looks at."""
        match self._document.get(name):
            case None:
                return None
            case dict(members):
                return members
        self._fault(name, "Must be an object.")
        return {}

    def matching(self, name: str, pattern: re.Pattern[str], otherwise: str) -> str:
        """A required text that a pattern describes wholly."""
        match self._document.get(name):
            case None:
                self._fault(name, MISSING)
            case str(text) if pattern.fullmatch(text):
                return text
            case _:
                self._fault(name, otherwise)
        return ""

    def optional_flag(self, name: str) -> bool:
        """True or false; false when it is absent."""
        match self._document.get(name):
            case None:
                return False
            case bool(value):
                return value
        self._fault(name, "Must be true or false.")
        return False

    def count(self, name: str) -> int:
        """A required whole number that a bigint column holds."""
        found = self.optional_count(name)
        if found is None:
            self._fault(name, MISSING)
        return found or 0

    def optional_count(self, name: str) -> int | None:
        """A whole number from 0 to 2^63 - 1; true, 5.0 and "5" are none."""
        value = self._document.get(name)
        if value is None or (type(value) is int and 0 <= value <= MAX_COUNT):
            return value
        self._fault(name, f"Must be a whole number from 0 to {MAX_COUNT}.")
        return 0

    def _fault(self, name: str, detail: str, *inner: str) -> None:
        self._faults.append(Fault(pointer(*self._place, name, *inner), detail))


def _text_fault(value: object, longest: int) -> str | None:
    if not isinstance(value, str):
        return "Must be a text."
    if not value.strip() or len(value) > longest:
        return f"Must have 1 to {longest} characters and not be blank."
    if UNSTORABLE.search(value):
        return "Must not hold a NUL character or half a surrogate pair."
    return None
