"""A SQL client with rights on the contract's tables alone: what it may write needs no right on anything of ours."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.contract import databases

CONTRACT = "agent_jobs, agent_tasks, agent_job_artifacts"
Client = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def superuser(unblocked: None) -> Iterator[Client]:
    """The server's superuser in a database as our migrations make it."""
    with databases.database("rights") as name:
        try:
            client = psycopg.connect(**databases.arguments(name) | {"user": "postgres"}, autocommit=True)
        except psycopg.OperationalError as refused:
            pytest.skip(f"no superuser to make a second role with: {refused}")
        databases.migrate()
        with client:
            yield client
        # Who drops a database may not end a superuser's session: let this one be gone.
        with databases.connect("postgres") as server:
            while one(
                server, "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'postgres'", name
            ):
                pass


@pytest.fixture(scope="module")
def connect(superuser: Client) -> Iterator[Callable[[], Client]]:
    """Connects as a role that may read and write the contract's tables, and that row level security lets pass."""
    role = f"contract_client_{uuid.uuid4().hex[:8]}"
    superuser.execute(f"CREATE ROLE {role} LOGIN BYPASSRLS")
    superuser.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {CONTRACT} TO {role}")
    yield lambda: psycopg.connect(**databases.arguments(superuser.info.dbname) | {"user": role}, autocommit=True)
    superuser.execute(f"DROP OWNED BY {role}")
    superuser.execute(f"DROP ROLE {role}")


@pytest.fixture
def client(connect: Callable[[], Client]) -> Iterator[Client]:
    """That role."""
    with connect() as client:
        yield client


def one(client: Client, statement: str, *values: Any) -> Any:
    """The value that a statement returns."""
    row = client.execute(statement, values).fetchone()
    return row and row[0]


def test_a_job_is_inserted_worked_on_and_ended_and_its_agent_and_history_are_written(
    client: Client, superuser: Client
) -> None:
    key = f"of-{uuid.uuid4()}"
    job = one(client, "INSERT INTO agent_jobs (principal_key, kind) VALUES (%s, 'k') RETURNING id", key)
    client.execute("UPDATE agent_jobs SET status = 'running', started_at = now() WHERE id = %s", [job])
    client.execute("UPDATE agent_jobs SET principal_key = %s WHERE id = %s", [f"{key}-2", job])
    client.execute("INSERT INTO agent_job_artifacts (job_id, name, storage_path) VALUES (%s, 'a', 'b')", [job])
    client.execute("UPDATE agent_jobs SET status = 'done', results = '{}', finished_at = now() WHERE id = %s", [job])
    assert one(superuser, "SELECT count(*) FROM agents WHERE principal_key IN (%s, %s)", key, f"{key}-2") == 2
    walked = "SELECT array_agg(status ORDER BY pgh_id) FROM agent_job_events WHERE pgh_obj_id = %s"
    assert one(superuser, walked, job) == ["queued", "running", "done"]
    client.execute("DELETE FROM agent_jobs WHERE id = %s", [job])
    assert one(superuser, walked, job) == ["queued", "running", "done", "done"]


def test_a_task_is_inserted_worked_on_and_ended_and_its_history_is_written(client: Client, superuser: Client) -> None:
    ids = [one(superuser, f"INSERT INTO {table} DEFAULT VALUES RETURNING id")
           for table in ("agents", "backup_job_runs", "backup_job_sources")]  # fmt: skip
    insert = "INSERT INTO agent_tasks (agent_id, job_run_id, job_source_id, task_payload) VALUES (%s, %s, %s, '{}')"
    task = one(client, f"{insert} RETURNING id", *ids)
    for status in ("claimed", "running"):
        client.execute("UPDATE agent_tasks SET status = %s WHERE id = %s", [status, task])
    client.execute("UPDATE agent_tasks SET status = 'succeeded', completed_at = now() WHERE id = %s", [task])
    walked = "SELECT array_agg(status ORDER BY pgh_id) FROM agent_task_events WHERE pgh_obj_id = %s"
    assert one(superuser, walked, task) == ["pending", "claimed", "running", "succeeded"]


def test_a_deleted_job_leaves_the_keys_of_its_stored_files_to_the_sweep(client: Client, superuser: Client) -> None:
    job = one(client, "INSERT INTO agent_jobs (principal_key, kind) VALUES ('files', 'k') RETURNING id")
    superuser.execute(
        "INSERT INTO agent_job_artifacts (job_id, name, storage_path, sha256)"
        " VALUES (%s, 'a', 'left', repeat('0', 64))",
        [job],
    )
    client.execute("DELETE FROM agent_jobs WHERE id = %s", [job])
    assert one(superuser, "SELECT count(*) FROM artifact_removals WHERE key = 'left'") == 1


@pytest.mark.parametrize("statement", [
    "SELECT * FROM agents", "INSERT INTO agents (principal_key) VALUES ('x')", "SELECT * FROM agent_tokens",
    "SELECT * FROM agent_job_events", "DELETE FROM audit_events", "TRUNCATE agent_job_events", "TRUNCATE agent_jobs",
])  # fmt: skip
def test_nothing_beyond_the_contracts_tables_opens(statement: str, client: Client) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.execute(statement)


def test_what_triggers_write_as_the_owner_cannot_be_hung_onto_another_table(client: Client) -> None:
    functions = client.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE prosecdef AND prorettype = 'trigger'::regtype"
    ).fetchall()
    assert len(functions) > 6
    client.execute("CREATE TEMP TABLE forged (LIKE agent_jobs)")
    for (function,) in functions:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute(f"CREATE TRIGGER t BEFORE INSERT ON forged FOR EACH ROW EXECUTE FUNCTION {function}")


def test_a_table_of_the_same_name_in_the_clients_own_schema_catches_nothing(client: Client, superuser: Client) -> None:
    client.execute("CREATE TEMP TABLE agents (principal_key text UNIQUE)")
    client.execute("CREATE TEMP TABLE agent_job_events (LIKE agent_jobs)")
    client.execute("SET search_path = pg_temp, public")
    key = f"of-{uuid.uuid4()}"
    client.execute("INSERT INTO public.agent_jobs (principal_key, kind) VALUES (%s, 'k')", [key])
    assert one(superuser, "SELECT count(*) FROM public.agents WHERE principal_key = %s", key) == 1
    assert one(client, "SELECT count(*) FROM pg_temp.agents") == 0


def test_a_client_cannot_put_the_triggers_aside(client: Client, superuser: Client) -> None:
    triggers = "SELECT string_agg(tgname, ',') FROM pg_trigger WHERE tgname LIKE 'pgtrigger%%'"
    names = one(superuser, triggers)
    client.execute("SELECT set_config('pgtrigger.ignore', %s, false)", [f"{{{names}}}"])
    job = one(client, "INSERT INTO agent_jobs (principal_key, kind, status) VALUES ('a', 'k', 'done') RETURNING id")
    with pytest.raises(psycopg.errors.CheckViolation):
        client.execute("UPDATE agent_jobs SET status = 'queued' WHERE id = %s", [job])
    assert one(superuser, "SELECT count(*) FROM agent_job_events WHERE pgh_obj_id = %s", job) == 1


def test_every_trigger_that_writes_does_so_as_the_owner_with_a_path_of_its_own(superuser: Client) -> None:
    wrong = superuser.execute(
        "SELECT DISTINCT tgrelid::regclass::text, proname FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid"
        " WHERE prosrc ~* '(insert into|update|delete from)' AND proname LIKE 'pgtrigger%'"
        " AND NOT (prosecdef AND coalesce(proconfig::text, '') LIKE '%search_path=pg_catalog, public, pg_temp%')"
        " AND prosrc NOT LIKE '%RAISE EXCEPTION%'"
    ).fetchall()
    assert wrong == []
