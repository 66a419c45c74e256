"""Whether the time of a refusal tells if a name exists: refused log-ins and refused bearers, known against unknown."""

import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any
from urllib.parse import urlencode

from agentstore.supervisor import Parts
from bench.ground import Database, Web
from bench.over_http import prepared
from bench.report import Report
from jobs.services import token_format

PORT = 8490
TRIES = 200  # of each; every person is guessed once, before anybody is locked out
GOAL = "<= 1.1"


class Guesser:
    """Somebody without a right, who looks at the clock."""

    def __init__(self, web: Web) -> None:
        self._web = web
        answer, content = web.exchange("GET", "/admin/login/", None, {})
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', content.decode())
        assert answer.status == 200
        assert found
        self._token = found[1]
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def log_in(self, name: str) -> float:
        """Seconds until a wrong password of this name is refused."""
        body = urlencode({"csrfmiddlewaretoken": self._token, "username": name, "password": "guessed"})
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": self._cookie}
        return self._timed("POST", "/admin/login/", body, headers, 200)

    def call(self, bearer: str) -> float:
        """Seconds until this bearer is refused."""
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        return self._timed("GET", "/api/v1/agents/me", None, headers, 401)

    def _timed(self, method: str, path: str, body: str | None, headers: dict[str, str], status: int) -> float:
        began = time.perf_counter()
        answer, content = self._web.exchange(method, path, body, headers)
        if answer.status != status:
            raise SystemExit(f"{method} {path} was answered with {answer.status}: {content[:500]!r}")
        return time.perf_counter() - began


def beginning_like(bearer: str) -> str:
    """A well-formed bearer of nobody that begins with what is stored, and shown, of another."""
    head = bearer[: token_format.SHOWN] + token_format.mint()[token_format.SHOWN : -6]
    return head + token_format.checksum(head)


def measure(report: Report, database: Database) -> None:
    """The larger of both medians through the smaller, which is 1 where nothing can be told."""
    made, environment = prepared(database)
    database.run(
        """INSERT INTO auth_user
          (username, password, is_staff, is_active, is_superuser, first_name, last_name, email, date_joined)
        SELECT 'known-' || n, %s, true, true, false, '', '', '', now() FROM generate_series(1, %s) AS n""",
        made["password"], TRIES + 20,
    )  # fmt: skip
    parts = Parts()
    try:
        guesser = Guesser(Web(parts, PORT, environment, "agentstore.wsgi:application"))
        names = ("known-{}".format, "nobody-{}".format)
        _compare(report, "refused log-in, a name that exists and one that does not", guesser.log_in, names)

        def call(bearer: str) -> float:
            database.run("DELETE FROM refused_bearers")
            return guesser.call(bearer)

        bearers = (lambda _: beginning_like(made["bearer"]), lambda _: token_format.mint())
        _compare(report, "refused bearer, of a prefix that exists and one that does not", call, bearers)
    finally:
        parts.stop()


def _compare(report: Report, name: str, act: Callable[[str], float], sides: tuple[Callable[[Any], str], ...]) -> None:
    for turn in range(20):  # both sides are warm
        act(sides[turn % 2](TRIES + 1 + turn))
    times = [[act(side(turn)) for side in sides] for turn in range(1, TRIES + 1)]
    known, unknown = (median(side) for side in zip(*times, strict=True))
    report.figure(name, max(known / unknown, unknown / known), "ratio of times", GOAL)
