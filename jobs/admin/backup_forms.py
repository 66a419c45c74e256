"""The forms of repositories, backup jobs and sources, and of a restore. Names are those of the services."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.models import Agent, BackupJob, BackupRepository
from jobs.models.backups import KEEP_RULES
from jobs.services import governance
from jobs.services.backups import listing, registry
from jobs.services.backups.payloads import DEFAULTS

from .filters import MAX_CHOICES

MAX_TEXT = 40_000


class PathLines(forms.CharField):
    """A list of texts, one a line; spaces belong to them."""

    def __init__(self, *, rows: int = 3, **more: Any) -> None:
        attrs = {"rows": rows, "spellcheck": "false", "autocapitalize": "off"}
        super().__init__(max_length=MAX_TEXT, strip=False, widget=UnfoldAdminTextareaWidget(attrs=attrs), **more)

    def to_python(self, value: Any) -> Any:
        """The lines that say something, each once."""
        lines = (super().to_python(value) or "").splitlines()
        return list(dict.fromkeys(line for line in lines if line.strip()))

    def run_validators(self, value: Any) -> None:
        """Judge the length of the text; the service judges each line."""
        super().run_validators("\n".join(value))

    def prepare_value(self, value: Any) -> Any:
        """The lines of a list; typed text stays what it is."""
        return "\n".join(value) if isinstance(value, list) else value


def _word(label: Any, most: int, help_text: Any = "", *, first: bool = False) -> forms.CharField:
    attrs = {"autofocus": True} if first else {"spellcheck": "false", "autocomplete": "off"}
    return forms.CharField(
        label=label, max_length=most, help_text=help_text, widget=UnfoldAdminTextInputWidget(attrs=attrs)
    )


def _number(label: Any, allowed: range, help_text: Any = "", *, required: bool = True) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=allowed[0], max_value=allowed[-1], required=required, help_text=help_text,
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip


def _switch(label: Any, help_text: Any = "") -> forms.BooleanField:
    return forms.BooleanField(label=label, required=False, help_text=help_text, widget=UnfoldBooleanSwitchWidget)


def _choice(label: Any, choices: Any, help_text: Any = "") -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=choices, help_text=help_text, widget=UnfoldAdminSelectWidget)


class RepositoryForm(forms.Form):
    """A repository."""

    name = _word(_("Name"), registry.MAX_NAME, first=True)
    location = _word(
        _("Location"), registry.MAX_LOCATION,
        _("As restic takes it, such as rest:https://backup.example.org/web. A user may stand in it, a password never."),
    )  # fmt: skip
    credential_ref = _word(
        _("Credential"), 63, _("The name under which each agent finds the password by itself; it never comes here.")
    )
    init_if_missing = _switch(
        _("Create it if it is missing"), _("Off is safer: a wrong location then fails instead of starting anew.")
    )
    concurrent_backups = _number(
        _("Backups at once"), registry.AT_ONCE, _("Further ones wait. Empty: no limit."), required=False
    )
    maintenance_every_days = _number(
        _("Maintenance every (days)"), registry.MAINTENANCE_DAYS,
        _("Retention and a check by the clock, counted from the last one. Empty: never."), required=False,
    )  # fmt: skip
    maintenance_agent = forms.ChoiceField(
        label=_("Agent of the maintenance"), choices=lambda: [("", _("none")), *agents()], required=False,
        widget=UnfoldAdminSelectWidget, help_text=_("It must know the credential, and runs no other job meanwhile."),
    )  # fmt: skip
    maintenance_check = _choice(
        _("Check of the maintenance"), BackupRepository._meta.get_field("maintenance_check").choices,
        _("Metadata is quick and does not see flipped bytes; all data is as slow as a restore of everything."),
    )  # fmt: skip

    @classmethod
    def values(cls, repository: BackupRepository | None) -> dict[str, Any]:
        """What the form shows at first: a repository as it is, or a new one."""
        if repository is None:
            return {"maintenance_check": "metadata"}
        agent = repository.maintenance_agent
        now = {name: getattr(repository, name) for name in cls.base_fields}
        return now | {"maintenance_agent": agent.principal_key if agent else ""}


def _repositories() -> list[tuple[str, str]]:
    return [(str(one.pk), one.name) for one in BackupRepository.objects.filter(retired_at=None)[:MAX_CHOICES]]


def agents() -> list[tuple[str, str]]:
    """The agents that can be given work, by key."""
    found = Agent.objects.exclude(state=Agent.State.DISABLED).order_by("principal_key")[:MAX_CHOICES]
    return [(agent.principal_key, str(agent)) for agent in found]


class BackupJobForm(forms.Form):
    """A backup job, without its sources."""

    COLUMNS = (
        "name", "max_attempts", "start_deadline_seconds", "max_run_seconds", "overdue_after_seconds",
        "drill_every_days", "drill_files",
    )  # fmt: skip
    name = _word(_("Name"), registry.MAX_NAME, first=True)
    repository = _choice(_("Repository"), _repositories)
    overdue_after_seconds = _number(
        _("Overdue after (seconds)"), registry.OVERDUE_SECONDS, _("An alarm is raised when no good backup is younger.")
    )
    start_deadline_seconds = _number(
        _("Must begin within (seconds)"), registry.DEADLINE_SECONDS, _("What no agent began by then was missed.")
    )
    max_run_seconds = _number(_("Maximum run time (seconds)"), registry.RUN_SECONDS)
    max_attempts = _number(_("Attempts at most"), registry.ATTEMPTS)
    keep_last = _number(
        _("Keep the last"), registry.KEPT, _("Of complete snapshots only. All six empty: everything is kept."),
        required=False,
    )  # fmt: skip
    keep_hourly = _number(_("Keep hourly"), registry.KEPT, required=False)
    keep_daily = _number(_("Keep daily"), registry.KEPT, required=False)
    keep_weekly = _number(_("Keep weekly"), registry.KEPT, required=False)
    keep_monthly = _number(_("Keep monthly"), registry.KEPT, required=False)
    keep_yearly = _number(_("Keep yearly"), registry.KEPT, required=False)
    drill_every_days = _number(
        _("Restore drill every (days)"), registry.DRILL_DAYS,
        _("A sample of each source's newest snapshot is restored on its own agent and compared. Empty: never."),
        required=False,
    )  # fmt: skip
    drill_files = _number(_("Files of a drill"), registry.DRILL_FILES, _("At most, and about 1 GiB together."))
    one_file_system = _switch(_("Stay in one file system"), _("Other mounts below the paths are left out."))
    exclude_caches = _switch(_("Leave out caches"), _("Folders that are tagged as caches."))
    stall_s = _number(
        _("Stalled after (seconds)"), registry.SETTINGS["stall_s"], _("Without any progress of the engine.")
    )
    lock_wait_s = _number(_("Wait for a lock (seconds)"), registry.SETTINGS["lock_wait_s"])
    limit_upload_kib = _number(
        _("Upload limit (KiB per second)"), registry.SETTINGS["limit_upload_kib"], _("0: no limit.")
    )
    shrink_warn_percent = _number(
        _("Warn when it shrinks (percent)"), registry.SETTINGS["shrink_warn_percent"],
        _("Against the last good backup. 0: never."),
    )  # fmt: skip

    def definition(self) -> registry.JobDefinition:
        """What the service takes."""
        said = self.cleaned_data
        retention = {rule: said[rule] for rule in KEEP_RULES if said[rule] is not None}
        return registry.JobDefinition(
            **{column: said[column] for column in BackupJobForm.COLUMNS},
            repository=UUID(said["repository"]),
            retention=retention or None,
            settings={name: said[name] for name, usual in DEFAULTS.items() if said[name] != usual},
        )

    @staticmethod
    def values(job: BackupJob | None) -> dict[str, Any]:
        """What the form shows at first: a job as it is, or a new one as shipped."""
        fresh = registry.JobDefinition(name="", repository=UUID(int=0))
        shown = {column: getattr(job or fresh, column) for column in BackupJobForm.COLUMNS}
        if job is None:
            return {**DEFAULTS, **shown}
        return {**DEFAULTS, **job.settings, **(job.retention or {}), **shown, "repository": str(job.repository_id)}


class SourceForm(forms.Form):
    """A source of a backup job."""

    name = _word(_("Name"), registry.MAX_NAME, first=True)
    agent = _choice(_("Agent"), agents, _("Whose folders these are. It never changes: retire the source instead."))
    host = _word(
        _("Host"), registry.MAX_HOST,
        _("The name its snapshots are filed under. It never changes, since a new one means that all is read again."),
    )  # fmt: skip
    paths = PathLines(label=_("Paths"), help_text=_("Absolute, one a line."))
    excludes = PathLines(label=_("Without"), required=False, help_text=_("Patterns of restic, one a line."))
    hooks_before = PathLines(
        label=_("Commands before"), required=False, rows=2,
        help_text=_("Names that the agent's own configuration defines, such as dump-database, one a line."),
    )  # fmt: skip
    hooks_after = PathLines(label=_("Commands after"), required=False, rows=2)
    allow_empty = _switch(_("May be empty"), _("Otherwise a backup of no files fails, as of a disk that is not there."))


class ListForm(forms.Form):
    """A look into one folder of a snapshot."""

    agent = _choice(_("Agent"), agents, _("One that knows the repository's credential."))
    path = forms.CharField(
        label=_("Folder"), max_length=listing.MAX_PATH, strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text=_("As it was backed up; / is the top."),
    )  # fmt: skip


class RestoreForm(forms.Form):
    """A restore of one snapshot of a source."""

    snapshot = _choice(_("Snapshot"), (), _("The newest first. A partial one lacks files."))
    include = PathLines(
        label=_("Paths"), required=False, help_text=_("As they were backed up, one a line. Empty: the whole snapshot.")
    )
    agent = _choice(_("Agent"), agents, _("On which machine; the one that was backed up, or any other."))
    mode = _choice(
        _("Where"),
        [
            ("directory", _("into a folder")),
            ("in_place", _("where the files were backed up")),
            ("scratch", _("into a scratch folder that is emptied afterwards (a drill)")),
        ],
    )
    path = forms.CharField(
        label=_("Folder"), required=False, max_length=registry.MAX_PATH, strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text=_("Absolute, on that machine. Only when it goes into a folder."),
    )  # fmt: skip
    overwrite = _choice(
        _("Files that are there"),
        [
            ("never", _("are left as they are")),
            ("if_changed", _("are overwritten if size or time differ")),
            ("always", _("are overwritten")),
        ],
    )
    delete_extra = _switch(_("Delete what the snapshot lacks"), _("In the folder, or below the paths."))
    verify = _choice(
        _("Verify"), [("content", _("compare every byte")), ("none", _("not"))],
        _("Size and time prove nothing after an interrupted restore."),
    )  # fmt: skip
    dry_run = _switch(_("Dry run"), _("Says what would be written, and writes nothing. Do this first."))
    reason = forms.CharField(
        label=_("Reason"), max_length=governance.MAX_REASON, help_text=_("Kept in the audit trail."),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Say at their fields what a runner would refuse the whole task for."""
        said = super().clean() or {}
        if any(not path.startswith("/") for path in said.get("include", ())):
            self.add_error("include", _("Each path begins with /."))
        if said.get("mode") == "directory" and not said.get("path", "/").startswith("/"):
            self.add_error("path", _("A folder that begins with /."))
        return said


def show_at_fields(form: forms.Form, problems: Iterable[Problem]) -> None:
    """Show each problem at the field that its pointer leads to, or at the top, with its place."""
    for problem in problems:
        parts = [part for part in problem.pointer.split("/") if part]
        name = next((part for part in reversed(parts) if part in form.fields), None)
        place = f"{'/'.join(parts)}: " if parts and name is None else ""
        form.add_error(name, f"{place}{problem.message}")


def form_page(
    model_admin: Any, request: HttpRequest, form: forms.Form, *, title: Any, submit: Any, text: Any = ""
) -> HttpResponse:
    """The page of a form, as it was typed and with what is wrong."""
    context: Mapping[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": title, "opts": model_admin.opts, "form": form, "submit": submit, "text": text,
    }  # fmt: skip
    return TemplateResponse(request, "agentstore/plain_form.html", dict(context))
