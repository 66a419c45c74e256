"""Agents and their tokens: who may claim work, and with which bearer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.models import Agent, AgentToken

from . import token_format
from .database_clock import database_now
from .documents import UNSTORABLE
from .errors import Invalid, NotFound

MAX_KEY, MAX_TEXT = 200, 500


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A fresh token. `bearer` is shown once and is in no repr."""

    token_id: UUID
    agent: str
    prefix: str
    expires_at: datetime | None
    run_ref: str | None
    bearer: str = field(repr=False)


@transaction.atomic
def create_agent(
    *,
    key: str,
    title: str = "",
    presence: str = Agent.Presence.ON_DEMAND,
    labels: Mapping[str, Any] | None = None,
    by: str,
) -> Agent:
    """Register an agent; one that only plain SQL had named becomes registered. Raises Invalid."""
    if not key or wrong_in_key(key):
        raise Invalid([Problem("/key", f"1 to {MAX_KEY} characters without white space or control characters.")])
    if UNSTORABLE.search(key + title) or len(title) > MAX_TEXT:
        raise Invalid([Problem("/title", f"At most {MAX_TEXT} characters, without NUL or half surrogate pairs.")])
    values = {"title": title, "presence": presence, "labels": labels or {}, "registered_at": Now()}
    try:
        with transaction.atomic():
            agent = Agent.objects.create(principal_key=key, **values)
    except IntegrityError:
        if not Agent.objects.filter(principal_key=key, registered_at=None).update(**values):
            raise Invalid([Problem("/key", "There is an agent of that key already.")]) from None
        agent = Agent.objects.get(principal_key=key)
    audit.record(audit.Tag.AGENT_STATE, agent, actor=by, details={"state": "registered"})
    return agent


def wrong_in_key(text: str) -> bool:
    """Whether a key or the beginning of one is too long, or has white space or control characters."""
    return len(text) > MAX_KEY or text != text.strip() or any(ord(c) < 33 for c in text)


@transaction.atomic
def set_state(*, agent_id: UUID, state: str, note: str = "", until: datetime | None = None, by: str) -> None:
    """Let an agent work, pause, drain or disable it. `until` ends a pause by itself. Raises Invalid or NotFound."""
    problems = []
    if state not in Agent.State.values:
        problems.append(Problem("/state", f"One of {', '.join(Agent.State.values)}."))
    if state != Agent.State.ACTIVE and not note.strip():
        problems.append(Problem("/note", "Say why; the agent's owner reads it."))
    if len(note) > MAX_TEXT or UNSTORABLE.search(note):
        problems.append(Problem("/note", f"At most {MAX_TEXT} characters, without NUL or half surrogate pairs."))
    if until and (state == Agent.State.ACTIVE or until <= database_now()):
        problems.append(Problem("/until", "Must lie ahead, and only a pause has an end."))
    if problems:
        raise Invalid(problems)
    if not Agent.objects.filter(pk=agent_id).update(state=state, state_note=note, state_until=until):
        raise NotFound
    details = {"state": state, "until": until.isoformat() if until else None}
    audit.record(audit.Tag.AGENT_STATE, Agent(pk=agent_id), actor=by, reason=note, details=details)


@transaction.atomic
def issue_token(
    *, agent_id: UUID, by: str, note: str = "", expires_at: datetime | None = None, run_ref: str | None = None
) -> Issued:
    """Make a bearer for an agent; others of the agent stay valid, so that it can be rotated without a gap.

    What is claimed with it is done by `run_ref`, the address of a workflow run, whatever the claim says. Issuing
    registers an agent that only plain SQL had named. Raises Invalid or NotFound.
    """
    agent = Agent.objects.filter(pk=agent_id).first()
    if agent is None:
        raise NotFound
    problems = []
    if expires_at and expires_at <= database_now():
        problems.append(Problem("/expires_at", "Must lie ahead."))
    if len(note) > MAX_TEXT or UNSTORABLE.search(note):
        problems.append(Problem("/note", f"At most {MAX_TEXT} characters, without NUL or half surrogate pairs."))
    if problems:
        raise Invalid(problems)
    Agent.objects.filter(pk=agent_id, registered_at=None).update(registered_at=Now())
    bearer = token_format.mint()
    token = AgentToken.objects.create(
        agent=agent, digest=token_format.digest(bearer), prefix=bearer[: token_format.SHOWN], note=note,
        expires_at=expires_at, created_by=by, run_ref=run_ref,
    )  # fmt: skip
    audit.record(audit.Tag.TOKEN_ISSUED, agent, actor=by, reason=note, details={"prefix": token.prefix})
    return Issued(
        token_id=token.pk, agent=agent.principal_key, prefix=token.prefix, expires_at=expires_at, run_ref=run_ref,
        bearer=bearer,
    )  # fmt: skip


@transaction.atomic
def revoke_token(*, token_id: UUID, by: str, reason: str = "") -> bool:
    """End a token at once; False if it was revoked before. Raises NotFound."""
    token = AgentToken.objects.select_related("agent").filter(pk=token_id).first()
    if token is None:
        raise NotFound
    if not AgentToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=Now(), revoked_by=by):
        return False
    audit.record(audit.Tag.TOKEN_REVOKED, token.agent, actor=by, reason=reason, details={"prefix": token.prefix})
    return True
