"""The tokens of workflow runs: verified, and read strictly.

The rules are those of GitHub's OIDC reference and RFC 8725. `sub` is never read: its form is customisable, and changed.
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt

from jobs.services.documents import UNSTORABLE, Malformed, parse

from .issuers import Issuer
from .keys import Keys, UnknownKey

MAX_TOKEN = 16 * 1024  # characters
LEEWAY_SECONDS = 30
ALGORITHM = "RS256"
MAX_CLAIM = 1000
NUMBER = re.compile(r"[1-9][0-9]{0,18}")
REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
REQUIRED = ("iss", "aud", "iat", "exp", "jti")
TIMES = ("iat", "exp", "nbf")
IDS = ("repository_id", "repository_owner_id", "run_id", "run_attempt")
TEXTS = ("jti", "repository", "event_name", "workflow_ref", "job_workflow_ref", "ref", "runner_environment")
OPTIONAL_TEXTS = ("environment", "actor", "sha", "head_ref")


class Refused(Exception):
    """A token that gives nothing. `reason` is for the audit trail, `advice` for whoever sent it.

    `claim` names the claim that decided, `rule` the rule that came closest; `shown` holds what a verified token said of
    itself.
    """

    def __init__(
        self,
        reason: str,
        *,
        advice: str = "",
        claim: str = "",
        shown: Mapping[str, str] | None = None,
        rule: Any = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.advice, self.claim, self.rule = reason, advice, claim, rule
        self.shown = dict(shown or {})


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a verified token says. Ids are decimal texts, `expires_at` is in seconds since 1970."""

    issuer: Issuer
    jti: str
    expires_at: float
    repository: str
    repository_id: str
    repository_owner_id: str
    run_id: str
    run_attempt: str
    event_name: str
    workflow_ref: str
    job_workflow_ref: str
    ref: str
    runner_environment: str
    environment: str = ""
    actor: str = ""
    sha: str = ""
    head_ref: str = ""
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def run_ref(self) -> str:
        """The address of the run's attempt, built from what was verified."""
        return self.issuer.run_ref(self.repository, self.run_id, self.run_attempt)


def verify(token: str, *, issuers: Sequence[Issuer], audience: str, keys: Keys) -> Claims:
    """What a genuine token says. Raises Refused, or KeysUnavailable when its issuer cannot be asked."""
    header, claims = _peek(token)
    issuer = next((one for one in issuers if one.url == claims.get("iss")), None)
    if issuer is None:
        raise Refused("It was issued by nobody that this installation trusts.", claim="iss")
    if header.get("alg") != ALGORITHM:
        raise Refused(f"It is not signed with {ALGORITHM}.", claim="alg")
    kid = header.get("kid")
    if not isinstance(kid, str) or not kid or len(kid) > MAX_CLAIM:
        raise Refused("It names no key.", claim="kid")
    try:
        key = keys.key(issuer.keys_url, kid)
    except UnknownKey:
        raise Refused("It names a key that its issuer does not have.", claim="kid") from None
    options: Any = {"require": list(REQUIRED), "verify_nbf": True, "strict_aud": True}
    try:
        jwt.decode(
            token, key, algorithms=[ALGORITHM], audience=audience, issuer=issuer.url, leeway=LEEWAY_SECONDS,
            options=options,
        )  # fmt: skip
    except jwt.InvalidTokenError as wrong:
        raise _refusal(wrong, audience) from None
    return _read(issuer, claims)


def _peek(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a token that proves nothing yet."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN or len(parts) != 3:
        raise Refused("It is no JSON Web Token.")
    try:
        header, claims = (parse(_decoded(part)) for part in parts[:2])
    except (Malformed, ValueError):
        raise Refused("It is no JSON Web Token, or names a claim twice.") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise Refused("It is no JSON Web Token.")
    return header, claims


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError(part) from None


def _refusal(wrong: jwt.InvalidTokenError, audience: str) -> Refused:
    """Only a signature that holds earns an advice: PyJWT looks at it first."""
    match wrong:
        case jwt.MissingRequiredClaimError():
            return Refused(f"The claim {wrong.claim} is missing.", claim=str(wrong.claim))
        case jwt.ExpiredSignatureError():
            advice = "It has expired: ask GitHub for a fresh one right before the exchange."
            return Refused("It has expired.", advice=advice, claim="exp")
        case jwt.InvalidAudienceError():
            advice = f"It was made for somebody else: ask GitHub for one with the audience {audience}."
            return Refused("It was made for another audience.", advice=advice, claim="aud")
        case jwt.ImmatureSignatureError():
            return Refused("It is not valid yet.", advice="It is not valid yet: compare the clocks.", claim="nbf")
        case jwt.InvalidIssuerError():
            return Refused("It was issued by somebody else.", claim="iss")
        case jwt.InvalidSignatureError():
            return Refused("Its signature does not hold.")
    return Refused("It cannot be read as a token of GitHub.")


def _read(issuer: Issuer, claims: Mapping[str, Any]) -> Claims:
    """The claims of a token whose signature, times and audience hold; PyJWT takes times that are texts."""
    for name in TIMES:
        value = claims.get(name, 0)  # only nbf may be missing
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused(f"The claim {name} is no number.", claim=name)
    found = {name: _text(name, claims.get(name)) for name in (*IDS, *TEXTS)}
    found |= {name: _text(name, claims[name]) for name in OPTIONAL_TEXTS if claims.get(name) not in (None, "")}
    for name in IDS:
        if not NUMBER.fullmatch(found[name]):
            raise Refused(f"The claim {name} is no number in digits.", claim=name)
    if not REPOSITORY.fullmatch(found["repository"]):
        raise Refused("The claim repository is not owner/name.", claim="repository")
    return Claims(issuer=issuer, expires_at=float(claims["exp"]), shown={"iss": issuer.url} | found, **found)


def _text(name: str, value: object) -> str:
    if value is None:
        raise Refused(f"The claim {name} is missing.", claim=name)
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_CLAIM or UNSTORABLE.search(value):
        raise Refused(f"The claim {name} is no text of 1 to {MAX_CLAIM} characters.", claim=name)
    return value
