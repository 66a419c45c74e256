"""A log line is one line, and no token is in it."""

import io
import json
import logging
import logging.config

import pytest
import structlog

from agentstore import log_lines

TOKEN = "ags_r_" + "a1B2" * 9


def written(*, as_json: bool) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    configuration = log_lines.logging_configuration(level="INFO", json=as_json)
    handler = logging.StreamHandler(stream)
    formatter = configuration["formatters"]["line"]
    handler.setFormatter(formatter["()"](**{key: value for key, value in formatter.items() if key != "()"}))
    logger = logging.getLogger("tests.log_lines")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel("INFO")
    return logger, stream


@pytest.mark.parametrize("as_json", [True, False])
def test_an_event_with_hostile_text_stays_one_line(as_json: bool) -> None:
    logger, stream = written(as_json=as_json)
    logger.warning("Not found: %s", "/a\r\n2026 ERROR forged\x1b[2J\u2028\x9b\u202e")
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert not set(text[:-1]) & set("\r\x1b\u2028\x9b\u202e")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_stays_one_line_without_its_token(as_json: bool) -> None:
    logger, stream = written(as_json=as_json)
    try:
        raise ValueError(f"refused {TOKEN}")
    except ValueError:
        logger.exception("A fault with %s", TOKEN, extra={"header": {"Authorization": f"Bearer {TOKEN}"}})
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "ValueError" in text
    assert TOKEN[6:] not in text
    assert "ags_r_…" in text


def test_a_production_line_is_json_with_level_time_and_logger() -> None:
    logger, stream = written(as_json=True)
    structlog.stdlib.get_logger("tests.log_lines").info("claimed", agent="uat", attempts=[1, None, True])
    line = json.loads(stream.getvalue())
    assert logger.name == line.pop("logger")
    assert line.pop("at").endswith("Z")
    assert line == {"event": "claimed", "level": "info", "agent": "uat", "attempts": [1, None, True]}


def test_other_bearers_are_cut_too() -> None:
    assert log_lines.clean("Authorization: bearer abc.def-ghi_jkl") == "Authorization: bearer …"
