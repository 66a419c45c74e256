"""From what happened to notices: which rule wants to know, and whether it was told already.

A rule is told of the first failure of a subject and of its recovery, not of repetitions. The subject of work is its
agent, its kind and the schedule that made it: what is run again and again and is expected to end the same. A rule that
names a label key separates by that label's value too, so that a branch does not recover what another one broke.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentstore_runner.redaction import Redactor
from django.db import transaction
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.engine.leased import Leased
from jobs.models import Acknowledgement, AgentJob, AgentTask, Event, Notice, NoticeRule, NoticeState

from .condition import Condition
from .conditions import SCHEDULE_LABEL, name_of_the_good, standing_conditions
from .following import ended_since_last_time

MAX_ERROR, MAX_REASONS = 1000, 5
BAD = (Event.RISK, Event.FAILED)  # from bad to worse
STATES = (
    Event.AGENT_SILENT, Event.AGENT_CLONED, Event.DUTY_FAILING, Event.TOKEN_EXPIRING, Event.SCHEDULE_MISSED,
    Event.BACKUP_OVERDUE, Event.BACKUP_RUN_BAD, Event.REPOSITORY_DAMAGED, Event.DRILL_FAILED,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Matched:
    """How many notices were written."""

    notices: int


@dataclass(frozen=True, kw_only=True)
class End:
    """How the latest attempt of a chain ended; no event means well."""

    event: Event | None
    table: str
    agent: str
    kind: str
    labels: dict[str, Any]
    part: str  # of the subject: what tells works of one kind on one agent apart
    row: Leased
    path: str
    is_muted: bool


@transaction.atomic
def match() -> Matched:
    """Write the notices of what happened since the last call; held until the outbox releases them."""
    rules = list(NoticeRule.objects.filter(enabled=True, channel__enabled=True).order_by("id"))
    jobs, tasks = ended_since_last_time(AgentJob), ended_since_last_time(AgentTask)
    ends = [*_job_ends(jobs), *_task_ends(tasks)] if rules else []
    found: list[Notice] = []
    for rule in rules:
        states = {state.subject: state for state in rule.states.select_for_update(no_key=True)}
        found += [notice for end in ends for notice in _of_end(rule, states, end)]
        found += _of_conditions(rule, states)
    Notice.objects.bulk_create(found)
    return Matched(notices=len(found))


def _of_end(rule: NoticeRule, states: dict[str, NoticeState], end: End) -> Iterable[Notice]:
    subject = _subject(rule, end)
    if subject is None:
        return
    state = states.get(subject)
    if end.event is None:
        if state is not None:
            states.pop(subject).delete()
            if Event.RECOVERED in rule.listens_to:
                yield _work_notice(rule, Event.RECOVERED, end)
    elif end.event in rule.listens_to and not end.is_muted:
        if state is None:
            states[subject] = NoticeState.objects.create(rule=rule, subject=subject, event=end.event)
            yield _work_notice(rule, end.event, end)
        elif state.event != end.event:
            got_worse = BAD.index(end.event) > BAD.index(Event(state.event))
            state.event = end.event
            state.save(update_fields=["event"])
            if got_worse:
                yield _work_notice(rule, end.event, end)


def _subject(rule: NoticeRule, end: End) -> str | None:
    """What the rule counts this end under; None when it does not match."""
    if not _matches(rule, agent=end.agent, kind=end.kind, labels=end.labels):
        return None
    key = rule.label.partition("=")[0]
    return json.dumps([end.table, end.agent, end.kind, end.part, end.labels[key] if key else None])


def _matches(rule: NoticeRule, *, agent: str, kind: str, labels: Mapping[str, Any]) -> bool:
    """Whether work is what the rule names."""
    key, equals, value = rule.label.partition("=")
    said = labels.get(key)
    return not (
        (rule.kind and rule.kind != kind)
        or (rule.agent and rule.agent != agent)
        or (rule.schedule and rule.schedule != labels.get(SCHEDULE_LABEL))
        or (key and said is None)
        or (equals and str(said) != value)
    )


def _of_conditions(rule: NoticeRule, states: dict[str, NoticeState]) -> Iterable[Notice]:
    watched = {event for event in STATES if event in rule.listens_to}
    # What was told stays told until it is good, also when the rule was narrowed meanwhile.
    events = watched | {Event(state.event) for state in states.values() if state.event in STATES}
    now = {
        json.dumps([condition.event, condition.key]): condition
        for condition in standing_conditions(event for event in STATES if event in events)
    }
    for subject, condition in now.items():
        if subject not in states and condition.event in watched and condition.is_certain and _concerns(rule, condition):
            states[subject] = NoticeState.objects.create(rule=rule, subject=subject, event=condition.event)
            yield _notice(rule, condition.event, condition.title, condition.detail, condition.path)
    for subject, state in list(states.items()):
        if state.event in STATES and subject not in now:
            states.pop(subject).delete()
            event, key = json.loads(subject)
            if Event.RECOVERED in rule.listens_to and (name := name_of_the_good(Event(event), key)):
                title = _("Good again: %(what)s of %(name)s") % {"what": Event(event).label, "name": name}
                yield _notice(rule, Event.RECOVERED, title, "", reverse("admin:index"))


def _concerns(rule: NoticeRule, condition: Condition) -> bool:
    if condition.labels is None:
        return not rule.agent or condition.agent in ("", rule.agent)
    return _matches(rule, agent=condition.agent, kind=condition.kind, labels=condition.labels)


def _work_notice(rule: NoticeRule, event: Event, end: End) -> Notice:
    words = {Event.FAILED: _("Failed"), Event.RISK: _("At risk"), Event.RECOVERED: _("Good again")}
    title = _("%(word)s: %(kind)s on %(agent)s") % {"word": words[event], "kind": end.kind, "agent": end.agent}
    labels = ", ".join(f"{key}={value}" for key, value in end.labels.items())
    notice = _notice(rule, event, title, "\n".join(part for part in (_detail(end.row), labels) if part), end.path)
    notice.root_id = end.row.chain_id
    return notice


def _notice(rule: NoticeRule, event: Event, title: str, detail: str, path: str) -> Notice:
    clean = Redactor()  # plain SQL may have stored anything
    return Notice(
        channel_id=rule.channel_id, rule=rule, event=event, title=clean.text(title), body=clean.text(detail), path=path
    )


def _job_ends(ids: Sequence[UUID]) -> Iterable[End]:
    muted = set(Acknowledgement.objects.filter(muted_until__gt=Now()).values_list("agent", "kind")) if ids else set()
    for job in _latest(AgentJob, ids):
        if job.status == AgentJob.Status.CANCELLED:
            continue
        labels = job.labels if isinstance(job.labels, dict) else {}
        yield End(
            event=_judged(job), table="agent_jobs", agent=job.agent_id, kind=job.kind, labels=labels,
            part=str(labels.get(SCHEDULE_LABEL, "")), row=job,
            path=reverse("admin:jobs_agentjob_change", args=[job.pk]), is_muted=(job.agent_id, job.kind) in muted,
        )  # fmt: skip


def _judged(job: AgentJob) -> Event | None:
    if job.status == AgentJob.Status.FAILED or job.verdict == AgentJob.Verdict.FAIL:
        return Event.FAILED
    return Event.RISK if job.verdict == AgentJob.Verdict.RISK else None


def _task_ends(ids: Sequence[UUID]) -> Iterable[End]:
    events = {"failed": Event.FAILED, "partial_failure": Event.RISK, "succeeded": None}
    for task in _latest(AgentTask, ids):
        if task.status in events:
            yield End(
                event=events[task.status], table="agent_tasks", agent=task.agent.principal_key, kind=task.task_type,
                labels={}, part=str(task.job_source_id), row=task,
                path=reverse("admin:jobs_agenttask_change", args=[task.pk]), is_muted=False,
            )  # fmt: skip


def _latest(model: type[Any], ids: Sequence[UUID]) -> list[Any]:
    """These rows in this order, but for those that a retry follows: an attempt is no end of its chain."""
    rows = model.objects.latest_attempts().filter(pk__in=ids).select_related("agent")
    documents = {"spec", "results", "details", "task_payload"} & {field.name for field in model._meta.fields}
    found = {row.pk: row for row in rows.defer(*documents)}
    return [found[row_id] for row_id in ids if row_id in found]


def _detail(row: Leased) -> str:
    """Why it failed, in a few lines."""
    match row:
        case AgentJob(verdict="fail" | "risk", results={"reasons": [*reasons]}):
            return "\n".join(str(reason) for reason in reasons[:MAX_REASONS])[:MAX_ERROR]
        case AgentJob(error=str(text)) | AgentTask(error_message=str(text)):
            return f"{row.failure_class or ''}: {text[:MAX_ERROR]}".removeprefix(": ")
    return ""
