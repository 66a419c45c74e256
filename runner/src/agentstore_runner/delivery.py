"""Posting a report until the server has it for good, or has said for good that it will not take it."""

import json
import logging
import random
import tempfile
import threading
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from agentstore_runner import clock
from agentstore_runner.backoff import Backoff
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.desk import UPLOAD_PATIENCE_S
from agentstore_runner.spool import Letter, Spool
from agentstore_runner.tables import JOBS

log = logging.getLogger(__name__)

# GitLab's runner tries for as long. The report stays in the spool, and the next start tries again.
PATIENCE_S = 3600.0
# A workflow that is cancelled leaves ten seconds between its first signal and the kill.
HURRIED_S = 4.0
# The agent may not speak at all just now: a person has to act, and then the same report is welcome.
_NOT_NOW = frozenset({401, 403, 426})
# The server has read the report and cannot store it: the outcome is posted without it.
_CONTENT = frozenset({413, 422})


class Delivered(Enum):
    """What became of a report."""

    ACKNOWLEDGED = "the server has it"
    REFUSED = "the server will not take it; it is kept as a file"
    PENDING = "it waits in the spool for the next start"


class Delivery:
    """Posts the letters of one spool."""

    def __init__(self, client: Client, spool: Spool, rng: random.Random) -> None:
        self._client = client
        self._spool = spool
        self._rng = rng

    def deliver(self, letter: Letter, *, hurry: threading.Event, patience_s: float = PATIENCE_S) -> Delivered:
        """Post until acknowledged, refused or out of patience; once there is hurry, two short tries are all."""
        answer = self._until_answered(letter, hurry, patience_s)
        if answer is None:
            return Delivered.PENDING
        if answer.ok:
            self._spool.delivered(letter)
            _of(letter).info("result acknowledged: %s", _outcome(answer))
            return Delivered.ACKNOWLEDGED
        if answer.status in _NOT_NOW:
            _of(letter).error("the result waits in the spool: %s", answer.sentence)
            return Delivered.PENDING
        if answer.status in _CONTENT and not letter.reduced:
            _of(letter).error("the server cannot store the result: %s", answer.sentence)
            reduced = self._reduced(letter, answer, hurry)
            return self.deliver(reduced, hurry=hurry, patience_s=patience_s)
        self.set_aside(letter, answer)
        return Delivered.REFUSED

    def set_aside(self, letter: Letter, answer: Answer) -> None:
        """Keep a report that the server does not or would not take, and say where."""
        try:
            kept = self._spool.set_aside(letter, answer.sentence)
        except OSError as error:
            _of(letter).error("the report cannot be kept: %s", error)
        else:
            _of(letter).error("the report is kept in %s: %s", kept, answer.sentence)

    def _until_answered(self, letter: Letter, hurry: threading.Event, patience_s: float) -> Answer | None:
        backoff, until, last_tries = Backoff(self._rng), clock.now() + patience_s, 2
        while True:
            hurried = hurry.is_set()
            last_tries -= hurried
            try:
                limit_s = HURRIED_S if hurried else 60
                return self._client.result(letter.table, letter.job_id, letter.body.encode(), limit_s=limit_s)
            except UnansweredError as error:
                pause = backoff.next(error.retry_after)
                if last_tries == 0 or (not hurried and clock.now() + pause > until):
                    _of(letter).error("the result is not acknowledged and waits in the spool: %s", error)
                    return None
                _of(letter).warning("result not acknowledged, next try in %.1f s: %s", pause, error)
            # Hurry ends this pause at once; the last two tries follow each other without one.
            hurry.wait(pause)

    def _reduced(self, letter: Letter, refusal: Answer, hurry: threading.Event) -> Letter:
        """Put an outcome without content in the place of a report that cannot be stored."""
        details: dict[str, Any] = {"code": "result_refused", "problem": refusal.sentence}
        errors = refusal.body.get("errors")
        if isinstance(errors, list):
            details["errors"] = errors[:20]
        if letter.table == JOBS.name:
            details["report"] = self._attach(letter, hurry)
        # A snapshot that exists is evidence, whatever else of its report cannot be stored.
        snapshot = json.loads(letter.body).get("backup_id_in_repository")
        body = {
            **({"backup_id_in_repository": snapshot} if snapshot else {}),
            "claim_id": letter.claim_id,
            "status": "failed",
            "error": f"the server could not store the result: {refusal.sentence}",
            "failure_class": "internal",
            "details": details,
        }
        reduced = replace(letter, body=json.dumps(body), reduced=True)
        try:
            self._spool.keep(reduced)
        except OSError as error:
            _of(letter).error("the report cannot be stored before it is posted: %s", error)
        return reduced

    def _attach(self, letter: Letter, hurry: threading.Event) -> str:
        """Upload the refused report, which is redacted already, as a file; return its name or why there is none."""
        backoff, until = Backoff(self._rng), clock.now() + UPLOAD_PATIENCE_S
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
            file.write(letter.body)
            file.flush()
            while True:
                try:
                    answer = self._client.artifact(
                        letter.job_id,
                        letter.claim_id,
                        Path(file.name),
                        name="report.json",
                        content_type="application/json",
                    )
                    return "report.json" if answer.ok else f"not uploaded: {answer.sentence}"
                except UnansweredError as error:
                    pause = backoff.next(error.retry_after)
                    if clock.now() + pause > until or hurry.wait(pause):
                        return f"not uploaded: {error}"


def _of(letter: Letter) -> logging.LoggerAdapter[logging.Logger]:
    return logging.LoggerAdapter(log, {"job": letter.job_id})


def _outcome(answer: Answer) -> str:
    """Return what the server made of the result, its verdict and the retry that it planned."""
    words = [str(answer.body["status"])]
    if answer.body.get("verdict"):
        words.append(f"verdict {answer.body['verdict']}")
    if isinstance(retry := answer.body.get("retry"), dict):
        words.append(f"attempt {retry.get('id')} follows at {retry.get('not_before')}")
    return ", ".join(words)
