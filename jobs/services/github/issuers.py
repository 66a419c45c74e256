"""Who issues the tokens of workflow runs: GitHub itself, and the Enterprise servers that this installation names.

The addresses are those of GitHub's OIDC reference. No other module knows one.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

GITHUB_COM = "https://token.actions.githubusercontent.com"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_ENTERPRISE_PATH = "/_services/token"
_GHE_PREFIX, _GHE_SUFFIX = "token.actions.", ".ghe.com"


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """One issuer: `url` is what its tokens say, `server` where people look at runs, `keys_url` holds its keys."""

    url: str
    server: str

    @property
    def keys_url(self) -> str:
        """Where its public keys are, as a JSON Web Key Set."""
        return f"{self.url}/.well-known/jwks"

    def run_ref(self, repository: str, run_id: str, run_attempt: str) -> str:
        """The address of one attempt of a workflow run."""
        return f"{self.server}/{repository}/actions/runs/{run_id}/attempts/{run_attempt}"


def issuer(url: str) -> Issuer:
    """The issuer of an address; raises ValueError for one that is none of GitHub's three forms.

    They are github.com, `https://HOST/_services/token` (Enterprise Server) and `https://token.actions.SUB.ghe.com`. A
    loopback address may be plain HTTP: a stand-in on the same machine.
    """
    url = url.rstrip("/")
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_near = host in LOOPBACK
    if parts.scheme != "https" and not (parts.scheme == "http" and is_near):
        raise ValueError(f"{url!r} must begin with https://")
    if parts.query or parts.fragment or "@" in parts.netloc or not host:
        raise ValueError(f"{url!r} must be a plain address")
    if url == GITHUB_COM:
        return Issuer(url=url, server="https://github.com")
    if parts.path == _ENTERPRISE_PATH:
        return Issuer(url=url, server=f"{parts.scheme}://{parts.netloc}")
    if not parts.path and host.startswith(_GHE_PREFIX) and host.endswith(_GHE_SUFFIX):
        return Issuer(url=url, server=f"https://{host.removeprefix(_GHE_PREFIX)}")
    if is_near and not parts.path:
        return Issuer(url=url, server=url)
    raise ValueError(f"{url!r} is no issuer of GitHub: use {GITHUB_COM} or https://HOST{_ENTERPRISE_PATH}")
