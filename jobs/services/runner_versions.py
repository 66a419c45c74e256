"""Which runners may take new work."""

import re

from .errors import RunnerTooOld

OLDEST = (0,)  # raised when the protocol changes so that an older runner would do harm
NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}", re.ASCII)


def check(version: str) -> None:
    """Raise RunnerTooOld for a version below the oldest; one that is no version number says nothing and passes."""
    found = NUMBERS.match(version)
    if found and tuple(map(int, found[0].split("."))) < OLDEST:
        raise RunnerTooOld
