"""Writes an agent's bearer, its running job and a person's session to standard output, with what a heartbeat sends."""

import json
from typing import Any

import django

django.setup()

from django.contrib.auth.hashers import make_password  # noqa: E402  (after the setup)
from django.contrib.auth.models import Group, User  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402

from bench import worker  # noqa: E402
from jobs.models import Agent, AgentToken  # noqa: E402
from jobs.services import execution, token_format  # noqa: E402


def session() -> str:
    """The cookie of an operator who is logged in."""
    operator = User.objects.create_user("bench", is_staff=True)
    operator.groups.add(Group.objects.get(name="Operators"))
    client = Client()
    client.force_login(operator)
    return client.cookies["sessionid"].value


def main() -> None:
    """Make what the benches over HTTP need."""
    bearer = token_format.mint()
    agent = Agent.objects.create(principal_key=worker.AGENT)
    AgentToken.objects.create(
        agent=agent, digest=token_format.digest(bearer), prefix=bearer[: token_format.SHOWN], created_by="bench"
    )
    worker.enqueue(1, ["beaten"])
    row = worker.claim(["beaten"])
    assert row.claim_id
    execution.authenticate(bearer=bearer)  # writes when it was last used
    sent: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        caller = execution.authenticate(bearer=bearer)
        execution.heartbeat(
            caller=caller, rows=type(row).objects.all(), row_id=row.pk, claim_id=row.claim_id, progress={"done": 1}
        )
    look_up, beat = sent
    found = {
        "bearer": bearer, "job": str(row.pk), "claim_id": str(row.claim_id), "look_up": look_up, "beat": beat,
        "session": session(), "password": make_password("a password"),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
