"""Migration operations for tables that are in use: nothing holds a lock for longer than a moment."""

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

# What triggers write beside their row is the owner's doing: a SQL client that may only INSERT and UPDATE the contract's
# tables needs no right on agents or on the history. Nobody else may hang these functions onto a table of his own, where
# they would write whatever it says. pgtrigger makes its functions anew with each trigger, so `manage.py migrate` ends
# with this; a migration that adds triggers to a table in use has it too.
TRIGGER_RIGHTS = r"""
DO $$ DECLARE f regprocedure; BEGIN
  FOR f IN SELECT oid FROM pg_proc
           WHERE prorettype = 'trigger'::regtype AND proowner = current_user::regrole
             AND proname LIKE 'pgtrigger\_%' AND (prosecdef OR prosrc LIKE '%INSERT INTO%') LOOP
    EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp', f, current_schema());
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $$"""
LOCK_TIMEOUT = "SET lock_timeout = '5s'"  # better an error that can be repeated than a queue of waiting claims


class AddUniqueConcurrently(migrations.AddConstraint):
    """Add a UniqueConstraint as a unique index that is built beside running writes; the migration is not atomic."""

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model: Any = to_state.apps.get_model(app_label, self.model_name)
        constraint: Any = self.constraint
        # An interrupted build leaves an invalid index of that name behind.
        schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{constraint.name}"')
        if constraint.condition is not None:
            sql = str(constraint.create_sql(model, schema_editor))
        else:
            columns = ", ".join(model._meta.get_field(name).column for name in constraint.fields)
            sql = f'CREATE UNIQUE INDEX "{constraint.name}" ON {model._meta.db_table} ({columns})'
        schema_editor.execute(sql.replace("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX CONCURRENTLY", 1))

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{self.constraint.name}"')


class AddIndexBesideWrites(migrations.AddIndex):
    """Add an index that is built beside running writes; one that an interrupted build left behind is built again."""

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{self.index.name}"')
        schema_editor.add_index(model, self.index, concurrently=True)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{self.index.name}"')


class AddCheckInTwoSteps(migrations.AddConstraint):
    """Add a CHECK that holds for new rows at once, then read the old ones without locking them."""

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model: Any = to_state.apps.get_model(app_label, self.model_name)
        table, name = model._meta.db_table, self.constraint.name
        schema_editor.execute(f'ALTER TABLE {table} DROP CONSTRAINT IF EXISTS "{name}"')
        schema_editor.execute(f"{self.constraint.create_sql(model, schema_editor)} NOT VALID")
        schema_editor.execute(f'ALTER TABLE {table} VALIDATE CONSTRAINT "{name}"')


def row_level_security(*tables: str) -> migrations.RunSQL:
    """Row level security on tables, with no policy: only their owner sees a row."""
    return migrations.RunSQL(
        [f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY" for table in tables],
        [f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY" for table in tables],
    )


def runs_as_owner(*functions: str) -> migrations.RunSQL:
    """Let trigger functions see what their table's owner sees, whoever writes; nobody can slip other tables in."""
    return migrations.RunSQL(
        [f"ALTER FUNCTION {name}() SECURITY DEFINER SET search_path = public, pg_temp" for name in functions],
        [f"ALTER FUNCTION {name}() SECURITY INVOKER RESET search_path" for name in functions],
    )
