"""What was said and what is stored, and the invariants that must hold between them whatever broke meanwhile.

Truth is the database: its rows, and the order of its history. A client's answer may be known, refused or unknown; an
answer that the fault layer kept from the client is known here all the same.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

WAITING = {"agent_jobs": "queued", "agent_tasks": "pending"}
LEASED = {"agent_jobs": ("running",), "agent_tasks": ("claimed", "running")}
ENDED = ("done", "succeeded", "partial_failure", "failed", "cancelled")


@dataclass(frozen=True)
class Call:
    """One request that was answered; `told` is False when the client never saw the answer."""

    what: str  # claim, heartbeat or result
    claim_id: str
    row_id: str  # empty for a claim
    body: dict[str, Any]
    status: int
    answer: dict[str, Any]
    told: bool = True
    content_type: str = ""


@dataclass(frozen=True)
class Row:
    """A row as it is stored after the drain."""

    table: str
    id: str
    root_id: str
    agent: str
    status: str
    claim_id: str | None
    attempt: int
    max_attempts: int
    said: Any  # what its result was to keep, value for value
    finished_at: datetime | None
    heartbeat_at: datetime | None
    ended_by: str | None


@dataclass(frozen=True)
class Event:
    """One line of the history that the database writes itself; `number` is its order."""

    table: str
    number: int
    row_id: str
    agent: str
    status: str
    claim_id: str | None


@dataclass
class History:
    """Everything that a run leaves; the lists only grow."""

    calls: list[Call] = field(default_factory=list)
    enqueued: list[str] = field(default_factory=list)  # acknowledged
    cancelled: list[str] = field(default_factory=list)  # acknowledged as final
    rows: list[Row] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def violations(self) -> list[str]:
        """Each invariant that does not hold, with the row or claim that shows it."""
        return [
            f"{name}: {what}"
            for name, check in (
                ("I0 only problems, never a 500", self._answers),
                ("I1 acknowledged work ends", self._drained),
                ("I2 one end a row", self._single_ends),
                ("I3 accepted under the live claim", self._fenced),
                ("I4 one lease, one claim; one active task", self._exclusive),
                ("I5 an acknowledged result is stored", self._results),
                ("I6 a final cancel stays", self._cancels),
                ("I7 one claim id, one row", self._idempotent),
                ("I8 attempts without gap", self._attempts),
                ("I9 the history adds up", self._audited),
            )
            for what in check()
        ]

    def _answers(self) -> Iterator[str]:
        for call in self.calls:
            is_json = call.status == 204 or "json" in call.content_type
            if call.status not in (200, 201, 204, 404, 409, 410, 503) or not is_json:
                yield f"{call.what} was answered {call.status} {call.content_type}"

    def _drained(self) -> Iterator[str]:
        stored = {row.id for row in self.rows}
        yield from (f"{row_id} is not there" for row_id in self.enqueued if row_id not in stored)
        yield from (f"{row.id} is {row.status}" for row in self.rows if row.status not in ENDED)

    def _single_ends(self) -> Iterator[str]:
        ended: dict[str, str] = {}
        for event in self.events:
            if event.row_id in ended:
                yield f"{event.row_id} was {ended[event.row_id]} and then {event.status}"
            if event.status in ENDED:
                ended[event.row_id] = event.status

    def _fenced(self) -> Iterator[str]:
        rows = {row.id: row for row in self.rows}
        for call in self._accepted("heartbeat", "result"):
            row = rows.get(call.row_id)
            if row is None or row.claim_id != call.claim_id:
                yield f"{call.what} on {call.row_id} under {call.claim_id}, held by {row and row.claim_id}"
        # A result writes both times; not the clock of an answer, since a transaction's time is that of its beginning.
        for row in self.rows:
            if row.ended_by == "runner" and row.heartbeat_at != row.finished_at:
                yield f"{row.id} ended at {row.finished_at} and was written at {row.heartbeat_at}"

    def _exclusive(self) -> Iterator[str]:
        claims: dict[str, str] = {}
        active: dict[str, str] = {}
        for event in self.events:
            if event.claim_id and claims.setdefault(event.row_id, event.claim_id) != event.claim_id:
                yield f"{event.row_id} went to {claims[event.row_id]} and to {event.claim_id}"
            if event.table != "agent_tasks":
                continue
            if event.status in LEASED[event.table]:
                if active.setdefault(event.agent, event.row_id) != event.row_id:
                    yield f"{event.agent} had {active[event.agent]} and {event.row_id}"
            elif active.get(event.agent) == event.row_id:
                del active[event.agent]

    def _results(self) -> Iterator[str]:
        rows = {row.id: row for row in self.rows}
        for call in self._accepted("result"):
            row = rows.get(call.row_id)
            said = call.body.get("results") or call.body.get("backup_id_in_repository")
            if row is None or row.status != call.answer["status"] or (said and row.said != said):
                yield f"{call.row_id} was answered {call.answer['status']} with {said}, stored is {row}"

    def _cancels(self) -> Iterator[str]:
        rows = {row.id: row for row in self.rows}
        yield from (f"{row_id} is {rows[row_id].status}" for row_id in self.cancelled
                    if rows[row_id].status != "cancelled")  # fmt: skip

    def _idempotent(self) -> Iterator[str]:
        given: dict[str, set[str]] = defaultdict(set)
        for call in self._accepted("claim"):
            given[call.claim_id].add(call.answer["id"])
        yield from (f"{claim} was given {sorted(rows)}" for claim, rows in given.items() if len(rows) > 1)

    def _attempts(self) -> Iterator[str]:
        chains: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            chains[row.root_id].append(row)
        for root, chain in chains.items():
            attempts = sorted(row.attempt for row in chain)
            if attempts != list(range(1, len(chain) + 1)) or len(chain) > max(row.max_attempts for row in chain):
                yield f"{root} has {attempts}"

    def _audited(self) -> Iterator[str]:
        last: dict[str, Event] = {}
        for event in self.events:
            before = last.get(event.row_id)
            if before is None and event.status != WAITING[event.table]:
                yield f"{event.row_id} begins as {event.status}"
            last[event.row_id] = event
        for row in self.rows:
            told = last.get(row.id)
            if told is None or (told.status, told.claim_id) != (row.status, row.claim_id):
                yield f"{row.id} is {row.status} under {row.claim_id}, its history ends with {told}"

    def _accepted(self, *what: str) -> Iterator[Call]:
        return (call for call in self.calls if call.what in what and call.status in (200, 201))
