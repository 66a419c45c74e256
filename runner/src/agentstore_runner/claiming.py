"""Asking for work: one claim id per table until there is an answer that counts, and what each answer means."""

import json
import logging
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from agentstore_runner import __version__, clock, envelope
from agentstore_runner.backoff import Backoff, spread
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.envelope import Job
from agentstore_runner.shutdown import Shutdown
from agentstore_runner.spool import Held, Spool
from agentstore_runner.tables import JOBS, TASKS, Table

log = logging.getLogger(__name__)

POLL_S = 5.0
BLOCKED_POLL_S = 60.0
# With --once an unreachable server ends the process; the claim id stays on disk for the next one.
ONCE_PATIENCE_S = 600.0
# An id that the server knows as ended or lost is replaced; this often in a row means that something else is wrong.
DEAD_CLAIMS = 3


class Exit(IntEnum):
    """What the process tells its caller; 128 + n stands for the signal n that interrupted it."""

    OK = 0
    NOT_DONE = 1
    REFUSED = 3
    LOST = 4
    UNREACHABLE = 75


@dataclass(frozen=True)
class Order:
    """What this process was started for; `capabilities` are the requirements of task payloads that it meets.

    `engine` names the program that does tasks.
    """

    name: str
    kinds: Sequence[str]
    task_types: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    engine: str | None = None
    job_id: str | None = None
    run_ref: str | None = None
    once: bool = False
    judge_by_verdict: bool = False

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables that are asked for work, in turn."""
        wanted = ((TASKS, self.task_types), (JOBS, self.kinds))
        return tuple(table for table, kinds in wanted if kinds)


@dataclass(frozen=True)
class Idle:
    """No work this time: when to ask again, and with which code --once ends (None: it asks again as well)."""

    seconds: float
    once: Exit | None


class Claiming:
    """Asks one table after the other; `inherited` says whether the last answer was to an earlier process's request."""

    def __init__(self, order: Order, *, client: Client, spool: Spool, shutdown: Shutdown, rng: random.Random) -> None:
        self._order = order
        self._client = client
        self._spool = spool
        self._shutdown = shutdown
        self._rng = rng
        self._dead_claims = 0
        self._blocked = ""
        self.inherited = False

    def claim(self, table: Table) -> Job | Idle | Exit:
        """Ask with one claim id until there is an answer that counts."""
        held = self._spool.held(table)
        if held is None or held.job_id:
            held = self._new_claim(table)
        self.inherited = json.loads(held.request) != self._request(table, held.claim_id)
        backoff, until = Backoff(self._rng), clock.now() + ONCE_PATIENCE_S
        while True:
            try:
                return self._understand(table, held, self._client.claim(table, held.request.encode()))
            except UnansweredError as error:
                pause = backoff.next(error.retry_after)
                if self._order.once and clock.now() + pause > until:
                    log.error("the server cannot be reached: %s", error)
                    return Exit.UNREACHABLE
                log.warning("claim not answered, next try in %.1f s: %s", pause, error)
            if self._shutdown.asked.wait(pause):
                return Idle(0.0, None)

    def _request(self, table: Table, claim_id: str) -> dict[str, Any]:
        order = self._order
        request: dict[str, Any] = {"claim_id": claim_id, "runner": {"name": order.name, "version": __version__}}
        if table is TASKS:
            engine = {"engine": order.engine} if order.engine else {}
            able = {"capabilities": list(order.capabilities), **engine}
            return {**request, "task_types": list(order.task_types), **able}
        return {
            **request,
            "kinds": list(order.kinds),
            **({"job_id": order.job_id} if order.job_id else {}),
            **({"run_ref": order.run_ref} if order.run_ref else {}),
        }

    def _new_claim(self, table: Table) -> Held:
        claim_id = str(uuid.uuid4())
        held = Held(claim_id, json.dumps(self._request(table, claim_id)), table=table.name)
        self._spool.hold(held)
        return held

    def _understand(self, table: Table, held: Held, answer: Answer) -> Job | Idle | Exit:
        """Turn the answer to a claim into what to do next; UnansweredError if the body cannot be read."""
        if answer.status != 403:
            self._blocked = ""
        match answer.status, answer.code:
            case ((200 | 201), _):
                self._dead_claims = 0
                return envelope.job(answer, held.claim_id, table)
            case 204, _:
                # The id was not used up. Keeping it catches a delayed twin of this request that still claims a job.
                return self._idle(table, answer, POLL_S, Exit.OK)
            case 409, "agent_busy":
                return self._idle(table, answer, POLL_S, Exit.REFUSED)
            case 403, _:
                self._say_blocked(answer)
                return self._idle(table, answer, BLOCKED_POLL_S, Exit.REFUSED)
            case ((409 | 410), _):
                return self._replace_claim(table, answer)
            case _:
                log.error("the server refuses to hand out work: %s", answer.sentence)
                self._spool.release(table)
                return Exit.REFUSED

    def _idle(self, table: Table, answer: Answer, otherwise: float, once: Exit) -> Idle:
        """Wait as the server asks; a claim that an earlier process made for another purpose makes room for ours."""
        if self.inherited:
            self._spool.release(table)
            return Idle(0.0, None)
        return Idle(spread(otherwise if answer.retry_after is None else answer.retry_after, self._rng), once)

    def _replace_claim(self, table: Table, answer: Answer) -> Idle:
        """Drop an id that the server knows as ended, lost or somebody else's."""
        self._spool.release(table)
        self._dead_claims += 1
        log.warning("the claim is void (%s), a new one follows", answer.sentence)
        last = Exit.REFUSED if self._dead_claims >= DEAD_CLAIMS else None
        return Idle(spread(self._dead_claims - 1, self._rng), last)

    def _say_blocked(self, answer: Answer) -> None:
        """Log why the agent gets no work, once per reason."""
        note, until = answer.body.get("note"), answer.body.get("until")
        said = answer.sentence + (f" ({note})" if note else "") + (f" until {until}" if until else "")
        if said != self._blocked:
            log.warning("the agent gets no work: %s", said)
            self._blocked = said
