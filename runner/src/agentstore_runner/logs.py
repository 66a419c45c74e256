"""The runner's log: quiet, readable, and without secrets whatever is logged."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console
from rich.logging import RichHandler

from agentstore_runner.redaction import Redactor

Style = Literal["plain", "json", "rich"]

# Line breaks and escape sequences in a job's text must not forge lines or colours of the log.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def configure(style: Style | None, *, verbose: bool, redactor: Redactor) -> None:
    """Send the runner's log to stderr; without a style, a terminal gets rich lines and everything else plain ones."""
    console = Console(stderr=True)
    style = style or ("rich" if console.is_terminal else "plain")
    handler: logging.Handler
    if style == "rich":
        handler = RichHandler(console=console, show_path=False, markup=False, highlighter=None, log_time_format="%X")
        handler.setFormatter(_Line("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Json() if style == "json" else _Line("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(_Safe(redactor))
    logger = logging.getLogger("agentstore_runner")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


class _Safe(logging.Filter):
    """Redacts the whole line, also the text of an exception, before any handler sees it."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = _CONTROL.sub(_escaped, self._redactor.text(record.getMessage()).replace("\n", "\\n"))
        record.args = ()
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = _CONTROL.sub(_escaped, self._redactor.text(text))
            record.exc_info = None
        return True


class _Line(logging.Formatter):
    """One line for people; the job comes first, because that is what one greps for."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        job = getattr(record, "job", None)
        if job is not None:
            record.message = f"job {job}: {record.message}"
        return super().formatMessage(record)


class _Json(logging.Formatter):
    """One JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "job": getattr(record, "job", None),
            "exception": record.exc_text,
        }
        return json.dumps({name: value for name, value in line.items() if value is not None})


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
