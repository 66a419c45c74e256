"""Names of artifacts: text for people, never a path and never part of a storage key."""

import re
import unicodedata

from agentstore_runner.contract.problem import Problem
from django.utils.http import content_disposition_header

MAX_NAME = 255
# What cannot be stored or breaks a line or a header: control characters, half surrogate pairs, separators of lines.
_UNFIT = ("Cc", "Cs", "Zl", "Zp")
_RESERVED = re.compile(r'[\\/:*?"<>|]')  # refused or special in a file name on some system that people download to


def name_problems(name: str) -> list[Problem]:
    """Why a name cannot be an artifact's, if so."""
    found = []
    if not name.strip() or name in (".", ".."):
        found.append("Must name the file.")
    if len(name) > MAX_NAME:
        found.append(f"At most {MAX_NAME} characters.")
    if any(unicodedata.category(character) in _UNFIT for character in name):
        found.append("Must hold no control characters and no line separators.")
    if "/" in name or "\\" in name:
        found.append("Must hold no / and no \\: a name is no path.")
    return [Problem("/name", reason) for reason in found]


def safe_name(name: str) -> str:
    """A name for a file on any system, of any artifact's name, also one that plain SQL gave it.

    Invisible characters go, since they can turn the ending around that a person reads; reserved ones become `_`.
    """
    shown = "".join(character for character in name if unicodedata.category(character)[0] != "C")
    return _RESERVED.sub("_", " ".join(shown.split()))[-MAX_NAME:].lstrip(".") or "artifact"


def disposition(name: str, *, inline: bool) -> str:
    """The Content-Disposition header (RFC 6266) for an artifact of any name."""
    return content_disposition_header(not inline, safe_name(name)) or ""
