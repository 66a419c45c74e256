"""A workflow run of GitHub Actions as an agent: it trades tokens that GitHub signs for bearers that live minutes.

No secret is stored anywhere. GitHub gives a run with `permissions: id-token: write` an address and a key to ask for
tokens (ACTIONS_ID_TOKEN_REQUEST_URL and _TOKEN); agentstore takes one of them, once, for a bearer of a quarter of an
hour.
"""

import logging
import ssl
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2
import truststore

from agentstore_runner import __version__, clock
from agentstore_runner.bearer import Bearer, TokenError
from agentstore_runner.claiming import Exit
from agentstore_runner.client import AddressError, Client, UnansweredError, checked_server

log = logging.getLogger(__name__)

REQUEST_URL, REQUEST_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
LIMIT_S = 15.0  # for GitHub's answer
RENEW_WITHIN_S = 300.0  # of its end a bearer is replaced
RETRY_S = 15.0  # after a renewal that failed; the bearer is good for some minutes more


class ExchangeError(Exception):
    """The run has no bearer; the text says why and what to do."""


class RefusedError(ExchangeError):
    """The server gives this run no bearer."""


class UnreachableError(ExchangeError):
    """GitHub or the server gave no answer."""


EXIT_CODES: dict[type[Exception], int] = {RefusedError: Exit.REFUSED, UnreachableError: Exit.UNREACHABLE}


@dataclass(frozen=True)
class Provider:
    """Where this run asks GitHub for tokens."""

    url: str
    key: Bearer

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str]) -> "Provider":
        """Remove both from the environment, so that no child process asks; ExchangeError outside of such a run."""
        url, key = environ.pop(REQUEST_URL, ""), environ.pop(REQUEST_TOKEN, "")
        if not url or not key:
            raise ExchangeError("this is no workflow run with `permissions: id-token: write`")
        try:
            checked_server(url.partition("?")[0])
            return cls(url, Bearer(key))
        except (AddressError, TokenError) as error:
            raise ExchangeError(f"{REQUEST_URL} cannot be used: {error}") from None

    def token(self, audience: str) -> str:
        """A fresh token for `audience`; ExchangeError without one."""
        try:
            with httpx2.Client(verify=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as http:
                answer = http.get(
                    httpx2.URL(self.url).copy_add_param("audience", audience),
                    headers={
                        "Authorization": f"Bearer {self.key.reveal()}",
                        "User-Agent": f"agentstore-runner/{__version__}",
                    },
                    timeout=LIMIT_S,
                )
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise UnreachableError(f"{urlsplit(self.url).hostname} gives no token: {type(error).__name__}") from None
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise UnreachableError(f"GitHub gives no token now: status {answer.status_code}")
        value = _value(answer)
        if answer.status_code != HTTPStatus.OK or not value:
            raise ExchangeError(f"GitHub gives this run no token: status {answer.status_code}")
        return value


class RunBearer(Bearer):
    """A bearer of a run, which replaces itself before it ends; safe to share between threads.

    `tell` gets each new value before anybody else, so that it can be masked.
    """

    __slots__ = ("_client", "_ends_at", "_lock", "_provider", "_tell", "_values", "audience")

    def __init__(self, provider: Provider, client: Client, *, audience: str, tell: Callable[[str], None]) -> None:
        self._provider, self._client, self._tell, self.audience = provider, client, tell, audience
        self._lock = threading.Lock()
        self._values: list[str] = []
        self._ends_at = self._renew()

    def reveal(self) -> str:
        """Return a value that is good for some minutes; an old one if there is no new one now."""
        if clock.now() >= self._ends_at and self._lock.acquire(blocking=False):
            try:
                self._ends_at = self._renew()
            except ExchangeError as error:
                log.warning("the bearer is not renewed: %s", error)
                self._ends_at = clock.now() + RETRY_S
            finally:
                self._lock.release()
        return super().reveal()

    def known(self) -> list[str]:
        """Return every value that it ever had."""
        return list(self._values)

    def _renew(self) -> float:
        """Trade a token for a new value; returns when to do so again."""
        try:
            answer = self._client.exchange_github(self._provider.token(self.audience))
        except UnansweredError as error:
            raise UnreachableError(f"the server gives no bearer: {error}") from None
        if not answer.ok:
            raise RefusedError(f"the server refuses this run: {answer.sentence}")
        value = str(answer.body["token"])
        self._tell(value)
        super().__init__(value)
        self._values.append(value)
        return answer.sent_at + max(RETRY_S, float(answer.body["expires_in"]) - RENEW_WITHIN_S)


def _value(answer: httpx2.Response) -> str:
    try:
        body = answer.json()
    except ValueError:
        return ""
    value = body.get("value") if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""
