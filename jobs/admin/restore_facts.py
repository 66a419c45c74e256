"""What a restore was told to do, and what its agent says of the target now; both are shown as whatever they hold."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .job_page import text

PLACES = {
    "in_place": gettext_lazy("where the files were backed up"),
    "scratch": gettext_lazy("a scratch folder, emptied afterwards"),
}
OVERWRITES = {
    "never": gettext_lazy("are left as they are"),
    "if_changed": gettext_lazy("are overwritten if size or time differ"),
    "always": gettext_lazy("are overwritten"),
}
MAX_PATHS = 5


def restore_facts(definition: object, details: object) -> list[tuple[str, Any]]:
    """The facts of a restore, from its run's definition and from its latest attempt's report; none of anything else."""
    asked = _inner(definition, "restore")
    if not asked:
        return []
    target = _inner(asked, "target")
    agent = _inner({"": definition}, "").get("agent")
    place = target.get("path") or PLACES.get(str(target.get("mode")), "")
    sample = _inner(asked, "sample").get("files")
    state = _inner(details, "target").get("state")
    facts = [
        (_("Snapshot"), text(asked.get("backup_id_in_repository") or "")),
        (_("Goes to"), _("%(place)s on %(agent)s") % {"place": text(str(place)), "agent": text(agent or "")}),
        (_("Only"), _paths(asked.get("include"))),
        (_("Sample"), _("at most %d files") % sample if isinstance(sample, int) else ""),
        (_("Files that are there"), OVERWRITES.get(str(asked.get("overwrite")), "")),
        (_("Deletes what the snapshot lacks"), _("yes") if asked.get("delete_extra") is True else ""),
        (_("Dry run"), _("yes: nothing is written") if asked.get("dry_run") is True else ""),
        (_("Target"), text(state) if state else ""),
    ]
    return [(label, value) for label, value in facts if value]


def _paths(said: object) -> str:
    if not isinstance(said, list) or not said:
        return ""
    more = len(said) - MAX_PATHS
    told = ", ".join(text(path) for path in said[:MAX_PATHS])
    return _("%(paths)s and %(number)d more") % {"paths": told, "number": more} if more > 0 else told


def _inner(said: object, name: str) -> Mapping[str, Any]:
    found = said.get(name) if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}
