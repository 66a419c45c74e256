"""What Prometheus is told, read from the database at each scrape: right with any number of web processes.

Nothing here counts finished rows, of which there may be millions, and no label comes from a client's text: names of
backup jobs and sources are given by governors.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, Q
from django.db.models.functions import Now
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jobs.models import Agent, AgentJob, AgentTask, BackupJobSource, BackupRepository, MaintenanceDuty, Uptime
from jobs.models.agent_instances import is_cloned
from jobs.models.backup_freshness import bad_last_runs, failed_drills, with_freshness

SILENT_AFTER = timedelta(minutes=3)


def is_silent() -> Q:
    """Which agents should have been heard: resident, at work, and not seen for SILENT_AFTER."""
    unheard = Q(last_seen_at=None) | Q(last_seen_at__lt=Now() - SILENT_AFTER)
    return Q(presence=Agent.Presence.RESIDENT) & ~Q(state=Agent.State.DISABLED) & unheard


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Store())
    return generate_latest(registry)


class _Store(Collector):
    """Eight statements a scrape."""

    def describe(self) -> list[Any]:
        """Nothing: registering must not ask the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the queue, the agents, the duties and the backups."""
        yield from _queue()
        found = Agent.objects.aggregate(silent=Count("id", filter=is_silent()), cloned=Count("id", filter=is_cloned()))
        agents = GaugeMetricFamily("agentstore_silent_agents", "Resident agents that were not heard for 3 minutes.")
        agents.add_metric([], found["silent"])
        yield agents
        cloned = GaugeMetricFamily("agentstore_cloned_agents", "Agents as which two runners of one name act at once.")
        cloned.add_metric([], found["cloned"])
        yield cloned
        yield from _hearing()
        yield from _duties()
        yield from _backups()


def _queue() -> Iterator[GaugeMetricFamily]:
    rows = GaugeMetricFamily("agentstore_rows", "Rows that have not ended.", labels=["table", "status"])
    oldest = GaugeMetricFamily(
        "agentstore_oldest_waiting_timestamp_seconds", "Since when a row waits that could be claimed.", labels=["table"]
    )
    models: tuple[Any, ...] = (AgentJob, AgentTask)
    for model in models:
        life, table = model.lifecycle, model._meta.db_table
        open_now = Q(status=life.waiting) & (Q(not_before=None) | Q(not_before__lte=Now()))
        found = model.objects.unfinished().aggregate(
            oldest=Min(life.queued_at, filter=open_now),
            **{word: Count("id", filter=Q(status=word)) for word in life.unfinished},
        )
        for word in life.unfinished:
            rows.add_metric([table, word], found[word])
        if found["oldest"]:
            oldest.add_metric([table], found["oldest"].timestamp())
    yield from (rows, oldest)


def _hearing() -> Iterator[GaugeMetricFamily]:
    heard = GaugeMetricFamily("agentstore_agents_heard", "1 while the public address answers the maintenance's probe.")
    since = GaugeMetricFamily("agentstore_up_since_timestamp_seconds", "Since when silence of agents counts.")
    for uptime in Uptime.objects.all():
        heard.add_metric([], 0 if uptime.fault else 1)
        since.add_metric([], uptime.up_since.timestamp())
    yield from (heard, since)


def _duties() -> Iterator[GaugeMetricFamily]:
    def family(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"agentstore_duty_{name}", text, labels=["duty"])

    duties = list(MaintenanceDuty.objects.all())
    moments = {
        "last_success_at": family("last_success_timestamp_seconds", "When the duty last ended well."),
        "last_error_at": family("last_error_timestamp_seconds", "When the duty last failed."),
        "due_at": family("due_timestamp_seconds", "When the duty is due; far in the past means that no loop runs."),
    }
    numbers = {
        "last_seconds": family("last_duration_seconds", "How long the duty took last."),
        "every_seconds": family("interval_seconds", "How often the duty is done."),
        "failures": family("failures", "Failures in a row."),
    }
    for duty in duties:
        for column, metric in moments.items():
            at: datetime | None = getattr(duty, column)
            if at is not None:
                metric.add_metric([duty.name], at.timestamp())
        for column, metric in numbers.items():
            if (number := getattr(duty, column)) is not None:
                metric.add_metric([duty.name], number)
    yield from (*moments.values(), *numbers.values())


def _backups() -> Iterator[GaugeMetricFamily]:
    names = ["job", "source"]
    last = GaugeMetricFamily(
        "agentstore_backup_last_good_timestamp_seconds", "When a source was last backed up whole; 0: never.",
        labels=names,
    )  # fmt: skip
    overdue = GaugeMetricFamily(
        "agentstore_backup_overdue", "1 while a source's last good backup is too old.", labels=names
    )
    sources = with_freshness(BackupJobSource.objects.filter(retired_at=None, job__isnull=False))
    for job, source, good_at, late in sources.values_list("job__name", "name", "last_good_at", "is_overdue"):
        last.add_metric([job, source], good_at.timestamp() if good_at else 0)
        overdue.add_metric([job, source], int(late))
    bad = GaugeMetricFamily("agentstore_backup_bad_runs", "Backup jobs whose latest run was not whole.")
    bad.add_metric([], bad_last_runs().count())
    damaged = GaugeMetricFamily("agentstore_damaged_repositories", "Repositories that were found damaged.")
    damaged.add_metric([], BackupRepository.objects.filter(damaged_at__isnull=False, retired_at=None).count())
    drills = GaugeMetricFamily("agentstore_backup_failed_drills", "Sources whose latest restore drill failed.")
    drills.add_metric([], failed_drills().count())
    yield from (last, overdue, bad, damaged, drills)
