"""Logs go to standard error, one line an event: JSON in production, readable text otherwise; tokens never appear."""

import re
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Bearers, and the signature of an address that opens evidence without a login: ours, and S3's.
TOKEN = re.compile(
    r"\b(ags_[a-z]{1,8}_)[0-9A-Za-z]{8,}|(?i:(bearer\s+))[^\s\"',;]{8,}"
    r"|(/artifacts/bytes/)[^\s\"'?]{8,}|(?i:(X-Amz-(?:Signature|Credential)=))[^\s\"'&]{8,}"
)
# Line breaks, terminal escapes and the marks that reorder or split text: in a log they forge lines.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
REFUSAL_LENGTH = 300  # characters of what Django says of a request that it refused; it quotes the request
# structlog's own keys, whose values are no text of the event.
INTERNAL = frozenset({"_record", "_from_structlog", "exc_info"})


def clean(value: Any) -> Any:
    """Return `value` with tokens cut and control characters escaped in every text in it."""
    match value:
        case str():
            hidden = TOKEN.sub(lambda match: f"{match[match.lastindex or 0]}…", value)
            return CONTROL.sub(lambda match: ascii(match[0])[1:-1], hidden)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [clean(item) for item in value]
        case bool() | int() | float() | None:
            return value
    return clean(str(value))


def _clean_event(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    return {key: value if key in INTERNAL else clean(value) for key, value in event.items()}


_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
)


def structlog_configuration() -> dict[str, Any]:
    """Return the arguments of structlog.configure: its loggers feed the handlers of the standard library."""
    return {
        "processors": [
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        "logger_factory": structlog.stdlib.LoggerFactory(),
        "wrapper_class": structlog.stdlib.BoundLogger,
        "cache_logger_on_first_use": True,
    }


def logging_configuration(*, level: str, json: bool) -> dict[str, Any]:
    """Return Django's LOGGING with one handler; `json` chooses the form of the lines."""
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False, sort_keys=True)
        if json
        else structlog.processors.KeyValueRenderer(key_order=["at", "level", "event", "logger"], repr_native_str=False)
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*_SHARED, structlog.stdlib.ExtraAdder()],
                "processors": [
                    _drop_traceback_of_a_refusal,
                    structlog.processors.format_exc_info,
                    # After the traceback became text, before anything is written: nothing gets around it.
                    _drop_request,
                    _clean_event,
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
        },
    }


def _drop_traceback_of_a_refusal(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Keep to one short line what Django refused, such as a forged host name: anybody can cause thousands of them."""
    record = event.get("_record")
    if record is not None and record.name.startswith("django.security."):
        event["level"] = "warning"
        event["event"] = str(event["event"])[:REFUSAL_LENGTH]
        event.pop("exc_info", None)
    return event


def _drop_request(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Drop the request object that Django attaches to its own records: its text says nothing more."""
    event.pop("request", None)
    return event
