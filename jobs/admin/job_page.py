"""What a job's page says: state, verdict, checks with their evidence, attempts, history, and what happens next."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from agentstore_runner.contract.results import problems as results_problems
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.timezone import now
from django.utils.translation import gettext as _

from artifacts.models import JobArtifact
from jobs.engine.leased import Leased
from jobs.models import AgentJob, AuditEvent, JobKind, ScheduleSlot
from jobs.services import exports, governance

from .badges import badge, in_words, moment, size, span
from .timeline import Line, timeline
from .trends import trends_url
from .what_next import limits, meaning, policy, policy_lines, what_next

FORM_NAMES = {"json": "JSON", "ctrf": "CTRF", "junit": "JUnit"}
CONTROL = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A file of the job as the page shows it. `open_url` is empty for those who may not open files."""

    name: str
    content_type: str
    size: str
    sha256: str
    open_url: str
    thumbnail_url: str
    is_missing: bool
    is_unverified: bool
    is_sensitive: bool
    masked: int


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of the results; whatever a runner sent, only text comes out."""

    title: str
    key: str
    severity: Any
    status: Any
    took: str
    code: str
    message: str
    step: str
    warnings: Sequence[str]
    detail: Sequence[tuple[str, str]]
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a running job says it is."""

    done: int
    total: int
    title: str

    @property
    def percent(self) -> int:
        """0 to 100."""
        return min(100, max(0, round(100 * self.done / self.total))) if self.total > 0 else 0


def job_context(job: AgentJob, request: HttpRequest, actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the refreshing part of the page needs; eleven queries at most."""
    user, at = request.user, now()
    chain = list(AgentJob.objects.chain(job.chain_id).defer("spec", "results")) or [job]
    files = _evidence(
        job,
        may_open=user.has_perm("artifacts.open_jobartifact"),
        may_open_sensitive=user.has_perm("artifacts.open_sensitive_jobartifact"),
    )
    kind = JobKind.objects.defer("schema").filter(name=job.kind).first()
    found = policy(kind)
    results = job.results if isinstance(job.results, dict) else {}
    checks = _checks(results, files)
    shown = {id(file) for check in checks for file in check.evidence}
    lines = timeline(chain)
    return {
        "job": job,
        "is_live": job.status in AgentJob.lifecycle.unfinished,
        "status": badge(job.status, job.get_status_display()),
        "verdict": badge(job.verdict, job.get_verdict_display()) if job.verdict else "",
        "reasons": [text(reason) for reason in _list(results.get("reasons"))],
        "sentence": sentence(job, at),
        "next": what_next(job, chain, found, at),
        "meaning": meaning(job.failure_class),
        "policy": policy_lines(found, job.failure_class),
        "limits": limits(kind, job, found),
        "progress": _progress(job),
        "spec_title": text(job.spec.get("title") or "") if isinstance(job.spec, dict) else "",
        "facts": _facts(job, at) + _origin(job, may_see=user.has_perm("jobs.view_schedule")),
        "checks": checks,
        "counts": _counts(results),
        "files": files,
        "pictures": [file for file in files if id(file) not in shown and file.content_type.startswith("image/")],
        "chain": [_attempt(row, job, at) for row in reversed(chain)],
        "is_latest": chain[-1].pk == job.pk,
        "latest_url": reverse("admin:jobs_agentjob_change", args=[chain[-1].pk]),
        "timeline": lines,
        "differs": next((line.why for line in lines if _differs(line, job)), ""),
        "spec": pretty(job.spec),
        "exports": _exports(job, results),
        "results": pretty(job.results) if job.results is not None else "",
        "details": pretty(job.details) if job.details else "",
        "run_url": run_url(job.run_ref),
        "trends_url": trends_url(job.kind, agent=job.agent_id),
        "again_url": f"{reverse('admin:jobs_agentjob_add')}?again={job.pk}"
        if user.has_perm("jobs.add_agentjob")
        else "",
        "export_url": reverse("artifacts:export", args=[job.pk]) if user.has_perm("artifacts.open_jobartifact") else "",
        "agent_url": reverse("admin:jobs_agent_change", args=[job.agent.pk])
        if user.has_perm("jobs.view_agent")
        else "",
        "actions": actions,
        "kind_known": kind is not None,
    }


def _differs(line: Line, job: AgentJob) -> bool:
    return line.word == AuditEvent.Tag.VERDICT_DIFFERS and line.attempt == job.attempt


def offered(row: Leased, rows: Any, *, is_latest: bool) -> tuple[str, ...]:
    """The acts that a row's state allows, for the buttons; the services decide again."""
    if row.status in rows.life.unfinished:
        return ("cancel_row", "force_row") if row.cancel_requested_at is None else ("force_row",)
    return ("retry_row",) if is_latest and row.status in governance.retryable(rows) else ()


def sentence(job: AgentJob, at: datetime) -> str:
    """The state in one sentence."""
    when = {"by": job.created_by or _("an SQL client"), "agent": job.agent_id}
    match job.status:
        case AgentJob.Status.QUEUED if job.not_before and job.not_before > at:
            return _("Waits until its time comes, %(when)s.") % {"when": in_words(job.not_before, at)}
        case AgentJob.Status.QUEUED:
            return _("Waits for %(agent)s to ask for work.") % when
        case AgentJob.Status.RUNNING if job.overdue_at and job.overdue_at == job.cancel_requested_at:
            return _("Its maximum run time has passed; its runner was asked to stop %(when)s.") % {
                "when": in_words(job.overdue_at, at)
            }
        case AgentJob.Status.RUNNING if job.cancel_requested_at:
            asked = {"by": job.cancel_requested_by, "when": in_words(job.cancel_requested_at, at)}
            if job.cancel_delivered_at:
                return _("%(by)s asked it to stop %(when)s; the runner knows.") % asked
            return _("%(by)s asked it to stop %(when)s; the runner learns of it with its next heartbeat.") % asked
        case AgentJob.Status.RUNNING:
            return _("%(agent)s works on it.") % when
        case AgentJob.Status.CANCELLED:
            stopped = {
                "by": job.cancel_requested_by or _("the store"),
                "why": job.cancel_reason or _("no reason given"),
            }
            return _("Cancelled by %(by)s: %(why)s") % stopped
        case AgentJob.Status.FAILED:
            return _("The work itself failed; nothing was judged.")
    return ""


def run_url(run_ref: str | None) -> str:
    """The run's address if it is safe to follow: http or https, a host, no credentials, no control characters."""
    if not run_ref or CONTROL.search(run_ref):
        return ""
    try:
        parts = urlsplit(run_ref)
        is_safe = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return ""
    return run_ref if is_safe else ""


def pretty(document: Any) -> str:
    """JSON for people."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def text(value: Any) -> str:
    """Whatever a document held, as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 10**12 else 0


def _progress(job: AgentJob) -> Progress | None:
    said = job.progress
    if job.status != AgentJob.Status.RUNNING or not isinstance(said, dict):
        return None
    return Progress(
        done=_number(said.get("done")), total=_number(said.get("total")), title=text(said.get("title") or "")
    )


def _facts(job: AgentJob, at: datetime) -> list[tuple[str, Any]]:
    """Label and value of what is known; only what there is."""
    runs = (job.finished_at or at) - job.started_at if job.started_at else None
    waited = (job.started_at or job.finished_at or at) - job.queued_at
    silent = at - job.heartbeat_at if job.heartbeat_at and job.status == AgentJob.Status.RUNNING else None
    facts: list[tuple[str, Any]] = [
        (_("Attempt"), _("%(n)d of %(max)d") % {"n": job.attempt, "max": max(job.attempt, job.max_attempts)}),
        (_("Queued"), moment(job.queued_at, at=at)),
        (_("Waited"), span(max(waited, timedelta()))),
        (_("Started"), moment(job.started_at, at=at) if job.started_at else ""),
        (_("Ended"), moment(job.finished_at, at=at) if job.finished_at else ""),
        (_("Took") if job.finished_at else _("Runs for"), span(runs) if runs else ""),
        (_("Last sign of life"), _("%s ago") % span(silent) if silent else ""),
        (_("Created by"), job.created_by or ""),
        (_("Runner"), job.claimed_by or ""),
        (_("Priority"), job.priority or ""),
        (_("Not before"), moment(job.not_before, at=at) if job.not_before else ""),
        (_("Expires"), moment(job.expires_at, at=at) if job.expires_at else ""),
        (_("Dedupe key"), job.dedupe_key or ""),
        (_("Concurrency key"), job.concurrency_key or ""),
        (_("Labels"), ", ".join(f"{key}={text(value)}" for key, value in job.labels.items())
         if isinstance(job.labels, dict) else ""),
    ]  # fmt: skip
    return [(label, value) for label, value in facts if value != ""]


def _exports(job: AgentJob, results: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and addresses of what the results can be downloaded as."""
    if job.results is None:
        return []
    url = reverse("admin:jobs_agentjob_results", args=[job.pk])
    forms = ("json",) if results_problems(results) else tuple(exports.FORMS)
    return [(FORM_NAMES[form], f"{url}?format={form}") for form in forms]


def _origin(job: AgentJob, *, may_see: bool) -> list[tuple[str, Any]]:
    """The schedule and the time that made the job, on the pages of all its attempts."""
    if job.schedule_id is None or not may_see:
        return []
    slot = ScheduleSlot.objects.select_related("schedule").filter(job=job.chain_id).first()
    if slot is None:
        return []
    url = reverse("admin:jobs_schedule_change", args=[slot.schedule_id])
    return [
        (_("Schedule"), format_html('<a href="{}">{}</a>', url, slot.schedule.name)),
        (_("Run by hand") if slot.requested_by else _("Was due"), moment(slot.due_at)),
    ]


def _counts(results: dict[str, Any]) -> list[tuple[str, Any]]:
    totals: dict[str, int] = {}
    for check in _list(results.get("checks")):
        if isinstance(check, dict):
            word = text(check.get("status"))
            totals[word] = totals.get(word, 0) + 1
    return [(badge(word), total) for word, total in totals.items()]


def _checks(results: dict[str, Any], files: Sequence[Evidence]) -> list[Check]:
    by_name = {file.name: file for file in files}
    found = []
    for number, check in zip(count(1), _list(results.get("checks"))):
        if not isinstance(check, dict):
            continue
        names = [text(item.get("name") if isinstance(item, dict) else item) for item in _list(check.get("artifacts"))]
        detail = check.get("detail")
        found.append(Check(
            title=text(check.get("title") or check.get("id") or number), key=text(check.get("id") or ""),
            severity=badge(text(check.get("severity") or "")), status=badge(text(check.get("status") or "")),
            took=span(timedelta(milliseconds=_number(check.get("duration_ms")))), code=text(check.get("code") or ""),
            message=text(check.get("message") or ""), step=_place(check.get("step")),
            warnings=[text(item) for item in _list(check.get("warnings")) + _list(check.get("notes"))],
            detail=[(key, text(value)) for key, value in detail.items()] if isinstance(detail, dict) else (),
            evidence=[by_name[name] for name in names if name in by_name],
        ))  # fmt: skip
    return found


def _place(step: Any) -> str:
    """The number of a step as people count: results count from 0."""
    return text(step + 1) if isinstance(step, int) else text(step or "")


def _evidence(job: AgentJob, *, may_open: bool, may_open_sensitive: bool) -> list[Evidence]:
    found = []
    for row in JobArtifact.objects.filter(job=job).order_by("created_at", "name"):
        opens = may_open and (may_open_sensitive or not row.sensitive) and not row.missing_at
        found.append(Evidence(
            name=row.name, content_type=row.content_type, size=size(row.size_bytes), sha256=row.sha256 or "",
            open_url=reverse("artifacts:open", args=[row.pk]) if opens else "",
            thumbnail_url=reverse("artifacts:thumbnail", args=[row.pk]) if row.thumbnail_path else "",
            is_missing=row.missing_at is not None, is_sensitive=row.sensitive, masked=row.masked,
            is_unverified=row.sha256 is not None and row.verified_at is None and row.missing_at is None,
        ))  # fmt: skip
    return found


def _attempt(row: AgentJob, shown: AgentJob, at: datetime) -> dict[str, Any]:
    return {
        "number": row.attempt,
        "url": reverse("admin:jobs_agentjob_change", args=[row.pk]),
        "is_shown": row.pk == shown.pk,
        "status": badge(row.status, row.get_status_display()),
        "verdict": badge(row.verdict, row.get_verdict_display()) if row.verdict else "",
        "when": moment(row.finished_at or row.started_at or row.queued_at, at=at),
        "failure_class": row.failure_class or "",
    }
