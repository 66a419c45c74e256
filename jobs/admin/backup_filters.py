"""What the lists of backups can be narrowed by."""

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter, RadioFilter

from jobs.models import BackupJob, BackupJobRun, BackupJobSource, BackupRepository
from jobs.models.backup_freshness import bad_last_runs, failed_drills, with_freshness

from .filters import MAX_CHOICES, ColumnFilter, QueuedFilter, Rows


class BackupJobStateFilter(ColumnFilter):
    title, parameter_name, column, words = _("state"), "state", "state", BackupJob.State.choices


class OverdueFilter(RadioFilter):
    title, parameter_name = _("freshness"), "freshness"
    all_option = ["", _("All jobs")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All jobs, or those that somebody should look at."""
        return [("overdue", _("Overdue only"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The jobs with a source that is overdue."""
        if self.value() != "overdue":
            return queryset
        late = with_freshness(BackupJobSource.objects.filter(job=OuterRef("pk"))).filter(is_overdue=True)
        return queryset.filter(Exists(late))


class LateSourceFilter(RadioFilter):
    title, parameter_name = _("freshness"), "freshness"
    all_option = ["", _("All sources")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All sources, or those that somebody should look at."""
        return [("overdue", _("Overdue only"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The sources that are overdue."""
        return queryset.filter(is_overdue=True) if self.value() == "overdue" else queryset


class FailedDrillFilter(RadioFilter):
    title, parameter_name = _("restore drill"), "drill"
    all_option = ["", _("All sources")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All sources, or those whose latest drill failed."""
        return [("failed", _("Failed only"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The sources whose latest drill failed."""
        return queryset.filter(pk__in=failed_drills().values("job_source")) if self.value() == "failed" else queryset


class RunStatusFilter(ColumnFilter):
    title, parameter_name, column, words = _("status"), "status", "status", BackupJobRun.Status.choices


class BadRunFilter(RadioFilter):
    title, parameter_name = _("attention"), "attention"
    all_option = ["", _("All runs")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All runs, or those that nothing has mended yet."""
        return [("bad", _("Latest of its job, and not whole"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The latest run of each job, where it was bad."""
        return queryset.filter(pk__in=bad_last_runs().values("pk")) if self.value() == "bad" else queryset


class DamagedFilter(RadioFilter):
    title, parameter_name = _("attention"), "attention"
    all_option = ["", _("All repositories")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All repositories, or the damaged ones."""
        return [("damaged", _("Damaged only"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The repositories that were found damaged."""
        return queryset.filter(damaged_at__isnull=False, retired_at=None) if self.value() == "damaged" else queryset


class RunKindFilter(ColumnFilter):
    title, parameter_name, column, words = _("kind"), "kind", "kind", BackupJobRun.Kind.choices


class RunLaunchedFilter(QueuedFilter):
    title, column = _("launched"), "created_at"


class NamedRowFilter(DropdownFilter):
    """The rows that belong to one row of another table, chosen by its name."""

    column: ClassVar[str]
    of: ClassVar[Any]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """What there is, by name."""
        return [(str(row.pk), str(row)) for row in self.of.objects.order_by("name")[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows of the chosen one; none for what is no id."""
        if not self.value():
            return queryset
        try:
            return queryset.filter(**{self.column: UUID(self.value())})
        except ValueError:
            return queryset.none()


class BackupJobFilter(NamedRowFilter):
    title, parameter_name, column, of = _("backup job"), "job", "job", BackupJob


class RepositoryFilter(NamedRowFilter):
    title, parameter_name, column, of = _("repository"), "repository", "repository", BackupRepository


class SnapshotSourceFilter(NamedRowFilter):
    title, parameter_name, column, of = _("source"), "source", "source", BackupJobSource

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The sources, each with its job."""
        sources = BackupJobSource.objects.filter(job__isnull=False).select_related("job").order_by("job__name", "name")
        return [(str(source.pk), f"{source.job} / {source}") for source in sources[:MAX_CHOICES]]


class CompleteFilter(RadioFilter):
    title, parameter_name = _("completeness"), "complete"
    all_option = ["", _("All snapshots")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Complete ones, or those that lack files."""
        return [("yes", _("Complete")), ("no", _("Partial"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The snapshots of that kind."""
        match self.value():
            case "yes":
                return queryset.filter(complete=True)
            case "no":
                return queryset.filter(complete=False)
            case _:
                return queryset
