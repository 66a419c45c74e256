"""One finding about a document."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Where (JSON pointer, RFC 6901) and what (one plain sentence) is wrong."""

    pointer: str
    message: str


def pointer(*parts: str | int) -> str:
    """Build an RFC 6901 pointer from unescaped parts."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
