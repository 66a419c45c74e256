"""Which runner processes act as an agent: noted once a minute, so that a copied host is noticed."""

import re
from urllib.parse import unquote
from uuid import UUID

from django.db import connection

from .documents import UNSTORABLE

MAX_NAME = 200
# A nonce of the process and the runner's name, percent-encoded since a header is ASCII.
FORM = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}) (\S{1,2000})", re.ASCII)

# A process that comes back after ten minutes begins anew: in between it may have slept with its machine.
NOTE = """
    WITH gone AS (
      DELETE FROM agent_instances
      WHERE agent_id = %(agent)s AND instance <> %(instance)s AND last_seen_at < now() - interval '1 hour'
    )
    INSERT INTO agent_instances AS seen (agent_id, instance, name) VALUES (%(agent)s, %(instance)s, %(name)s)
    ON CONFLICT (agent_id, instance) DO UPDATE SET last_seen_at = now(), name = excluded.name,
      first_seen_at = CASE WHEN seen.last_seen_at < now() - interval '10 minutes' THEN now()
        ELSE seen.first_seen_at END"""


def note(*, agent_id: UUID, said: str) -> None:
    """Write down that a process was seen; what cannot be read says nothing, since no work may fail by it."""
    found = FORM.fullmatch(said)
    if found is None:
        return
    name = unquote(found[2], errors="replace")[:MAX_NAME]
    if UNSTORABLE.search(name):
        return
    with connection.cursor() as cursor:
        cursor.execute(NOTE, {"agent": agent_id, "instance": UUID(found[1]), "name": name})
