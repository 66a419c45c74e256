"""Maintenance of a repository by people: what would go, the form, and what came of the last ones."""

from typing import Any

from agentstore_runner.contract import backup_jobs
from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldBooleanSwitchWidget

from jobs.models import AgentJob, BackupRepository, BackupSnapshot
from jobs.services import governance
from jobs.services.backups import maintaining
from jobs.services.errors import Duplicate, Invalid, NotFound

from .backup_forms import agents, show_at_fields
from .backup_snapshots import completeness, short_id
from .badges import NOTHING, badge, moment, size

RECENT, SHOWN = 10, 1000
CHECKS = [
    ("none", gettext_lazy("not")),
    ("metadata", gettext_lazy("metadata only: quick, but does not see flipped bytes")),
    ("read_data_subset", gettext_lazy("read a part of the data (5 %)")),
    ("read_data", gettext_lazy("read all data: as slow as a restore of everything")),
]


class MaintainForm(forms.Form):
    """What a maintenance does. Names are those of the service."""

    agent = forms.ChoiceField(
        label=gettext_lazy("Agent"), choices=agents, widget=UnfoldAdminSelectWidget,
        help_text=gettext_lazy("Which machine works. It must know the credential, and runs no other job meanwhile."),
    )  # fmt: skip
    check = forms.ChoiceField(
        label=gettext_lazy("Check"), choices=CHECKS, widget=UnfoldAdminSelectWidget,
        help_text=gettext_lazy("It comes first: from a damaged repository nothing is removed."),
    )  # fmt: skip
    apply_retention = forms.BooleanField(
        label=gettext_lazy("Apply retention"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=gettext_lazy("Forgets exactly the snapshots listed below, and frees their space. No way back."),
    )  # fmt: skip
    unlock = forms.BooleanField(
        label=gettext_lazy("Remove stale locks"), required=False, widget=UnfoldBooleanSwitchWidget,
        help_text=gettext_lazy("Of processes that died. The lock of one that lives is never removed."),
    )  # fmt: skip
    seen = forms.CharField(max_length=64, widget=forms.HiddenInput)


def maintain_view(model_admin: Any, request: HttpRequest, repository: BackupRepository) -> HttpResponse:
    """Show what would be done and ask; POST queues the job and leads to its page."""
    found = maintaining.let_go(repository)
    first = {
        "agent": usual_agent(repository), "check": "metadata",
        "apply_retention": bool(found.snapshots) and repository.damaged_at is None,
    }  # fmt: skip
    form = MaintainForm(request.POST if request.method == "POST" else None, initial=first)
    open_job = _open_job(repository)
    if form.is_valid():
        said = dict(form.cleaned_data)
        agent, by = said.pop("agent"), request.user.get_username()
        try:
            plan = maintaining.Plan(**said)
            job_id = maintaining.enqueue_maintenance(repository_id=repository.pk, agent=agent, plan=plan, by=by)
        except NotFound:
            raise Http404 from None
        except Duplicate as refusal:
            open_job = refusal.job_id
            form.add_error(None, _("A maintenance of this repository waits or runs already. Nothing was queued."))
        except Invalid as refusal:
            show_at_fields(form, refusal.problems)
        else:
            messages.success(request, _("Queued."))
            return HttpResponseRedirect(reverse("admin:jobs_agentjob_change", args=[job_id]))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Maintain %s") % repository, "opts": model_admin.opts, "form": form,
        "is_damaged": bool(repository.damaged_at),
        "open_url": reverse("admin:jobs_agentjob_change", args=[open_job]) if open_job else "",
        "mark": found.mark,  # what is sent next agrees to the list that is shown now
        "number": len(found.snapshots), "more": max(0, len(found.snapshots) - SHOWN),
        "snapshots": _shown(found),
        "is_kept": not repository.jobs.filter(retention__isnull=False).exists(),
    }  # fmt: skip
    return TemplateResponse(request, "agentstore/backup_maintain.html", context)


def usual_agent(repository: BackupRepository) -> str:
    """The agent of the latest maintenance, else one that backs up into the repository; empty for none."""
    last = _jobs_of(repository).values_list("agent", flat=True).first()
    backs_up = repository.jobs.filter(sources__retired_at=None).order_by("name", "sources__name")
    return last or backs_up.values_list("sources__agent__principal_key", flat=True).first() or ""


def upkeep_in_words(repository: BackupRepository) -> str:
    """What the clock does for a repository, and on which agent."""
    days = repository.maintenance_every_days
    if days is None:
        return _("by people only")
    said = {"agent": repository.maintenance_agent, "check": repository.get_maintenance_check_display()}
    every = ngettext("every day", "every %d days", days)
    return f"{every % days if days > 1 else every}, " + _("on %(agent)s, check: %(check)s") % said


def upkeep_problem(repository: BackupRepository) -> str:
    """What keeps the maintenance by the clock from being queued; empty for nothing."""
    if repository.maintenance_every_days is None or repository.retired_at is not None:
        return ""
    return " ".join(problem.message for problem in governance.agent_problems(repository.maintenance_agent))


def recent_jobs(repository: BackupRepository, *, sees_jobs: bool) -> list[dict[str, Any]]:
    """The latest maintenance jobs with what was asked and what came of it, whatever their rows hold."""
    return [
        {
            "badge": badge(job.status, job.get_status_display()),
            "verdict": badge(job.verdict, job.get_verdict_display()) if job.verdict else "",
            "name": str(job), "url": reverse("admin:jobs_agentjob_change", args=[job.pk]) if sees_jobs else "",
            "when": moment(job.queued_at), "agent": job.agent_id, "by": job.created_by or NOTHING,
            "asked": ", ".join(_asked(job.spec)), "came": ", ".join(_came(job)) or NOTHING,
        }
        for job in _jobs_of(repository)[:RECENT]
    ]  # fmt: skip


def _jobs_of(repository: BackupRepository) -> Any:
    key = maintaining.dedupe_key(repository)
    return AgentJob.objects.filter(dedupe_key=key, kind=backup_jobs.MAINTENANCE).order_by("-queued_at", "-pk")


def _open_job(repository: BackupRepository) -> Any:
    return _jobs_of(repository).unfinished().values_list("pk", flat=True).first()


def _shown(found: maintaining.LetGo) -> list[dict[str, Any]]:
    rows = BackupSnapshot.objects.filter(pk__in=found.snapshots[:SHOWN]).select_related("source__job", "source__agent")
    return [
        {
            "job": row.source.job or NOTHING, "source": row.source, "agent": row.source.agent or NOTHING,
            "taken": moment(row.taken_at), "id": short_id(row), "badge": completeness(row), "size": size(row.bytes),
        }
        for row in rows.order_by("source__job__name", "source__name", "taken_at", "pk")
    ]  # fmt: skip


def _asked(spec: object) -> list[str]:
    said = spec if isinstance(spec, dict) else {}
    forget = said.get("forget")
    found = [_("remove stale locks")] if said.get("unlock") is True else []
    depth = dict(BackupRepository.CheckDepth.choices).get(str(said.get("check")))
    found += [_("check (%s)") % depth] if depth else []
    if isinstance(forget, list) and forget:
        found.append(ngettext("forget %d snapshot", "forget %d snapshots", len(forget)) % len(forget))
    return found + ([_("prune")] if said.get("prune") is True else [])


def _came(job: AgentJob) -> list[Any]:
    said = job.results if isinstance(job.results, dict) else {}
    found: list[Any] = []
    match said.get("check"):
        case {"ok": bool(is_good)}:
            found.append(_("no damage found") if is_good else _("damage found"))
    for name, words in (("forgotten", _("%d forgotten")), ("kept", _("%d still there")), ("absent", _("%d were gone"))):
        told = said.get(name)
        if isinstance(told, list) and told:
            found.append(words % len(told))
    found += [_("pruned")] if said.get("pruned") is True else []
    return [*found, job.error[:300]] if job.error else found
