"""What a connection really sends, as libpq itself writes it down."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import connection
from psycopg.pq import Trace

FRAME = re.compile(r"^\W*(BEGIN|COMMIT)\b")


@dataclass
class Sent:
    """The messages of a block, without their times."""

    messages: list[list[str]] = field(default_factory=list)

    @property
    def statements(self) -> int:
        """How many statements were executed; the frame of a transaction is none."""
        frames = [text for text in self.texts("Query") + self.texts("Parse") if FRAME.search(text)]
        return self.count("Query") + self.count("Execute") - len(frames)

    def count(self, kind: str) -> int:
        """How many messages of a kind were sent."""
        return Counter(message[2] for message in self.messages)[kind]

    def texts(self, kind: str) -> list[str]:
        """What the messages of a kind say."""
        return [" ".join(message[3:]).strip(' "') for message in self.messages if message[2] == kind]


@contextmanager
def listening() -> Iterator[Sent]:
    """Write down what Django's connection sends in the block."""
    connection.ensure_connection()
    sent = Sent()
    with tempfile.TemporaryFile("w+") as file:
        line = connection.connection.pgconn
        line.trace(file.fileno())
        line.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield sent
        finally:
            line.untrace()
        file.seek(0)
        # F: from the client. A text may hold line breaks, which libpq writes as they are.
        for row in file.read().replace("\nF\t", "\0F\t").replace("\nB\t", "\0B\t").split("\0"):
            if row.startswith("F\t"):
                direction, length, kind, *rest = row.split("\t")
                sent.messages.append([direction, length, kind, *rest])
