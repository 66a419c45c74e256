"""Our database is the contract's tables, plus what is listed here. Anything else fails."""

from typing import Any

import pytest

from jobs.models import AgentJob, AgentTask
from tests.contract import databases

TABLES = ("agent_jobs", "agent_job_artifacts", "agent_tasks", "agents", "backup_job_runs", "backup_job_sources")

CATALOG = {
    "column": """
        SELECT attname, format_type(atttypid, atttypmod) || ' default ' || coalesce(pg_get_expr(adbin, adrelid), '-')
            || CASE WHEN attnotnull THEN ' not null' ELSE '' END
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped""",
    # contype n: PostgreSQL 18 lists NOT NULL here too; the columns say it already.
    "constraint": """
        SELECT conname, pg_get_constraintdef(oid) || CASE WHEN convalidated THEN '' ELSE ' NOT VALID' END
        FROM pg_constraint WHERE conrelid = %(table)s::regclass AND contype <> 'n'""",
    "index": """
        SELECT relname, pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' INVALID' END
        FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = %(table)s::regclass""",
    "trigger": """
        SELECT regexp_replace(tgname, '^pgtrigger_(.*)_[0-9a-f]{5}$', '\\1'),
            CASE WHEN tgname LIKE 'pgtrigger%%' THEN 'ours' ELSE pg_get_triggerdef(oid) END
            || CASE tgenabled WHEN 'O' THEN '' ELSE ' disabled' END
        FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND NOT tgisinternal""",
    "row security": """
        SELECT 'enabled', relrowsecurity::text FROM pg_class WHERE oid = %(table)s::regclass""",
    "policy": "SELECT policyname, cmd FROM pg_policies WHERE tablename = %(table)s",
}

LEASED_COLUMNS = {
    "root_id", "claim_id", "claimed_by", "claim_digest", "result_digest", "ended_by", "lease_seconds", "attempt",
    "max_attempts", "retry_of", "not_before", "expires_at", "priority", "progress", "details", "cancel_requested_at",
    "cancel_requested_by", "cancel_reason", "cancel_delivered_at", "overdue_at",
}  # fmt: skip
LEASED_RULES = {"claim_id_idx", "retry_of_key", "claim_idx", "expires_idx", "root_idx"}
LEASED_CHECKS = {"lease_positive", "attempts_valid", "ended_by_known", "cancel_has_author", "class_known"}
HISTORY = {"insert_insert", "update_update", "delete_delete"}

ADDED: dict[tuple[str, str], set[str]] = {
    ("agent_jobs", "column"): LEASED_COLUMNS
    | {"failure_class", "dedupe_key", "concurrency_key", "labels", "heartbeat_at", "schedule_id"},
    ("agent_jobs", "constraint"): {f"agent_jobs_{check}" for check in LEASED_CHECKS}
    | {"agent_jobs_verdict_when_done", "agent_jobs_failure_explained", "agent_jobs_principal_key_fkey",
       "agent_jobs_retry_of_fkey", "agent_jobs_schedule_id_fkey"},
    ("agent_jobs", "index"): {f"agent_jobs_{rule}" for rule in LEASED_RULES}
    | {"agent_jobs_concurrency_idx", "agent_jobs_dedupe_idx", "agent_jobs_newest_idx", "agent_jobs_ended_idx",
       "agent_jobs_kind_ended_idx",
       "agent_jobs_dedupe_search_idx", "agent_jobs_run_ref_idx", "agent_jobs_schedule_idx"},
    ("agent_jobs", "trigger"): HISTORY | {"status_walk", "before_write", "held"},
    ("agent_tasks", "column"): LEASED_COLUMNS,
    ("agent_tasks", "constraint"): {f"agent_tasks_{check}" for check in LEASED_CHECKS} | {"agent_tasks_retry_of_fkey"},
    ("agent_tasks", "index"): {f"agent_tasks_{rule}" for rule in LEASED_RULES},
    ("agent_tasks", "trigger"): HISTORY | {"status_walk", "before_insert", "belongs_together"},
    ("agent_job_artifacts", "column"): {
        "sha256", "missing_at", "thumbnail_path", "received_sha256", "masked", "verified_at", "sensitive",
    },
    ("agent_job_artifacts", "constraint"): {"agent_job_artifacts_sha256_valid"},
    ("agent_job_artifacts", "index"): {
        "agent_job_artifacts_name_idx", "agent_job_artifacts_key_idx", "agent_job_artifacts_thumb_idx",
        "agent_job_artifacts_age_idx", "agent_job_artifacts_sens_idx", "agent_job_artifacts_unver_idx",
    },
    ("agent_job_artifacts", "trigger"): {"keep_key", "held"},
    ("backup_job_runs", "column"): {
        "job_id", "repository_id", "kind", "trigger", "scheduled_for", "definition", "status", "sources_total",
        "sources_succeeded", "sources_partial", "sources_failed", "sources_cancelled", "bytes_processed",
        "bytes_written", "files_processed", "files_skipped", "cancel_requested_at", "cancel_requested_by",
        "cancel_reason", "slots_collapsed", "created_by", "reason", "created_at", "started_at", "completed_at",
    },
    ("backup_job_runs", "constraint"): {
        f"backup_job_runs_{check}"
        for check in (
            "status_valid", "kind_valid", "trigger_valid", "completed_when_done", "schedule_has_slot",
            "success_is_total", "cancel_has_author", "job_id_fkey",
        )
    },
    ("backup_job_runs", "index"): {
        "backup_job_runs_one_per_slot", "backup_job_runs_one_active_backup", "backup_job_runs_of_job_idx",
        "backup_job_runs_newest_idx", "backup_job_runs_drills_idx",
    },
    ("backup_job_sources", "column"): {
        "job_id", "agent_id", "name", "host", "paths", "excludes", "hooks_before", "hooks_after", "allow_empty",
        "retired_at", "created_at",
    },
    ("backup_job_sources", "constraint"): {
        f"backup_job_sources_{check}"
        for check in ("whole", "paths_absolute", "lists_of_texts", "job_id_fkey", "agent_id_fkey")
    },
    ("backup_job_sources", "index"): {"backup_job_sources_name_key", "backup_job_sources_agent_idx"},
    ("backup_job_sources", "trigger"): HISTORY - {"delete_delete"} | {"stays_where_it_is"},
    ("agents", "column"): {
        "principal_key", "title", "state", "state_note", "state_until", "presence", "labels", "lease_seconds",
        "last_seen_at", "runner_version", "registered_at", "created_at", "capabilities", "engine",
    },
    ("agents", "constraint"): {
        "agents_principal_key_key", "agents_state_valid", "agents_presence_valid", "agents_lease_positive",
    },
    ("agents", "index"): {"agents_principal_key_key"},
    ("agents", "trigger"): HISTORY - {"delete_delete"},
}  # fmt: skip
# Row level security on every table that holds agents or tasks; the contract has it on jobs and artifacts only.
CHANGED = {
    (table, "row security", "enabled") for table in ("agents", "agent_tasks", "backup_job_runs", "backup_job_sources")
}


def catalog(name: str) -> dict[tuple[str, str], dict[str, str]]:
    with databases.connect(name) as client:
        return {
            (table, sort): dict(client.execute(sql, {"table": table}).fetchall())
            for table in TABLES
            for sort, sql in CATALOG.items()
        }


@pytest.fixture(scope="module")
def databases_seen(unblocked: None) -> tuple[Any, Any, Any]:
    """The catalog of the contract's database, that of ours, and which of our tables have row level security."""
    with databases.database("parity") as name:
        databases.load_contract(name)
        contract = catalog(name)
    with databases.database("parity") as name:
        databases.migrate()
        with databases.connect(name) as client:
            security = client.execute(
                "SELECT relname, relrowsecurity FROM pg_class"
                " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
            ).fetchall()
        return contract, catalog(name), dict(security)


@pytest.fixture
def both(databases_seen: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Both catalogs, the contract's first."""
    return databases_seen[:2]


@pytest.fixture
def security(databases_seen: tuple[Any, Any, Any]) -> dict[str, bool]:
    """Whether row level security is on, by table."""
    return databases_seen[2]


def test_what_the_contract_has_is_here_word_for_word(both: tuple[Any, Any]) -> None:
    contract, ours = both
    for (table, sort), things in contract.items():
        for name, definition in things.items():
            if (table, sort, name) in CHANGED:
                assert ours[table, sort][name] != definition, f"{table} {sort} {name} is listed as changed and is not"
            else:
                assert ours[table, sort].get(name) == definition, f"{table} {sort} {name}"


def test_what_we_add_is_listed_and_nothing_else_is_there(both: tuple[Any, Any]) -> None:
    contract, ours = both
    added = {place: set(things) - set(contract[place]) for place, things in ours.items()}
    assert {place: names for place, names in added.items() if names} == ADDED


def test_every_added_column_may_be_left_out_by_a_sql_client(both: tuple[Any, Any]) -> None:
    contract, ours = both
    for table in TABLES:
        for name in set(ours[table, "column"]) - set(contract[table, "column"]):
            definition = ours[table, "column"][name]
            assert "not null" not in definition or "default -" not in definition, f"{table}.{name}: {definition}"


def test_an_adopted_database_has_the_same_catalog_as_a_fresh_one_also_after_a_second_migrate(
    both: tuple[Any, Any], contract_database: str
) -> None:
    for _ in range(2):
        databases.migrate()
        assert catalog(contract_database) == both[1]


def test_foreign_keys_are_immediate_and_validated(both: tuple[Any, Any]) -> None:
    for (table, sort), things in both[1].items():
        for name, definition in things.items():
            if sort == "constraint" and table != "agents":
                assert "DEFERR" not in definition, name
                assert "NOT VALID" not in definition, name


def test_row_level_security_is_on_for_every_table_that_holds_work_agents_or_tokens(security: dict[str, bool]) -> None:
    governed = {table for table in security if table.startswith(("agent", "audit_", "backup", "schedule"))}
    assert len(governed) >= 10
    assert {table for table in governed if not security[table]} == set()


@pytest.mark.parametrize("model", [AgentJob, AgentTask])
def test_the_models_words_are_the_contracts_words(model: Any, both: tuple[Any, Any]) -> None:
    life, table = model.lifecycle, model._meta.db_table
    rule = both[0][table, "constraint"]["agent_jobs_status_check" if model is AgentJob else "agent_tasks_status_valid"]
    words = set(rule.split("'")[1::2])
    assert words == set(model.Status.values) == {life.waiting, *life.leased, *life.finished}
    assert words == {word for move in life.moves for word in move}
