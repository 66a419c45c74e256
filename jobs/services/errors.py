"""Refusals of the services. The docstring is the message; doors map each class to their own answer."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from agentstore_runner.contract.problem import Problem


class Refusal(Exception):
    """The request was refused."""

    def __init__(self) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))


class Invalid(Refusal):
    """The request does not hold what it must; `problems` name each place and reason."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__()
        self.problems = tuple(problems)


class Duplicate(Refusal):
    """A live job holds this dedupe key already."""

    def __init__(self, job_id: UUID | None) -> None:
        super().__init__()
        self.job_id = job_id


class AlreadyEnded(Refusal):
    """The job has ended already; nothing was changed."""


class AlreadyRetried(Refusal):
    """The job was retried already; nothing was changed."""

    def __init__(self, row_id: UUID | None) -> None:
        super().__init__()
        self.row_id = row_id


class RunActive(Refusal):
    """A run of this backup job is still open; nothing was launched."""

    def __init__(self, run_id: UUID | None) -> None:
        super().__init__()
        self.run_id = run_id


class AlreadyHeld(Refusal):
    """The job is under a legal hold already."""


class NotHeld(Refusal):
    """The job is under no legal hold."""


class NotFound(Refusal):
    """There is no such object."""


class NoResults(Refusal):
    """The job has no results that this form can show."""


class Unauthenticated(Refusal):
    """The bearer token is missing, malformed, unknown, expired or revoked."""


class EnrolmentRefused(Refusal):
    """The enrolment code is unknown, expired, used up or revoked."""

    def __init__(self, reason: str, code_id: UUID | None = None) -> None:
        super().__init__()
        self.reason, self.code_id = reason, code_id  # for the audit trail; whoever asks is not told


class NameTaken(Refusal):
    """Another agent has this name already; choose another one, or use a code that is bound to that agent."""


class EnrolmentMismatch(Refusal):
    """This enrolment id was used with another name."""


class TokenRefused(Refusal):
    """The token could not be verified."""

    def __init__(self, *, advice: str, reference: UUID) -> None:
        super().__init__()
        self.args = (f"{advice or self.args[0]} Reference: {reference}",)
        self.reference = reference


class KeysUnavailable(Refusal):
    """The keys of the token's issuer cannot be read now; ask again."""


class AgentNotActive(Refusal):
    """The agent takes no new work now."""

    def __init__(self, state: str, note: str, until: datetime | None) -> None:
        super().__init__()
        self.state, self.note, self.until = state, note, until


class RunnerTooOld(Refusal):
    """This runner is too old for the server; update it. Work that it holds may finish."""
