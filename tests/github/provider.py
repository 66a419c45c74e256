"""A stand-in for GitHub's OIDC provider: a key set over real HTTP, and tokens in the form of GitHub's reference."""

import base64
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "https://jobs.example.com"
REPOSITORY_ID, OWNER_ID = 74, 65
WORKFLOW = "octo/shop/.github/workflows/agentstore.yml@refs/heads/main"
REQUEST_KEY = "key-of-the-run-2f9a"  # with which a run asks for tokens
MISSING = object()


class Provider:
    """Answers /.well-known/jwks; `token` signs what is asked for."""

    def __init__(self) -> None:
        self.keys = {name: rsa.generate_private_key(65537, 2048) for name in ("first", "second", "stranger")}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.mend()

    def mend(self) -> None:
        """Serve the first key again, and forget who asked."""
        self.served, self.status, self.body, self.asked = ["first"], 200, None, 0
        self.run: dict[str, Any] = {}  # what the tokens of the run say otherwise

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def claims(self, **said: Any) -> dict[str, Any]:
        """The claims of a run that a rule would take, with some of them said otherwise; MISSING leaves one out."""
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": AUDIENCE, "sub": "repo:octo/shop:ref:refs/heads/main", "jti": str(uuid.uuid4()),
            "nbf": now - 600, "iat": now, "exp": now + 300,
            "repository": "octo/shop", "repository_id": str(REPOSITORY_ID),
            "repository_owner": "octo", "repository_owner_id": str(OWNER_ID), "repository_visibility": "private",
            "ref": "refs/heads/main", "ref_type": "branch", "sha": "a" * 40, "event_name": "workflow_dispatch",
            "workflow": "agentstore runner", "workflow_ref": WORKFLOW, "workflow_sha": "a" * 40,
            "job_workflow_ref": WORKFLOW, "job_workflow_sha": "a" * 40, "run_id": "1658821493", "run_number": "7",
            "run_attempt": "2", "runner_environment": "github-hosted", "actor": "mona", "actor_id": "12",
        }  # fmt: skip
        return {name: value for name, value in (claims | said).items() if value is not MISSING}

    def token(self, key: str = "first", *, header: dict[str, Any] | None = None, **said: Any) -> str:
        """A signed token; `header` adds to or replaces what its header says."""
        named = {"kid": key, "typ": "JWT", "x5t": key} | (header or {})
        return jwt.encode(self.claims(**said), self.keys[key], "RS256", headers=named)

    def with_twice(self, name: str, value: str) -> str:
        """A token that says a claim twice, the second time otherwise, with a signature that holds."""
        said = json.dumps(self.claims())
        return self.signed(said[:-1] + f', "{name}": {json.dumps(value)}}}')

    def signed(self, payload: str, key: str = "first") -> str:
        """A token of exactly this payload."""
        algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
        head = _base64(json.dumps({"alg": "RS256", "kid": key, "typ": "JWT"}).encode())
        text = f"{head}.{_base64(payload.encode())}"
        return f"{text}.{_base64(algorithm.sign(text.encode(), self.keys[key]))}"

    def key_set(self) -> bytes:
        """What it serves now."""
        found = []
        for name in self.served:
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.keys[name].public_key()))
            found.append(key | {"kid": name, "use": "sig", "alg": "RS256"})
        return json.dumps({"keys": found}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                if address.path == "/token":
                    body, status = self._token(parse_qs(address.query)), provider.status
                    if self.headers["Authorization"] != f"Bearer {REQUEST_KEY}":
                        status = 401
                else:
                    provider.asked += 1
                    body = provider.key_set() if provider.body is None else provider.body
                    status = provider.status if address.path == "/.well-known/jwks" else 404
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _token(self, query: dict[str, list[str]]) -> bytes:
                """What a run gets that asks for a token; the address that GitHub gives it has a query already."""
                assert query["api-version"] == ["2.0"]
                said = {"aud": query["audience"][0]} | provider.run
                return json.dumps({"count": 1, "value": provider.token(**said)}).encode()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def _base64(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
