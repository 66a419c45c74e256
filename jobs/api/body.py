"""The JSON body of a request: read once, never more of it than is allowed."""

from email.message import Message
from typing import Any

from django.http import UnreadablePostError
from rest_framework.request import Request

from jobs.services import documents

from .problem import Problem

BLOCK = 64 * 1024


def read(request: Request, *, limit: int) -> bytes:
    """The body's bytes. Raises Problem: 415 unless it says JSON, 413 above `limit` bytes, 411, or 400."""
    _check_media_type(request)
    text = request.META.get("CONTENT_LENGTH") or ""
    if text and not (text.isascii() and text.isdigit()):
        raise Problem(400, "invalid_length", "Content-Length is no number.")
    length = int(text[:20]) if text else None
    if length is not None and length > limit:
        raise _too_large(limit)
    if length is None and not request.META.get("wsgi.input_terminated"):
        if request.META.get("HTTP_TRANSFER_ENCODING"):
            raise Problem(411, "length_required", "This server needs a Content-Length.")
        length = 0
    # Without a length the server marks the end of the body itself; Django's own stream would see an empty one.
    stream = request.META["wsgi.input"] if length is None else request
    body = _read(stream, limit + 1 if length is None else length)
    if len(body) > limit:
        raise _too_large(limit)
    if length is not None and len(body) < length:
        raise Problem(400, "incomplete", f"The body ended after {len(body):,} of {length:,} bytes.")
    return body


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object that the body is. Raises Malformed, or Problem for JSON that is no object."""
    document = documents.parse(body)
    if isinstance(document, dict):
        return document
    what = "The body must be a JSON object."
    raise Problem(400, "invalid", what, errors=[{"pointer": "", "detail": what}])


def _check_media_type(request: Request) -> None:
    if not _is_json(request.META.get("CONTENT_TYPE") or "none"):
        raise Problem(415, "unsupported_media_type", "The body must be application/json in UTF-8.")
    if request.META.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise Problem(415, "unsupported_media_type", "The body must come without a content encoding.")


def _is_json(content_type: str) -> bool:
    if content_type == "application/json":  # what runners send; parsing it costs more than a heartbeat's own JSON
        return True
    header = Message()
    header["Content-Type"] = content_type
    charset = str(header.get_param("charset", "utf-8")).lower()
    return header.get_content_type() == "application/json" and charset in ("utf-8", "utf8")


def _read(stream: Any, length: int) -> bytes:
    parts, left = [], length
    try:
        while left and (part := stream.read(min(left, BLOCK))):
            parts.append(part)
            left -= len(part)
    except (UnreadablePostError, OSError):
        raise Problem(400, "incomplete", "The body could not be read to its end.") from None
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"The body may have at most {limit:,} bytes.", limit=limit)
