"""Large files go straight to the server's storage: ask for an address, put the bytes there, say that they are there."""

import hashlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import httpx2
import truststore

from agentstore_runner.client import Answer, Client, UnansweredError

LEAST = 16 * 1024 * 1024  # bytes; below that one request through the server is sooner done
CHUNK = 256 * 1024


def send(client: Client, job_id: str, claim_id: str, path: Path, *, name: str) -> Answer | None:
    """Send a file; None if this server takes none so. OSError if it cannot be read, UnansweredError: send it again."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.seek(0, 2)
        asked = {"claim_id": claim_id, "name": name, "size_bytes": size, "sha256": digest}
        begun = client.begin_upload(job_id, json.dumps(asked).encode())
        # A server that is older than this call says not_found, and then of the file itself what is wrong.
        if begun.code in ("direct_unavailable", "not_found"):
            return None
        if not begun.ok or "upload" not in begun.body:
            return begun  # refused, or there already
        file.seek(0)
        _put(begun.body, file, size)
    ended = {"claim_id": claim_id, "upload": begun.body["upload"]}
    answer = client.complete_upload(job_id, json.dumps(ended).encode())
    if answer.ok and answer.body["sha256"] != digest:
        raise UnansweredError("the acknowledgement names other bytes")
    return answer


def _put(permitted: dict[str, object], file: BinaryIO, size: int) -> None:
    url, headers = permitted.get("url"), permitted.get("headers")
    if not isinstance(url, str) or not isinstance(headers, dict):
        raise UnansweredError("the permission to upload cannot be read")
    # 100 kB/s is a slow line; anything slower is a dead one.
    timeout = httpx2.Timeout(60, write=30 + CHUNK / 100_000)
    trusted = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # A client of its own: the runner's token is for the server, never for its storage.
        with httpx2.Client(follow_redirects=False, verify=trusted, timeout=timeout) as http:
            response = http.put(url, content=_chunks(file, size), headers=headers)
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        # Its text may hold the address, which is a bearer.
        raise UnansweredError(f"the storage did not take the file: {type(error).__name__}") from None
    if not response.is_success:
        raise UnansweredError(f"the storage answered {response.status_code}")


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield exactly the bytes that were announced, also when the file grows meanwhile."""
    while size > 0 and (chunk := file.read(min(CHUNK, size))):
        size -= len(chunk)
        yield chunk
