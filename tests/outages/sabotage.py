"""The WSGI application with one deliberate bug, which BUG names: what the checker of histories must notice."""

import os
import random
from typing import Any

from agentstore.wsgi import application


def sabotage(bug: str) -> None:
    """Put a bug into this process; here, because models can be imported only after the application is made."""
    from django.db import connection, transaction

    from jobs.engine.claim import words
    from jobs.engine.leases import LeaseQuerySet
    from jobs.services import execution

    claim, finish = LeaseQuerySet.claim, execution.finish

    def unfenced(rows: Any) -> str:
        return f"id = %(row_id)s AND {rows.life.agent} = %(agent)s AND status IN ({words(rows.life.leased)})"

    def overwriting(rows: Any) -> str:
        return f"id = %(row_id)s AND claim_id = %(claim_id)s AND {rows.life.agent} = %(agent)s"

    def forgetful(rows: Any, claim_id: Any, **arguments: Any) -> Any:
        """A claim that is asked for again finds nothing of the first time."""
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {rows.model._meta.db_table} SET claim_id = gen_random_uuid()"
                f" WHERE claim_id = %s AND status IN ({words(rows.life.leased)})",
                [claim_id],
            )
        return claim(rows, claim_id, **arguments)

    def hasty(**arguments: Any) -> Any:
        """Every fifth result is acknowledged and not committed."""
        with transaction.atomic():
            finished = finish(**arguments)
            transaction.set_rollback(random.random() < 0.2)
        return finished

    target, name, replacement = {
        "no fence": (LeaseQuerySet, "_held", property(unfenced)),
        "overwrites ended rows": (LeaseQuerySet, "_held", property(overwriting)),
        "no claim idempotency": (LeaseQuerySet, "claim", forgetful),
        "acknowledges before the commit": (execution, "finish", hasty),
    }[bug]
    setattr(target, name, replacement)


sabotage(os.environ["BUG"])
__all__ = ["application"]
