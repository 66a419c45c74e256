"""Schedules of a backup job: their form, and when they launch its next runs, all of them together."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _

from jobs.models import BackupJob, Schedule
from jobs.services import schedule_registry as registry
from jobs.services import scheduling
from jobs.services.calendar import BadExpression, BadZone, zones
from jobs.services.errors import Invalid
from jobs.services.scheduling import ScheduleRetired

from .backup_forms import show_at_fields
from .badges import in_words, moment
from .dialogs import uuid_or_404
from .schedule_form import CalendarForm, in_zone, state_badge, words_of

MAX_SCHEDULES = 50


class BackupScheduleForm(CalendarForm):
    """When a backup job is run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].help_text = _("Its runs name it.")
        misfire: Any = self.fields["misfire"]  # never two runs of one job at once
        misfire.choices = [choice for choice in Schedule.Misfire.choices if choice[0] != Schedule.Misfire.ALL]

    @classmethod
    def values(cls, job: BackupJob, schedule: Schedule | None) -> dict[str, Any]:
        """What the form shows at first: a schedule as it is, or a new one under the job's name."""
        if schedule is None:
            return {**cls.FRESH, "name": job.name}
        return {name: getattr(schedule, name) for name in cls.base_fields}


def new_schedule_view(model_admin: Any, request: HttpRequest, job_id: str) -> HttpResponse:
    """The form of a new schedule of the backup job that the address names."""
    job = BackupJob.objects.filter(pk=uuid_or_404(job_id)).first()
    if job is None:
        raise Http404
    return backup_schedule_view(model_admin, request, job, None)


def backup_schedule_view(
    model_admin: Any, request: HttpRequest, job: BackupJob, schedule: Schedule | None
) -> HttpResponse:
    """Show the form of a new or of an existing schedule of a backup job; POST saves through the service."""
    if not request.user.has_perm("jobs.change_schedule" if schedule else "jobs.add_schedule"):
        raise PermissionDenied
    first = BackupScheduleForm.values(job, schedule)
    form = BackupScheduleForm(request.POST if request.method == "POST" else None, initial=first)
    if form.is_valid():
        definition, by = registry.BackupDefinition(**form.cleaned_data, backup_job=job.pk), request.user.get_username()
        try:
            if schedule:
                registry.change_schedule(definition, schedule_id=schedule.pk, by=by)
            else:
                registry.create_schedule(definition, by=by)
        except Invalid as refusal:
            show_at_fields(form, refusal.problems)
        except ScheduleRetired as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, _("Saved. It holds for the times from now on.") if schedule else _("Created."))
            return HttpResponseRedirect(reverse("admin:jobs_backupjob_change", args=[job.pk]))
    context = {
        **model_admin.admin_site.each_context(request),
        **form.outlook,
        "title": _("Change %s") % schedule if schedule else _("New schedule of %s") % job,
        "opts": model_admin.opts, "original": schedule, "form": form, "zones": sorted(zones()), "job": job,
        "job_url": reverse("admin:jobs_backupjob_change", args=[job.pk]),
    }  # fmt: skip
    return TemplateResponse(request, "agentstore/backup_schedule_form.html", context)


def schedules_of(job: BackupJob) -> list[Schedule]:
    """The schedules of a job that may be due again, by name."""
    return list(job.schedules.exclude(state=Schedule.State.RETIRED).order_by("name")[:MAX_SCHEDULES])


def shown_schedules(schedules: Iterable[Schedule]) -> list[dict[str, Any]]:
    """Schedules as their job's page shows them."""
    return [
        {
            "name": one.name, "url": reverse("admin:jobs_schedule_change", args=[one.pk]), "words": words_of(one),
            "zone": one.zone, "badge": state_badge(one), "next": moment(one.next_due_at),
        }
        for one in schedules
    ]  # fmt: skip


def next_times(schedules: Iterable[Schedule]) -> list[dict[str, Any]]:
    """The next times of all of them together; those that fall into a pause launch nothing and are left out."""
    at = now()
    found = sorted(chain.from_iterable(_times(one) for one in schedules), key=lambda pair: pair[0])
    return [
        {"iso": time.isoformat(), "local": in_zone(time, zone), "in": in_words(time, at), "name": one.name}
        for time, zone, one in found[: registry.SHOWN]
    ]


def _times(schedule: Schedule) -> Iterable[tuple[Any, Any, Schedule]]:
    try:
        outlook = registry.outlook(schedule.expression, schedule.zone)
    except (BadExpression, BadZone):  # the time zone database of this machine may lack it
        return []
    times = (time for time in outlook.times if not scheduling.is_paused(schedule, time))
    return [(time, outlook.calendar.zone, schedule) for time in times]
