"""What the engine answers instead of doing. The docstring is the message; doors map each class to their own answer."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .leased import Leased


class EngineRefusal(Exception):
    """The engine did not do what was asked."""

    def __init__(self, row: "Leased | None" = None) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))
        self.row = row


class UnknownRow(EngineRefusal):
    """There is no such row for this agent."""


class LeaseLost(EngineRefusal):
    """This claim no longer holds the row: it was closed after its lease lapsed, or another claim holds it."""


class Ended(EngineRefusal):
    """This attempt has ended already."""


class AgentBusy(EngineRefusal):
    """The agent holds an active task already."""


class ForeignClaim(EngineRefusal):
    """This claim id belongs to another agent."""


class ClaimMismatch(EngineRefusal):
    """This claim id was used before with a different request."""


class ResultMismatch(EngineRefusal):
    """A different result is stored for this claim."""


class KeyHeld(EngineRefusal):
    """Another live row holds this dedupe key."""
