"""The templates of a spec: `${name}`, `${secret:name}` and `${testMarker}`; any other text stays as it is."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PLACEHOLDER = re.compile(r"\$\{(secret:)?([A-Za-z_][A-Za-z0-9_]{0,39})\}")
MARKER = "testMarker"


@dataclass(frozen=True)
class Name:
    """One placeholder: a secret, or a var, saved value or the marker."""

    name: str
    secret: bool


class UnresolvedError(LookupError):
    """A template names a value that does not exist."""


def names(text: str) -> Iterator[Name]:
    """Yield the placeholders of a text in order."""
    for hit in PLACEHOLDER.finditer(text):
        yield Name(hit[2], secret=hit[1] is not None)


def plain(value: object) -> str:
    """Return a var's value as a template prints it: JSON spelling for numbers and booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def render(text: str, values: Mapping[str, object], secrets: Mapping[str, str]) -> str:
    """Fill in every placeholder once (values are not templates); raises UnresolvedError for an unknown name."""

    def fill(hit: re.Match[str]) -> str:
        source: Mapping[str, object] = secrets if hit[1] else values
        if hit[2] not in source:
            raise UnresolvedError(hit[0])
        return plain(source[hit[2]])

    return PLACEHOLDER.sub(fill, text)


def render_document(value: Any, values: Mapping[str, object], secrets: Mapping[str, str]) -> Any:
    """Fill in the placeholders of every string value in a JSON document; keys stay as they are."""
    if isinstance(value, str):
        return render(value, values, secrets)
    if isinstance(value, list):
        return [render_document(item, values, secrets) for item in value]
    if isinstance(value, dict):
        return {key: render_document(item, values, secrets) for key, item in value.items()}
    return value
