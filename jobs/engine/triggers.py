"""Triggers of the leased tables, which no session can turn off, and their history.

pgtrigger's own lets a session name triggers to leave out, and each call looks for that setting under an exception
handler, which has something to catch whenever nobody set it: on every call of a runner. pghistory looks for the context
of an event in the same way.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pghistory
import pghistory.trigger
import pgtrigger
from django.db import models
from pgtrigger import compiler

from .trail import never_emptied

Tracked = TypeVar("Tracked", bound=type[models.Model])

CONTEXT = "_pgh_attach_context()"
CONTEXT_IF_ANY = f"CASE WHEN current_setting('pghistory.context_id', true) <> '' THEN {CONTEXT} END"


class TriggerSql(compiler.UpsertTriggerSql):
    """The SQL of a trigger that only does its work. Migrations refer to this class: its template never changes."""

    def get_template(self) -> str:
        """The text that makes the function and the trigger."""
        return """
            CREATE OR REPLACE FUNCTION {pgid}() RETURNS TRIGGER LANGUAGE plpgsql AS $$
                {declare}
                BEGIN
                    {func}
                END;
            $$;
            DROP TRIGGER IF EXISTS {pgid} ON {table};
            CREATE {constraint} TRIGGER {pgid} {when} {operation} ON {table} {timing} {referencing}
                FOR EACH {level} {condition} EXECUTE FUNCTION {execute};
            COMMENT ON TRIGGER {pgid} ON {table} IS '{hash}';
        """


class _Steady:
    """Compiles a trigger to our SQL instead of pgtrigger's."""

    def compile(self, model: Any) -> compiler.Trigger:
        made: compiler.Trigger = super().compile(model)  # type: ignore[misc]  # of the trigger that this is mixed into
        given = {name: value for name, value in made.sql.kwargs.items() if name != "ignore_func_name"}
        return compiler.Trigger(name=made.name, sql=TriggerSql(**given))


class Trigger(_Steady, pgtrigger.Trigger):
    """A trigger that is never left out."""


class _Event(_Steady, pghistory.trigger.Event):
    """Writes a line of history; it has a context where somebody set one, which on the runners' path is nobody."""

    def get_func(self, model: Any) -> pgtrigger.Func:
        """The INSERT of the line."""
        return pgtrigger.Func(super().get_func(model).func.replace(CONTEXT, CONTEXT_IF_ANY))  # type: ignore[no-untyped-call]  # both lack types


class _Tracker(pghistory.RowEvent):
    def add_event_trigger(self, event_model: Any) -> None:
        """Register our trigger in the place of pghistory's."""
        pgtrigger.register(
            _Event(  # type: ignore[no-untyped-call]  # pghistory gives it no types
                event_model=event_model, label=self.label, name=self.trigger_name, row=self.row,
                operation=self.operation, condition=self.condition, level=self.level,
            )
        )(event_model.pgh_tracked_model)  # fmt: skip


class _InsertEvent(_Tracker, pghistory.InsertEvent): ...


class _UpdateEvent(_Tracker, pghistory.UpdateEvent): ...


class _DeleteEvent(_Tracker, pghistory.DeleteEvent): ...


def history(model_name: str, db_table: str, fields: Sequence[str]) -> Callable[[Tracked], Tracked]:
    """Track the inserts, deletes and moves of a leased table, and what becomes of its cancels; never a heartbeat.

    Nobody asks the history of all rows by a context: only by row.
    """
    decorated: Callable[[Tracked], Tracked] = pghistory.track(
        _InsertEvent(),
        _UpdateEvent(condition=pghistory.AnyChange("status", "cancel_requested_at", "cancel_delivered_at")),
        _DeleteEvent(),
        fields=list(fields),
        append_only=True,
        model_name=model_name,
        meta={"db_table": db_table, "triggers": [never_emptied()]},
        context_field=pghistory.ContextForeignKey(db_index=False),
    )
    return decorated
