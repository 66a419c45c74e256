"""The kind `backup.list`: what its spec must hold, and what its results say."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentstore_runner.contract import backup, backup_jobs
from agentstore_runner.contract.problem import Problem

from .maintenance_kind import ID, REPOSITORY

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:agentstore:spec:backup.list:1",
    "title": "List of a folder of a snapshot",
    "description": "Look up what one folder of one snapshot holds.",
    "type": "object",
    "properties": {
        "version": {"const": backup.VERSION},
        "repository": REPOSITORY,
        "snapshot": ID,
        "path": {"type": "string", "pattern": "^/", "maxLength": 4096},
    },
    "required": ["version", "repository", "snapshot", "path"],
    "additionalProperties": False,
}


def spec_problems(spec: Mapping[str, Any]) -> Iterable[Problem]:
    """What a runner would refuse of a spec that fits the schema."""
    try:
        backup_jobs.listing(spec)
    except backup.UnsupportedError as error:
        yield Problem("", str(error))


def result_problems(results: Mapping[str, Any]) -> Iterable[Problem]:
    """What keeps results from being a list of named entries."""
    entries = results.get("entries", [])
    if not isinstance(entries, list) or len(entries) > backup_jobs.MOST_ENTRIES:
        yield Problem("/entries", f"A list of at most {backup_jobs.MOST_ENTRIES:,} entries.")
    elif not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in entries):
        yield Problem("/entries", "Each entry has a name.")
