"""Refusal of passwords and tokens that were written into a spec or payload instead of being named."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agentstore_runner.contract.problem import Problem, pointer
from agentstore_runner.contract.sensitive_keys import sensitive_key
from agentstore_runner.contract.templates import PLACEHOLDER

Path = tuple[str | int, ...]
_ADVICE = "a secret must not be written here; name it and use ${secret:name}"


def literal_secrets(document: Any, *, path: Path = ()) -> list[Problem]:
    """Find fields at any depth whose name says secret and whose text is not a template, and passwords inside URLs."""
    return list(_walk(document, path))


def _walk(value: Any, path: Path) -> Iterator[Problem]:
    if isinstance(value, dict):
        label = value.get("name") or value.get("key") or value.get("header")
        pair = label if isinstance(label, str) and sensitive_key(label) else None
        for key, item in value.items():
            name = pair if pair is not None and key == "value" else key
            yield from _named(name, item, (*path, key)) if sensitive_key(name) else _walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))
    elif isinstance(value, str):
        yield from _in_address(value, path)


def _named(name: str, value: Any, path: Path) -> Iterator[Problem]:
    """Judge what stands under a sensitive name: a text, a list of texts, or a structure with names of its own."""
    if isinstance(value, str):
        if _literal(value):
            yield Problem(pointer(*path), f"“{name}”: {_ADVICE}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named(name, item, (*path, index))
    else:
        yield from _walk(value, path)


def _literal(text: str) -> bool:
    return bool(text.strip()) and PLACEHOLDER.search(text) is None


def _in_address(text: str, path: Path) -> Iterator[Problem]:
    if "?" not in text and "@" not in text:
        return
    if any(c.isspace() for c in text) or not text.startswith(("http://", "https://", "/", "?")):
        return
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return
    if password and _literal(password):
        yield Problem(pointer(*path), f"the address contains a password: {_ADVICE}")
    for name, value in parse_qsl(parts.query):
        if sensitive_key(name) and _literal(value):
            yield Problem(pointer(*path), f"the parameter “{name}”: {_ADVICE}")
