"""The form of an answer: JSON that no cache keeps, times by one rule, and when to come back."""

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import overload

from django.conf import settings
from django.http import HttpResponse

NO_STORE = {"Cache-Control": "no-store"}


@overload
def moment(at: datetime) -> str: ...
@overload
def moment(at: datetime | None) -> str | None: ...
def moment(at: datetime | None) -> str | None:
    """A time as ISO 8601 in UTC, always with microseconds and "Z"."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def retry_seconds() -> int:
    """The seconds of a Retry-After, a little random, so that those who were refused together do not return together."""
    seconds: int = settings.POLL_SECONDS
    return seconds + random.randint(0, seconds // 2)  # noqa: S311  (spreads load, hides nothing)


def answer(
    body: object,
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """An answer with a JSON body. It is pure ASCII: half a surrogate pair that a request held cannot break it."""
    return HttpResponse(
        json.dumps(body, separators=(",", ":"), allow_nan=False),
        status=status,
        content_type=content_type,
        headers={**NO_STORE, **(headers or {})},
    )


def nothing(headers: Mapping[str, str] | None = None) -> HttpResponse:
    """204, an answer without a body."""
    response = HttpResponse(status=204, headers={**NO_STORE, **(headers or {})})
    del response.headers["Content-Type"]
    return response
