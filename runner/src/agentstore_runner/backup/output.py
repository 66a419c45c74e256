"""What a restic process has said so far. Formats differ by version, and new messages appear at any time."""

import json
import posixpath
import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

# A run may complain about every file of a disk; what is kept of it is bounded, the counts are not.
MOST_ITEMS = 100_000
_FIRST_TEXTS, _LAST_TEXTS = 200, 200
_LONGEST_LINE = 64 * 1024
_TAIL = 6
LONGEST_MESSAGE = 2000

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_STACK = re.compile(r"goroutine \d+ |\s*\S+\.go:\d+|[\w./*()-]+\.[\w.()*]+\(.*\)$|runtime\.|main\.|created by ")
_MISSING = re.compile(r"(.+) does not exist, skipping")
_IGNORED = "ignoring error for "


@dataclass
class Output:
    """Filled line by line by `take`, which accepts anything; `paths` are those of the restore's plan."""

    paths: Collection[str] = ()
    folder: str = "/"
    summary: dict[str, Any] | None = None
    status: dict[str, Any] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    exit_error: str | None = None
    first: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_TEXTS))
    signs: int = 0

    def take(self, line: str, *, complaint: bool) -> None:
        """Take one line; `complaint` for stderr. Nothing that a line can hold raises."""
        document = _document(line)
        if document is None:
            self._text(line, complaint=complaint)
            return
        match document.get("message_type"):
            case "status":
                self.signs += self._moved(document)
                self.status = document
            case "summary" if not document.get("dry_run"):
                self.summary = document
                self.signs += 1
            case "error":
                self._error(document)
            case "exit_error":
                self.exit_error = str(document.get("message") or self.exit_error or "")

    def count(self, name: str) -> int | None:
        """Return a counter of the summary: 0 if it is absent there, None without a summary."""
        return None if self.summary is None else whole(self.summary.get(name))

    @property
    def snapshot(self) -> str | None:
        """Return the snapshot id of the last summary."""
        found = None if self.summary is None else self.summary.get("snapshot_id")
        return found if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{8,64}", found) else None

    @property
    def final(self) -> str:
        """Return the last words: the last exit error, or the end of what stderr said."""
        return self.exit_error or "\n".join(list(self.last)[-_TAIL:])

    @property
    def everything(self) -> str:
        """Return all words that were kept."""
        return "\n".join((*self.first, *self.last, self.exit_error or ""))

    @property
    def message(self) -> str:
        """Return the words for people: without escape sequences, control characters and stack traces."""
        lines = self.exit_error.splitlines() if self.exit_error else list(self.last)[-_TAIL:]
        kept = [line for line in (clean(line).strip() for line in lines) if line and not _STACK.match(line)]
        return "\n".join(kept if self.exit_error else kept[-3:])[:LONGEST_MESSAGE]

    def _moved(self, document: dict[str, Any]) -> int:
        """Say whether a status shows progress: restic repeats the same numbers while it hangs."""
        names = ("bytes_done", "files_done", "bytes_restored", "files_restored", "total_files", "total_bytes")
        return int(any(document.get(name) != self.status.get(name) for name in names))

    def _error(self, document: dict[str, Any]) -> None:
        if document.get("during") == "scan":
            return  # the archiver meets the same file again, and then it counts
        error = document.get("error")
        text = error.get("message") if isinstance(error, dict) else error
        item = document.get("item")
        self._item(item if isinstance(item, str) else str(item), text if isinstance(text, str) else "")

    def _item(self, item: str, text: str) -> None:
        path = posixpath.normpath(posixpath.join(self.folder, item))
        self.signs += 1
        if path in self.items or len(self.items) < MOST_ITEMS:
            # The first cause of an item is its own; "no such file" afterwards is only what follows from it.
            self.items[path] = self.items.get(path) or text

    def _text(self, line: str, *, complaint: bool) -> None:
        line = line[:_LONGEST_LINE]
        if not complaint or not line.strip():
            return
        if line.startswith(_IGNORED):
            self._item(*self._split(line.removeprefix(_IGNORED)))
        elif (missing := _MISSING.fullmatch(line)) is not None:
            self.missing.add(posixpath.normpath(posixpath.join(self.folder, missing[1])))
        self.last.append(line)
        if len(self.first) < _FIRST_TEXTS:
            self.first.append(line)

    def _split(self, text: str) -> tuple[str, str]:
        """Tell path and cause apart: a path may hold ": " itself, and the plan knows it."""
        ends = [match.start() for match in re.finditer(": ", text)]
        known = [end for end in ends if text[:end] in self.paths]
        end = max(known, default=min(ends, default=len(text)))
        return text[:end], text[end + 2 :]


def whole(value: Any) -> int:
    """Return a counter as a whole number from 0; anything else is 0."""
    return max(int(value), 0) if isinstance(value, int | float) and not isinstance(value, bool) and value < 2**63 else 0


def clean(text: str) -> str:
    """Return a text without escape sequences and control characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text))


def _document(line: str) -> dict[str, Any] | None:
    """Return the JSON object of a line, also behind an escape sequence; None for any other text."""
    text = _ESCAPES.sub("", line).strip() if "\x1b" in line[:8] else line.strip()
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
