"""A heartbeat as a bare WSGI function over psycopg: the floor, and the same statements."""

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import psycopg

from bench.beat import Beat

beat = Beat.from_environment(os.environ)
_thread = threading.local()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one heartbeat."""
    if not hasattr(_thread, "line"):
        _thread.line = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=0)
    body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    row_id = environ["PATH_INFO"].split("/")[4]
    _thread.line.execute(beat.look_up, beat.caller(environ["HTTP_AUTHORIZATION"])).fetchone()
    found = _thread.line.execute(beat.beat, beat.values(row_id, body)).fetchone()
    content = json.dumps(beat.answer(found)).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]
