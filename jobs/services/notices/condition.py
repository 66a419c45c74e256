"""Something that is wrong without a job that ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.models import Event


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Something that is wrong at this moment; `key` names it among those of its event."""

    event: Event
    key: str
    agent: str  # empty where it is about none
    title: str
    detail: str
    path: str
    is_certain: bool = True  # False: not told yet, and not taken back either
    kind: str = ""
    labels: Mapping[str, Any] | None = None  # None: it is about no kind of work
