"""Reading a document of another program: its known members must be right, those that it adds are ignored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentstore_runner.contract.problem import Problem, pointer


class MembersError(ValueError):
    """A member is missing or wrong; `problem` says which and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.pointer or '/'}: {problem.message}")
        self.problem = problem


class Members:
    """One object of the document; each reader raises MembersError, and returns the default of an absent member."""

    def __init__(self, value: Any, *path: str | int) -> None:
        self._path = path
        if not isinstance(value, Mapping):
            raise self.error("must be an object")
        self._value = value

    def error(self, message: str, *more: str | int) -> MembersError:
        """Return the error for this object, or for a member of it."""
        return MembersError(Problem(pointer(*self._path, *more), message))

    def inner(self, name: str) -> "Members":
        """Return an object inside; an absent one is empty."""
        found = self._value.get(name)
        return Members({} if found is None else found, *self._path, name)

    def text(self, name: str, default: str | None = None, *, pattern: str = "", most: int = 4096) -> str:
        """Return a text without NUL that matches the whole pattern."""
        found = self._member(name, default)
        if not isinstance(found, str) or not found or len(found) > most or "\0" in found:
            raise self.error(f"must be a text of 1 to {most} characters", name)
        if pattern and re.fullmatch(pattern, found) is None:
            raise self.error(f"{found[:100]!r} is not of the form that is expected here", name)
        return found

    def optional_text(self, name: str, *, pattern: str = "") -> str | None:
        """Return a text, or None."""
        return None if self._value.get(name) is None else self.text(name, pattern=pattern)

    def word(self, name: str, words: Sequence[str], default: str | None = None) -> str:
        """Return one of the words."""
        found = self._member(name, default)
        if found not in words:
            raise self.error(f"must be one of {', '.join(words)}", name)
        return str(found)

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**53) -> int:
        """Return a whole number within limits."""
        found = self._member(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise self.error(f"must be a whole number from {least} to {most}", name)
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        found = self._member(name, default)
        if not isinstance(found, bool):
            raise self.error("must be true or false", name)
        return found

    def texts(self, name: str, *, least: int = 0, most: int = 100, pattern: str = "") -> tuple[str, ...]:
        """Return a list of texts that match the whole pattern; an absent one is empty."""
        found = self._value.get(name)
        found = [] if found is None else found
        if not isinstance(found, list) or not least <= len(found) <= most:
            raise self.error(f"must be a list of {least} to {most} texts", name)
        return tuple(self._item(name, index, item, pattern) for index, item in enumerate(found))

    def _item(self, name: str, index: int, item: Any, pattern: str) -> str:
        if not isinstance(item, str) or not item or len(item) > 4096 or "\0" in item:
            raise self.error("must be a text of 1 to 4096 characters", name, index)
        if pattern and re.fullmatch(pattern, item) is None:
            raise self.error(f"{item[:100]!r} is not of the form that is expected here", name, index)
        return item

    def _member(self, name: str, default: Any) -> Any:
        found = self._value.get(name)
        if found is None and default is None:
            raise self.error("is missing", name)
        return default if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)
