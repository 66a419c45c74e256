"""Enrolment: a governor makes a code, a host trades it for a token of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from jobs import audit
from jobs.models import Agent, Enrolment, EnrolmentCode

from . import governance, identities, token_format
from .database_clock import database_now
from .documents import UNSTORABLE, storable_problems
from .errors import EnrolmentMismatch, EnrolmentRefused, Invalid, NameTaken, NotFound

MAX_USES = 1000
MAX_HOURS = 90 * 24
# So long after its first answer a host may ask again, if that answer was lost.
AGAIN_WITHIN = timedelta(minutes=10)
LOST = "Its answer was lost: the host asked again."
UNKNOWN = UUID(int=0)  # the subject of an audit line about a code that nobody made


@dataclass(frozen=True, kw_only=True)
class Made:
    """A fresh code. `code` is shown once and is in no repr."""

    code_id: UUID
    prefix: str
    uses: int
    expires_at: datetime
    code: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """A host's own agent and token; `is_new` is False when it asked again."""

    agent: Agent
    issued: identities.Issued
    is_new: bool


@transaction.atomic
def make_code(
    *,
    title: str,
    by: str,
    hours: int = 24,
    uses: int = 1,
    agent: str = "",
    name_prefix: str = "",
    agent_title: str = "",
    agent_labels: Mapping[str, Any] | None = None,
    presence: str = Agent.Presence.RESIDENT,
) -> Made:
    """Make a code that lives for so many hours: for the agent of that key, else for new ones. Raises Invalid.

    The keys of new agents begin with `name_prefix`.
    """
    labels = dict(agent_labels or {})
    problems = _text_problems("/title", title, is_needed=True) + _text_problems("/agent_title", agent_title)
    problems += storable_problems(labels, "/agent_labels")
    if len(labels) > governance.MAX_LABELS:
        problems.append(Problem("/agent_labels", f"At most {governance.MAX_LABELS} labels."))
    if not 1 <= uses <= MAX_USES:
        problems.append(Problem("/uses", f"From 1 to {MAX_USES}."))
    if not 1 <= hours <= MAX_HOURS:
        problems.append(Problem("/hours", f"From 1 to {MAX_HOURS}."))
    if presence not in Agent.Presence.values:
        problems.append(Problem("/presence", f"One of {', '.join(Agent.Presence.values)}."))
    if identities.wrong_in_key(name_prefix) or UNSTORABLE.search(name_prefix):
        problems.append(
            Problem(
                "/name_prefix", f"At most {identities.MAX_KEY} characters without white space or control characters."
            )
        )
    bound = governance.find_agent(agent) if agent else None
    if agent:
        problems += governance.agent_problems(bound)
        if name_prefix or agent_title or labels:
            problems.append(Problem("/agent", "A code for one agent makes no new ones: leave out how those are to be."))
    if problems:
        raise Invalid(problems)
    code = token_format.mint(token_format.CODE_PREFIX)
    expires_at = database_now() + timedelta(hours=hours)
    made = EnrolmentCode.objects.create(
        title=title, digest=token_format.digest(code), prefix=code[: token_format.SHOWN], agent=bound,
        name_prefix=name_prefix, agent_title=agent_title, agent_labels=labels, presence=presence, uses=uses,
        uses_left=uses, expires_at=expires_at, created_by=by,
    )  # fmt: skip
    details = {"prefix": made.prefix, "uses": uses, "agent": agent or None}
    audit.record(audit.Tag.CODE_MADE, made, actor=by, reason=title, details=details)
    return Made(code_id=made.pk, prefix=made.prefix, uses=uses, expires_at=expires_at, code=code)


@transaction.atomic
def revoke_code(*, code_id: UUID, by: str, reason: str) -> bool:
    """End a code at once; tokens that it became stay. False if it was revoked before. Raises NotFound or Invalid."""
    governance.check_reason(reason)
    code = EnrolmentCode.objects.filter(pk=code_id).first()
    if code is None:
        raise NotFound
    if not EnrolmentCode.objects.filter(pk=code_id, revoked_at=None).update(revoked_at=Now(), revoked_by=by):
        return False
    audit.record(audit.Tag.CODE_REVOKED, code, actor=by, reason=reason, details={"prefix": code.prefix})
    return True


@transaction.atomic
def enrol(*, code: str, request_id: UUID, name: str, address: str = "") -> Enrolled:
    """Trade a code for a token: of the agent that the code is bound to, else of a new one that is called `name`.

    The same `request_id` again, until its token is used and within AGAIN_WITHIN, costs no further use: it gets another
    token, and the one before is revoked. Whoever is refused spends nothing. Raises EnrolmentRefused, NameTaken,
    EnrolmentMismatch, or Invalid for the name.
    """
    found = _locked(code)
    by = f"enrolment code {found.prefix}…"
    earlier = found.enrolments.select_related("token__agent").filter(request_id=request_id).first()
    if earlier:
        return _again(found, earlier, name, by)
    if reason := unusable(found, database_now()):
        raise EnrolmentRefused(reason, found.pk)
    agent = _agent(found, name, by)
    # Under the lock it cannot fail, and the CHECK would refuse it; the condition says so in the statement as well.
    if not EnrolmentCode.objects.filter(pk=found.pk, uses_left__gt=0).update(uses_left=F("uses_left") - 1):
        raise EnrolmentRefused("used up", found.pk)
    issued = identities.issue_token(agent_id=agent.pk, by=by, note=_note(name))
    Enrolment.objects.create(code=found, request_id=request_id, name=name, address=address, token_id=issued.token_id)
    details = {"host": name, "address": address, "prefix": issued.prefix, "code": str(found.pk)}
    audit.record(audit.Tag.ENROLLED, agent, actor=by, reason=found.title, details=details)
    return Enrolled(agent=agent, issued=issued, is_new=True)


def note_refusal(refusal: EnrolmentRefused, *, name: str, address: str) -> None:
    """Keep in the audit trail which code was refused, and why."""
    subject = EnrolmentCode(pk=refusal.code_id or UNKNOWN)
    details = {"host": name, "address": address}
    who = f"{name} ({address})" if address else name
    audit.record(audit.Tag.ENROLMENT_REFUSED, subject, actor=who, reason=refusal.reason, details=details)


def unusable(code: EnrolmentCode, now: datetime) -> str:
    """Why a code lets nobody in at this time; empty if it does."""
    if code.revoked_at:
        return "revoked"
    if code.expires_at <= now:
        return "expired"
    return "used up" if code.uses_left < 1 else ""


def _locked(code: str) -> EnrolmentCode:
    """The code's row, locked: whoever trades the same code waits, and sees what became of it."""
    if not token_format.well_formed(code, token_format.CODE_PREFIX):
        raise EnrolmentRefused("unknown")
    rows = EnrolmentCode.objects.select_for_update(no_key=True)
    found = rows.filter(digest=token_format.digest(code)).first()
    if found is None:
        raise EnrolmentRefused("unknown")
    return found


def _again(code: EnrolmentCode, earlier: Enrolment, name: str, by: str) -> Enrolled:
    token, agent = earlier.token, earlier.token.agent
    if earlier.name != name:
        raise EnrolmentMismatch
    if code.revoked_at or token.revoked_at or agent.state == Agent.State.DISABLED:
        raise EnrolmentRefused("revoked", code.pk)
    # A token that was used had arrived: a copy of the request that comes late must not take it away.
    if token.last_used_at or earlier.enrolled_at + AGAIN_WITHIN <= database_now():
        raise EnrolmentRefused("used up", code.pk)
    identities.revoke_token(token_id=token.pk, by=by, reason=LOST)
    issued = identities.issue_token(agent_id=agent.pk, by=by, note=token.note)
    Enrolment.objects.filter(pk=earlier.pk).update(token_id=issued.token_id)
    return Enrolled(agent=agent, issued=issued, is_new=False)


def _agent(code: EnrolmentCode, name: str, by: str) -> Agent:
    """Whom the host shall act as: the code's agent, in the state that people gave it, or a new one."""
    if code.agent:
        if code.agent.state == Agent.State.DISABLED:
            raise EnrolmentRefused("its agent is disabled", code.pk)
        return code.agent
    if identities.wrong_in_key(name):
        raise Invalid([Problem("/name", "An agent's name has no white space and no control characters.")])
    if not name.startswith(code.name_prefix):
        raise Invalid([Problem("/name", f"This code is for names that begin with “{code.name_prefix}”.")])
    if Agent.objects.filter(principal_key=name, registered_at__isnull=False).exists():
        raise NameTaken
    try:
        return identities.create_agent(
            key=name, title=code.agent_title, presence=code.presence, labels=code.agent_labels, by=by
        )
    except Invalid:  # somebody registered that name meanwhile
        raise NameTaken from None


def _note(name: str) -> str:
    return f"Enrolled by {name}"[: identities.MAX_TEXT]


def _text_problems(pointer: str, text: str, *, is_needed: bool = False) -> list[Problem]:
    if is_needed and not text.strip():
        return [Problem(pointer, "Say what it is for; it is kept in the audit trail.")]
    if len(text) > identities.MAX_TEXT or UNSTORABLE.search(text):
        most = identities.MAX_TEXT
        return [Problem(pointer, f"At most {most} characters, without NUL or half surrogate pairs.")]
    return []
