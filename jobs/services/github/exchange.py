"""The exchange: a token of a workflow run for a short-lived bearer of the one agent that it may act as."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.models import Agent, AgentToken, GithubSpentToken, GithubTrust
from jobs.services import identities
from jobs.services.database_clock import database_now
from jobs.services.errors import TokenRefused
from jobs.services.identities import Issued

from .issuers import Issuer, issuer
from .keys import Keys
from .tokens import LEEWAY_SECONDS, Claims, Refused, verify
from .trust import NARROWING, Judgement, Rule, choose, judge

LIFETIME = timedelta(minutes=15)
KEPT = timedelta(days=1)  # so long the bearer of an ended run is still listed

_keys = Keys()


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What an exchange would have said: the claims of a genuine token, each rule's judgement, and who it acts as."""

    claims: Claims | None
    judgements: Sequence[Judgement]
    agent: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """How many used tokens of GitHub, and how many bearers of ended runs, were deleted."""

    tokens: int
    bearers: int


@transaction.atomic
def exchange(token: str) -> Issued:
    """Trade a token of GitHub, once, for a bearer that lives LIFETIME and is bound to its run.

    Raises Refused, which `note_refusal` writes down, or KeysUnavailable.
    """
    claims = _verified(token)
    rule = choose(judge(_rules(claims), claims), claims)
    agent = _agent_of(rule, claims)
    expiry = datetime.fromtimestamp(claims.expires_at + LEEWAY_SECONDS, UTC)
    spent = GithubSpentToken(issuer=claims.issuer.url, jti=claims.jti, expires_at=expiry)
    if not _is_first(spent):
        advice = "It was used already: ask GitHub for a fresh one."
        raise Refused("It was used already.", advice=advice, claim="jti", shown=claims.shown, rule=rule.id)
    GithubTrust.objects.filter(pk=rule.id).update(repository=claims.repository, last_used_at=Now())
    return identities.issue_token(
        agent_id=agent.pk, by=f"github:{claims.repository}"[: identities.MAX_TEXT], note="GitHub Actions",
        expires_at=database_now() + LIFETIME, run_ref=claims.run_ref,
    )  # fmt: skip


def note_refusal(refusal: Refused) -> TokenRefused:
    """Write the reason into the audit trail; what may be told has a reference, by which the trail finds it."""
    reference = uuid4()
    details = {"claim": refusal.claim, "rule": refusal.rule and str(refusal.rule), "token": refusal.shown}
    subject = GithubTrust(pk=reference)
    audit.record(audit.Tag.GITHUB_REFUSED, subject, actor="github", reason=refusal.reason, details=details)
    return TokenRefused(advice=refusal.advice, reference=reference)


def explain(token: str) -> Explained:
    """What an exchange of this token would come to; it uses the token up for nobody. Raises KeysUnavailable."""
    claims: Claims | None = None
    judgements: Sequence[Judgement] = ()
    agent = reason = ""
    try:
        claims = _verified(token)
        judgements = judge(_rules(claims), claims)
        agent = _agent_of(choose(list(judgements), claims), claims).principal_key
        if GithubSpentToken.objects.filter(issuer=claims.issuer.url, jti=claims.jti).exists():
            reason = "It was used already, and is good only once."
    except Refused as refusal:
        reason = refusal.reason
    return Explained(claims=claims, judgements=judgements, agent=agent, reason=reason)


def issuers() -> Sequence[Issuer]:
    """Whose tokens this installation looks at."""
    return [issuer(url) for url in settings.GITHUB_ISSUERS]


def forget_spent() -> Forgotten:
    """Delete what a replay needs no more, and bearers of runs that ended long ago."""
    tokens, _ = GithubSpentToken.objects.filter(expires_at__lt=Now()).delete()
    bearers, _ = AgentToken.objects.filter(run_ref__isnull=False, expires_at__lt=Now() - KEPT).delete()
    return Forgotten(tokens=tokens, bearers=bearers)


def _is_first(spent: GithubSpentToken) -> bool:
    """Note the use of a token; False if it was noted before. Of two at once the second waits for the first."""
    try:
        with transaction.atomic():
            spent.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def _verified(token: str) -> Claims:
    return verify(token, issuers=issuers(), audience=settings.GITHUB_AUDIENCE, keys=_keys)


def _rules(claims: Claims) -> Sequence[Rule]:
    """The enabled rules of the repository, so that those of another owner or issuer can be told why not."""
    found = GithubTrust.objects.filter(enabled=True, repository_id=int(claims.repository_id))
    return [
        Rule(
            id=row.pk, agent=row.agent_id, issuer=row.issuer, repository_id=str(row.repository_id),
            repository_owner_id=str(row.repository_owner_id), **{name: getattr(row, name) for name in NARROWING},
        )
        for row in found
    ]  # fmt: skip


def _agent_of(rule: Rule, claims: Claims) -> Agent:
    agent = Agent.objects.get(pk=rule.agent)
    if agent.state == Agent.State.DISABLED:
        advice = "The agent of this rule is disabled."
        reason = f"The agent {agent.principal_key} is disabled."
        raise Refused(reason, advice=advice, claim="agent", shown=claims.shown, rule=rule.id)
    return agent
