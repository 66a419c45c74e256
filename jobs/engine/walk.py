"""The status walk as the database enforces it, for every application and every SQL client."""

import pgtrigger

from .lifecycle import Lifecycle
from .triggers import Trigger


def status_walk(table: str, life: Lifecycle) -> Trigger:
    """A trigger that refuses an illegal change of status and any change of a finished row (SQLSTATE 23514).

    An UPDATE that changes nothing but `updated_at` passes: it says what the row says already. Deleting stays legal.
    """
    ended = ", ".join(f"'{word}'" for word in life.finished)
    legal = " OR ".join(f"(OLD.status = '{old}' AND NEW.status = '{new}')" for old, new in life.moves)
    return Trigger(
        name="status_walk",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        condition=pgtrigger.Condition(f"OLD.status IN ({ended}) OR OLD.status IS DISTINCT FROM NEW.status"),
        func=f"""
            IF OLD.status IN ({ended}) THEN
                IF to_jsonb(OLD) - 'updated_at' IS DISTINCT FROM to_jsonb(NEW) - 'updated_at' THEN
                    RAISE EXCEPTION 'A finished row of {table} never changes: % is %.', OLD.id, OLD.status
                        USING ERRCODE = 'check_violation', CONSTRAINT = '{table}_finished_is_final', TABLE = '{table}';
                END IF;
            ELSIF NOT ({legal}) THEN
                RAISE EXCEPTION 'A row of {table} cannot go from % to %.', OLD.status, NEW.status
                    USING ERRCODE = 'check_violation', CONSTRAINT = '{table}_status_walk', TABLE = '{table}';
            END IF;
            RETURN NEW;
        """,
    )
