"""How a step ends when it does not pass."""

from typing import Any

from agentstore_runner.contract.results import cut


class StepFailedError(Exception):
    """The application does not do what the step asks: `code` is one of the failure codes of the results document."""

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class NotEvaluatedError(Exception):
    """The step could not be evaluated, through no fault of the application."""


def quoted(value: object, limit: int = 120) -> str:
    """Return a value in typographic quotes, on one line and shortened."""
    return f"“{cut(' '.join(str(value).split()), limit)}”"
