"""A file's way in as a bare WSGI function: read, digested, written and synced; no database, nobody asked who calls."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

FOLDER = Path(os.environ["BENCH_FILES"])
BLOCK = 256 * 1024


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Keep one body."""
    digest, left = hashlib.sha256(), int(environ["CONTENT_LENGTH"])
    with (FOLDER / str(uuid4())).open("wb") as file:
        while left:
            block = environ["wsgi.input"].read(min(BLOCK, left))
            digest.update(block)
            file.write(block)
            left -= len(block)
        file.flush()
        os.fsync(file.fileno())
    content = digest.hexdigest().encode()
    start_response("201 Created", [("Content-Type", "text/plain"), ("Content-Length", str(len(content)))])
    return [content]
