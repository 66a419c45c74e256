"""Reading jsonb that anybody may have written."""

import json
from typing import Any


class StoredDocument(json.JSONDecoder):
    """Reads a document of a leased table; one that Python cannot hold is handed over as its text.

    A SQL client may store an integer of more digits, or a nesting deeper, than Python's parser takes. Such a row must
    not stop the queue behind it: it is claimed and closed like any other.
    """

    def decode(self, s: str, *args: Any) -> Any:
        try:
            return super().decode(s, *args)
        except (ValueError, RecursionError):
            return s
