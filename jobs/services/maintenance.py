"""What the clock does: close what fell silent, expire what waited too long. Safe anywhere, any number of times."""

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Case, F, When
from django.db.models.functions import Now

from jobs.models import AgentJob, AgentTask, JobKind, Uptime

from .backups import settling

MAX_FAULT = 500
LOOP_GAP = timedelta(minutes=1)  # a longer silence of the maintenance loop means that the installation was down


@dataclass(frozen=True, kw_only=True)
class Reaped:
    """How many rows were closed because their holder fell silent."""

    jobs: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """How many rows were past their maximum run time, so that their runners are asked to stop."""

    jobs: int
    tasks: int


@dataclass(frozen=True, kw_only=True)
class Expired:
    """How many waiting rows were cancelled because their time had passed."""

    jobs: int
    tasks: int


@transaction.atomic
def note_uptime() -> None:
    """Say that the installation is up; after a gap in saying so, silence of agents counts from now on only."""
    Uptime.objects.bulk_create([Uptime(id=1)], ignore_conflicts=True)
    gap = When(seen_at__lt=Now() - LOOP_GAP, then=Now())
    Uptime.objects.update(up_since=Case(gap, default=F("up_since")), seen_at=Now(), fault="")


def note_deafness(*, fault: str) -> None:
    """Say why agents cannot be heard; it never prolongs the time since which they could."""
    Uptime.objects.update(fault=fault[:MAX_FAULT])


def reap() -> Reaped:
    """Close leased rows whose holder fell silent; failed ones get their retry by class."""
    up_since = Uptime.objects.values_list("up_since", flat=True).first()
    limits = dict(JobKind.objects.values_list("name", "max_run_seconds"))
    jobs = AgentJob.objects.reap(up_since=up_since, unheld_seconds=limits)
    with transaction.atomic():
        tasks = AgentTask.objects.reap(up_since=up_since)
        settling.settle_tasks(task.pk for task in tasks)
    return Reaped(jobs=len(jobs), tasks=len(tasks))


def stop_overdue() -> Stopped:
    """Ask the runners of work past its maximum run time to stop; `reap` closes what does not."""
    return Stopped(jobs=len(AgentJob.objects.stop_overdue()), tasks=len(AgentTask.objects.stop_overdue()))


def expire() -> Expired:
    """Cancel waiting rows whose `expires_at` has passed."""
    with transaction.atomic():
        tasks = AgentTask.objects.expire()
        settling.settle_tasks(task.pk for task in tasks)
    return Expired(jobs=len(AgentJob.objects.expire()), tasks=len(tasks))
