"""A heartbeat's two statements, their values and its answer, for the baselines."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from psycopg.types.json import Jsonb


@dataclass(frozen=True)
class Beat:
    """What the product sends to the database, word for word."""

    look_up: str
    beat: str
    agent: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The statements that the bench noted."""
        return cls(**json.loads(environment["BENCH_BEAT"]))

    def caller(self, authorization: str) -> dict[str, Any]:
        """The values of the look-up."""
        bearer = authorization.partition(" ")[2]
        return {"digest": hashlib.sha256(bearer.encode()).hexdigest(), "row_id": None}

    def values(self, row_id: object, body: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the heartbeat."""
        return {"row_id": str(row_id), "claim_id": body["claim_id"], "agent": self.agent,
                "progress": Jsonb(body["progress"])}  # fmt: skip

    def answer(self, found: Sequence[Any]) -> dict[str, Any]:
        """What a runner reads."""
        now, expires, lease = found[:3]
        return {"server_time": now.isoformat(), "lease_expires_at": expires.isoformat(), "next_in_s": lease // 3,
                "desired": "run", "cancel": None, "agent_state": "active"}  # fmt: skip
