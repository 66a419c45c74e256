"""What the engine's calls take and give: the holder of a row, and small frozen answers."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from .leased import Leased

Row = TypeVar("Row", bound=Leased)


class Holder(NamedTuple):
    """Who writes: the row, the fencing token, and the value of the lifecycle's agent column."""

    row_id: UUID
    claim_id: UUID
    agent: object


class Cancel(StrEnum):
    """What a cancel did: closed the row, asked its holder to stop, or nothing, because that was done before."""

    CLOSED = "closed"
    ASKED = "asked"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Leasing(Generic[Row]):
    """A claimed row; `is_new` is False when the same request had its answer before."""

    row: Row
    is_new: bool
    read_at: datetime  # by the database's clock
    max_run_seconds: int | None  # of its kind, where that is registered


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """What a heartbeat reads back, by the database's clock."""

    server_time: datetime
    lease_expires_at: datetime
    lease_seconds: int
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_reason: str | None
