"""HTTP through faults: requests that are refused, cut or come late, and replies that are lost after the commit."""

import json
import random
import socket
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.outages.history import Call

PATIENCE = 30.0


class Lost(Exception):
    """No answer came; what the server did is unknown."""


class Wire:
    """One runner's way to the server; `record` gets every answer, also those that the runner never saw."""

    def __init__(self, port: int, bearer: str, rng: random.Random, record: Callable[[Call], None]) -> None:
        self._port, self._bearer, self._rng, self._record = port, bearer, rng, record
        self.faults = Counter[str]()
        self.is_faulty = True
        self._late: list[tuple[str, str, str, dict[str, Any]]] = []

    def send(self, method: str, path: str, what: str, row_id: str, body: dict[str, Any]) -> Call:
        """The answer; raises Lost."""
        dice = self._rng.random() if self.is_faulty else 1.0
        if dice < 0.03:
            return self._fault("refused")
        if dice < 0.05:
            self._cut(method, path, body)
            return self._fault("cut")
        if dice < 0.07:
            self._late.append((method, path, what, {"row_id": row_id, **body}))
            return self._fault("late")
        call = self._exchange(method, path, what, row_id, body, told=dice >= 0.15)
        if not call.told:
            return self._fault("reply lost")
        return call

    def deliver_late(self) -> None:
        """Bring the requests that were under way for long; nobody waits for their answers any more."""
        while self._late:
            method, path, what, body = self._late.pop(self._rng.randrange(len(self._late)))
            row_id = body.pop("row_id")
            try:
                self._exchange(method, path, what, row_id, body, told=False)
            except Lost:
                return

    def _fault(self, name: str) -> Any:
        self.faults[name] += 1
        raise Lost(name)

    def _exchange(self, method: str, path: str, what: str, row_id: str, body: Any, *, told: bool) -> Call:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request(method, f"/api/v1/{path}", json.dumps(body), self._headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as error:
            self.faults["broken"] += 1
            raise Lost(repr(error)) from None
        finally:
            connection.close()
        kind = answer.getheader("Content-Type") or ""
        found = json.loads(text) if text and "json" in kind else {}
        call = Call(what, body["claim_id"], row_id, body, answer.status, found, told, kind)
        self._record(call)
        return call

    def _cut(self, method: str, path: str, body: Any) -> None:
        text = json.dumps(body).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        words = f"{method} /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}Content-Length: {len(text)}\r\n\r\n"
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE) as line:
                line.sendall(words.encode() + text[: len(text) // 2])
        except OSError:
            self.faults["broken"] += 1

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._bearer}", "Content-Type": "application/json"}
