"""The HTTP side of the protocol: what is an answer, and what is only noise between the runner and the server."""

import base64
import hashlib
import json
import ssl
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import httpx2
import truststore

from agentstore_runner import __version__, clock
from agentstore_runner.bearer import Bearer
from agentstore_runner.tables import Table

PROBLEM = "application/problem+json"
# Tells this process from one of the same name on a copy of this machine.
INSTANCE = uuid.uuid4()
# A claim carries a spec, nothing that the server sends is larger.
LARGEST_ANSWER = 8 * 1024 * 1024
# "Come back later" in the words of HTTP; whatever their body says, they decide nothing.
_LATER = frozenset({408, 425, 429})
# The server speaks, but of bytes that were damaged on the way: the same request again is what helps.
_DAMAGED = frozenset({"incomplete", "digest_mismatch"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CHUNK = 256 * 1024


class AddressError(ValueError):
    """The server's address cannot be used; the text says why."""


class UnansweredError(Exception):
    """Nothing that counts as an answer came back: ask again, with the same claim id and the same body."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Answer:
    """A definite answer: a success with a body of the protocol, or a refusal with a problem `code`."""

    status: int
    code: str
    body: dict[str, Any]
    retry_after: float | None
    sent_at: float

    @property
    def ok(self) -> bool:
        """Say whether the server did what was asked."""
        return self.status < 300

    @property
    def sentence(self) -> str:
        """Return the refusal in one line, for logs and error texts."""
        detail = self.body.get("detail") or self.body.get("title") or ""
        return f"{self.status} {self.code}: {detail}" if detail else f"{self.status} {self.code}"


class Client:
    """Speaks to one server as one agent, or as none yet; safe to share between threads; follows no redirect."""

    def __init__(
        self,
        server: str,
        bearer: Bearer | None,
        *,
        name: str | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        # Not in the bodies: a claim is repeated byte for byte by the process that follows.
        instance = {} if name is None else {"Agentstore-Instance": f"{INSTANCE} {quote(name, safe='')}"}
        self._http = httpx2.Client(
            base_url=server,
            auth=None if bearer is None else _BearerAuth(bearer),
            headers={"User-Agent": f"agentstore-runner/{__version__}", "Accept": "application/json", **instance},
            follow_redirects=False,
            verify=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def enrol(self, body: bytes) -> Answer:
        """Trade an enrolment code for a token; repeating it within ten minutes replaces the token."""
        answer = self._ask("POST", "/api/v1/enrol", content=body, limit_s=30)
        return _ours(answer, "token", "principal_key", "state")

    def exchange_github(self, token: str) -> Answer:
        """Trade a token of a workflow run for a bearer; a token is good once."""
        content = json.dumps({"token": token}).encode()
        answer = _ours(
            self._ask("POST", "/api/v1/token/github", content=content, limit_s=30), "token", "agent", "expires_in"
        )
        if answer.ok and not isinstance(answer.body["expires_in"], int):
            raise UnansweredError("the life of the bearer cannot be read")
        return answer

    def me(self) -> Answer:
        """Ask for the agent's state and open claims."""
        answer = _ours(self._ask("GET", "/api/v1/agents/me", limit_s=15), "claims", "server_time")
        claims = [answer.body.get("claims"), answer.body.get("task_claims", [])]
        if answer.ok and not all(
            isinstance(found, list) and all("claim_id" in one for one in found) for found in claims
        ):
            raise UnansweredError("the agent's claims cannot be read")
        return answer

    def claim(self, table: Table, body: bytes) -> Answer:
        """Claim a row; status 204 says that nothing waits."""
        answer = self._ask("POST", f"/api/v1/{table.name}/claim", content=body, limit_s=30)
        if answer.status == 204:
            return answer
        return _ours(answer, "id", "claim_id", table.kind, table.document, "lease")

    def start(self, task_id: str, claim_id: str) -> Answer:
        """Say that the work on a task has begun; repeating it repeats the answer."""
        content = json.dumps({"claim_id": claim_id}).encode()
        return _ours(self._ask("POST", f"/api/v1/tasks/{task_id}/start", content=content, limit_s=15), "server_time")

    def heartbeat(self, table: Table, job_id: str, body: bytes, *, limit_s: float) -> Answer:
        """Say that the work goes on."""
        answer = self._ask("POST", f"/api/v1/{table.name}/{job_id}/heartbeat", content=body, limit_s=limit_s)
        return _ours(answer, "server_time", "lease_expires_at", "desired")

    def result(self, table: str, job_id: str, body: bytes, *, limit_s: float = 60) -> Answer:
        """Post the result; repeating the same bytes repeats the answer."""
        answer = _ours(
            self._ask("PUT", f"/api/v1/{table}/{job_id}/result", content=body, limit_s=limit_s), "id", "status"
        )
        if answer.ok and answer.body["id"] != job_id:
            raise UnansweredError("the acknowledgement names another job")
        return answer

    def artifact(self, job_id: str, claim_id: str, path: Path, *, name: str, content_type: str) -> Answer:
        """Stream one file; OSError if it cannot be read."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            size = file.seek(0, 2)
            file.seek(0)
            answer = _ours(
                self._ask(
                    "PUT",
                    f"/api/v1/jobs/{job_id}/artifacts",
                    params={"name": name},
                    content=_chunks(file, size),
                    headers={
                        "Agentstore-Claim-Id": claim_id,
                        "Content-Type": content_type,
                        "Content-Length": str(size),
                        "Content-Digest": f"sha-256=:{base64.b64encode(digest.digest()).decode()}:",
                    },
                    # 100 kB/s is a slow line; anything slower is a dead one.
                    limit_s=30 + size / 100_000,
                ),
                "sha256",
            )
        if answer.ok and answer.body["sha256"] != digest.hexdigest():
            raise UnansweredError("the acknowledgement names other bytes")
        return answer

    def begin_upload(self, job_id: str, body: bytes) -> Answer:
        """Ask for an address that takes a large file; a success may also be the file that is there already."""
        return _ours(self._ask("POST", f"/api/v1/jobs/{job_id}/artifacts/uploads", content=body, limit_s=30))

    def complete_upload(self, job_id: str, body: bytes) -> Answer:
        """Say that the bytes are there."""
        path = f"/api/v1/jobs/{job_id}/artifacts/uploads/complete"
        return _ours(self._ask("POST", path, content=body, limit_s=60), "sha256")

    def probe(self, path: str) -> tuple[int, str]:
        """Return status and text of a health page, for people to read; UnansweredError if nothing came back."""
        response, text, _ = self._exchange("GET", path, limit_s=10)
        return response.status_code, text.decode("utf-8", "replace")

    def _ask(self, method: str, path: str, **how: Any) -> Answer:
        response, content, sent_at = self._exchange(method, path, **how)
        status, retry_after = response.status_code, _retry_after(response)
        if status == 204:
            return Answer(204, "", {}, retry_after, sent_at)
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = _json_object(content)
        if 200 <= status < 300 and body is not None:
            return Answer(status, "", body, retry_after, sent_at)
        # A bare 403 or 404 can come from anything between here and the server and must not end a job.
        if 400 <= status < 500 and status not in _LATER and media_type == PROBLEM and body is not None:
            code = body.get("code")
            if isinstance(code, str) and code in _DAMAGED:
                raise UnansweredError(f"the request arrived damaged: {status} {code}", retry_after)
            if isinstance(code, str) and code:
                return Answer(status, code, body, retry_after, sent_at)
        raise UnansweredError(f"the server answered {status} ({media_type or 'no content type'})", retry_after)

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        limit_s: float,
        content: bytes | Iterator[bytes] | None = None,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[httpx2.Response, bytes, float]:
        """Send one request and read its answer within `limit_s` seconds; UnansweredError says what went wrong."""
        sent_at = clock.now()
        timeout = httpx2.Timeout(limit_s, connect=min(10.0, limit_s))
        headers = headers or ({} if content is None else {"Content-Type": "application/json"})
        received = bytearray()
        try:
            with self._http.stream(
                method, path, content=content, params=params, headers=headers, timeout=timeout
            ) as response:
                for chunk in response.iter_bytes():
                    received += chunk
                    if len(received) > LARGEST_ANSWER:
                        raise UnansweredError(f"the answer is larger than {LARGEST_ANSWER} bytes")
                    if clock.now() - sent_at > limit_s:
                        raise UnansweredError(f"the answer took longer than {limit_s:.0f} s")
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise UnansweredError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
        return response, bytes(received), sent_at


class _BearerAuth(httpx2.Auth):
    """Adds the token late, so that no request that is logged or shown before sending holds it."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._bearer.reveal()}"
        yield request


def checked_server(url: str, *, allow_http: bool = False) -> str:
    """Return the server's address without a trailing slash; AddressError says what is wrong with it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise AddressError(f"{url!r} is not an address like https://jobs.example.org")
    if parts.username or parts.password:
        raise AddressError("the address must hold no user name and no password: they would replace the token")
    if parts.query or parts.fragment:
        raise AddressError(f"{url!r} must end before ? and #")
    if parts.scheme == "http" and host not in _LOOPBACK and not allow_http:
        raise AddressError(
            f"{url!r} would send the token unencrypted: use https, or --allow-http inside a private network"
        )
    return url.rstrip("/")


def _ours(answer: Answer, *keys: str) -> Answer:
    """Return the answer; a success without these keys is somebody else's page and no answer."""
    missing = [key for key in keys if key not in answer.body]
    if answer.ok and missing:
        raise UnansweredError(f"the answer {answer.status} lacks {', '.join(missing)}")
    return answer


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the header in seconds; the server sends no dates, and a date of a proxy is left to the back-off."""
    value = response.headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield exactly the bytes that were announced, also when the file grows meanwhile."""
    while size > 0 and (chunk := file.read(min(_CHUNK, size))):
        size -= len(chunk)
        yield chunk
