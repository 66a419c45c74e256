"""What the words of restic mean: a class that decides about retries, and a code of the closed list."""

import re
from dataclasses import dataclass

from agentstore_runner.backup.output import Output


@dataclass(frozen=True)
class Cause:
    """Why something failed."""

    failure_class: str
    code: str


def _text(pattern: str, failure_class: str, code: str) -> tuple[re.Pattern[str], Cause]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), Cause(failure_class, code)


_DAMAGE = (
    r"ciphertext verification|nonce is invalid|StreamPack: |is not known; the repository could be damaged"
    r"|hash mismatch|wrong pack|pack \S+ is missing|pack \S+: not found|missing pack|does not match id"
    r"|not found in (repository|index)"
    r"|Load\(<data/[^\n]*no such file|/data/[0-9a-f]{2}/[0-9a-f]{64}: no such file"
)
_BACKEND = (
    r"connection (refused|reset|timed out|closed)|broken pipe|no such host|name resolution|no route to host"
    r"|network is (unreachable|down)|i/o timeout|timeout exceeded|deadline exceeded|handshake timeout|tls: |x509: "
    r"|unexpected eof|unexpected HTTP response \(5\d\d\)|\b5\d\d (internal server|bad gateway|service|gateway)"
)
# The order is part of the meaning: restic 0.14 asks "Is there a repository at the following location?" for a missing
# repository and for a refused connection alike.
_CODES = {
    12: Cause("configuration", "wrong_password"),
    11: Cause("locked", "repository_locked"),
    10: Cause("configuration", "repository_missing"),
}
_TEXTS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    _text(r"wrong password or no key found", "configuration", "wrong_password"),
    _text(r"already locked", "locked", "repository_locked"),
    _text(r"no space left|quota exceeded|not enough space", "resource", "no_space"),
    _text(_DAMAGE, "repository", "repository_damaged"),
    _text(_BACKEND, "transient", "backend_unreachable"),
    _text(r"unable to open config file.*no such file", "configuration", "repository_missing"),
    _text(r"an empty password is not|Resolving password failed", "configuration", "credential_missing"),
    _text(
        r"no matching ID found|no snapshot found|failed to load snapshot|path \S+: not found",
        "configuration",
        "snapshot_not_found",
    ),
    _text(r"all (target|source) directories/files do not exist", "source", "source_missing"),
    _text(r"snapshot is empty", "source", "empty_snapshot"),
    _text(r"command failed: exit", "source", "source_command_failed"),
    _text(
        r"is a directory|not a directory|directory not empty|is not empty|file exists",
        "configuration",
        "target_conflict",
    ),
    _text(r"permission denied|read-only file system|operation not permitted", "configuration", "permission_denied"),
    _text(
        r"unknown (shorthand )?(flag|command)|nothing to back ?up|failed to read patterns"
        r"|\Aopen [^\n]*: no such file or directory\Z",
        "configuration",
        "invalid_invocation",
    ),
)
_ITEM_TEXTS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    _text(r"no space left|quota exceeded", "resource", "target_no_space"),
    _text(r"unexpected content in|invalid file size for", "repository", "verify_mismatch"),
    _text(
        r"permission denied|read-only file system|operation not permitted", "configuration", "target_permission_denied"
    ),
    _text(
        r"is a directory|not a directory|directory not empty|is not empty|file exists",
        "configuration",
        "target_conflict",
    ),
    _text(_DAMAGE, "repository", "repository_damaged"),
)
_MEMORY = Cause("resource", "runner_out_of_memory")
INCOMPLETE = Cause("internal", "restore_incomplete")


def of_end(code: int, output: Output) -> Cause:
    """Explain an exit code that is no success: by the code, by the last words, then by all words."""
    if code in _CODES:
        return _CODES[code]
    for text in (output.final, output.everything):
        if (found := _first(_TEXTS, text)) is not None:
            return found
    return _MEMORY if code == 2 else Cause("internal", f"restic_exit_{code}")


def of_items(output: Output) -> Cause:
    """Explain the items of a restore that failed."""
    found = {cause for text in output.items.values() if (cause := _first(_ITEM_TEXTS, text)) is not None}
    known = next((cause for _, cause in _ITEM_TEXTS if cause in found), None)
    if known is None and re.search(_DAMAGE, output.everything, re.IGNORECASE) is not None:
        return Cause("repository", "repository_damaged")
    return known or INCOMPLETE


def damage_of(output: Output) -> Cause | None:
    """Return the damage that the skipped items of a backup show; its files are stored all the same."""
    if "/" in output.items or any("could be damaged" in text for text in output.items.values()):
        return Cause("repository", "repository_index_damaged")
    damaged = any(re.search(_DAMAGE, text, re.IGNORECASE) for text in output.items.values())
    return Cause("repository", "repository_damaged") if damaged else None


def _first(table: tuple[tuple[re.Pattern[str], Cause], ...], text: str) -> Cause | None:
    return next((cause for pattern, cause in table if pattern.search(text)), None)
