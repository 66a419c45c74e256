"""Rows that prove what happened are only ever added."""

import pgtrigger


def never_emptied() -> pgtrigger.Trigger:
    """A trigger that refuses TRUNCATE, which passes by every trigger on rows."""
    return pgtrigger.Trigger(
        name="never_emptied",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func="RAISE EXCEPTION 'Rows of % are only ever added.', TG_TABLE_NAME;",
    )
