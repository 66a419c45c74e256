"""What lists can be narrowed by. Each name is fixed here; no lookup comes from the query string."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.timezone import make_aware
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import CheckboxFilter, DropdownFilter, RadioFilter
from unfold.contrib.filters.forms import RangeDateForm

from jobs.models import Agent, AgentJob, AgentTask, AuditEvent, JobKind, Schedule, ScheduleSlot
from jobs.models.agent_instances import is_cloned
from jobs.services import acknowledging

MAX_CHOICES = 500
SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}

Rows = QuerySet[Any]


class ColumnFilter(CheckboxFilter):
    """One or several words of one column."""

    column: ClassVar[str]
    words: ClassVar[Any]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The words."""
        return list(self.words)

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows with any of the chosen words."""
        chosen = self.value()
        return queryset.filter(**{f"{self.column}__in": chosen}) if chosen else queryset


class StatusFilter(ColumnFilter):
    title, parameter_name, column, words = _("status"), "status", "status", AgentJob.Status.choices


class TaskStatusFilter(ColumnFilter):
    title, parameter_name, column, words = _("status"), "status", "status", AgentTask.Status.choices


class TaskTypeFilter(ColumnFilter):
    title, parameter_name, column, words = _("type"), "type", "task_type", AgentTask.Type.choices


class VerdictFilter(ColumnFilter):
    title, parameter_name, column, words = _("verdict"), "verdict", "verdict", AgentJob.Verdict.choices

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The words, and the lack of one."""
        return [*self.words, ("none", _("no verdict"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows with any of the chosen verdicts."""
        chosen = self.value()
        if not chosen or "none" not in chosen:
            return super().queryset(request, queryset)
        return queryset.filter(Q(verdict__in=chosen) | Q(verdict=None))


class AgentStateFilter(ColumnFilter):
    title, parameter_name, column, words = _("state"), "state", "state", Agent.State.choices


class ScheduleStateFilter(ColumnFilter):
    title, parameter_name, column, words = _("state"), "state", "state", Schedule.State.choices


class OutcomeFilter(ColumnFilter):
    title, parameter_name, column, words = _("outcome"), "outcome", "outcome", ScheduleSlot.Outcome.choices


class ScheduleFilter(DropdownFilter):
    title, parameter_name = _("schedule"), "schedule"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The schedules, by name."""
        return [(str(key), name) for key, name in Schedule.objects.values_list("pk", "name")[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The slots of that schedule; none for what is no id."""
        if not self.value():
            return queryset
        try:
            return queryset.filter(schedule=UUID(self.value()))
        except ValueError:
            return queryset.none()


class TagFilter(DropdownFilter):
    title, parameter_name = _("what"), "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The closed list of tags."""
        return list(AuditEvent.Tag.choices)

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The lines of that tag."""
        return queryset.filter(tag=self.value()) if self.value() else queryset


class KindFilter(DropdownFilter):
    title, parameter_name = _("kind"), "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The registered kinds."""
        return list(JobKind.objects.values_list("name", "name")[:MAX_CHOICES])

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The jobs of that kind."""
        return queryset.filter(kind=self.value()) if self.value() else queryset


class AgentFilter(DropdownFilter):
    title, parameter_name = _("agent"), "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The agents, by key."""
        return list(Agent.objects.values_list("principal_key", "principal_key")[:MAX_CHOICES])

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The work of that agent."""
        return queryset.filter(agent__principal_key=self.value()) if self.value() else queryset


class LatestFilter(RadioFilter):
    title, parameter_name = _("attempts"), "latest"
    all_option = ["", _("All attempts")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All attempts, or only what each chain came to."""
        return [("1", _("Latest attempts only"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows that no retry follows."""
        return queryset.filter(retried_as__isnull=True) if self.value() == "1" else queryset


class NewsFilter(RadioFilter):
    """Failures and risks by what people said about them."""

    title, parameter_name = _("news"), "news"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """News, known, and what is one's own to look after."""
        return [
            ("new", _("New")),
            ("known", _("Acknowledged or muted")),
            ("mine", _("Assigned to me")),
            ("wrong", _("Any failure or risk")),
        ]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The failed jobs, and those whose verdict is no pass, that the front page counts."""
        match self.value():
            case "new":
                return queryset.filter(acknowledging.is_wrong(), ~acknowledging.is_known())
            case "known":
                return queryset.filter(acknowledging.is_wrong(), acknowledging.is_known())
            case "mine":
                return queryset.filter(acknowledging.is_assigned_to(request.user.get_username()))
            case "wrong":
                return queryset.filter(acknowledging.is_wrong())
            case _:
                return queryset


class EndedFilter(DropdownFilter):
    """How long ago a row ended."""

    title, parameter_name, column = _("ended"), "ended", "finished_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Four spans."""
        return [
            ("1h", _("Last hour")),
            ("24h", _("Last 24 hours")),
            ("7d", _("Last 7 days")),
            ("30d", _("Last 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows that ended within the span, by the database's clock."""
        length = SPANS.get(self.value() or "")
        return queryset.filter(**{f"{self.column}__gt": Now() - length}) if length else queryset


class TaskEndedFilter(EndedFilter):
    column = "completed_at"


class DueFilter(EndedFilter):
    title, parameter_name, column = _("due"), "due", "due_at"


class AttentionFilter(RadioFilter):
    title, parameter_name = _("attention"), "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """What can be wrong with an agent."""
        return [("silent", _("Silent")), ("cloned", _("Cloned")), ("unregistered", _("Unregistered"))]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The agents that the front page counts."""
        match self.value():
            case "silent":
                return queryset.filter(is_silent=True)
            case "cloned":
                return queryset.filter(is_cloned())
            case "unregistered":
                return queryset.filter(registered_at=None)
            case _:
                return queryset


class QueuedFilter(SimpleListFilter):
    """A first and a last day, in the viewer's time zone; what is no date narrows nothing."""

    title, parameter_name, column = _("queued"), "queued", "queued_at"
    ends = ("queued_from", "queued_to")
    template = "unfold/filters/filters_date_range.html"
    form_class = RangeDateForm

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self.request = request
        super().__init__(request, params, model, model_admin)
        self.typed = {name: (params.pop(name, None) or [""])[-1] for name in self.ends}
        self.used_parameters.update({name: value for name, value in self.typed.items() if value})

    def has_output(self) -> bool:
        """Always shown."""
        return True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """No fixed choices."""
        return []

    def expected_parameters(self) -> list[str | None]:
        """The names of both ends."""
        return [*self.ends]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """The rows queued on these days, both included."""
        first, last = (_day(value) for value in self.typed.values())
        if first:
            queryset = queryset.filter(**{f"{self.column}__gte": midnight(first)})
        if last and last < date.max:
            queryset = queryset.filter(**{f"{self.column}__lt": midnight(last + timedelta(days=1))})
        return queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """The form with both ends."""
        form = self.form_class(name=self.parameter_name, data=self.typed)
        yield {"request": self.request, "parameter_name": self.parameter_name, "form": form}


class TaskQueuedFilter(QueuedFilter):
    column = "created_at"


class EndedOnFilter(QueuedFilter):
    """The days on which rows ended, as the charts count them."""

    title, parameter_name, column = _("ended on"), "finished", "finished_at"
    ends = ("finished_from", "finished_to")


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def midnight(day: date) -> datetime:
    """When a day begins, in the viewer's time zone."""
    return make_aware(datetime.combine(day, time()))
