"""The results of a job in the form that another tool reads."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentstore_runner.contract import exports, results
from agentstore_runner.contract.problem import Problem

from jobs.engine.errors import UnknownRow
from jobs.models import AgentJob

from .errors import Invalid, NoResults
from .execution import Caller


@dataclass(frozen=True, kw_only=True)
class Export:
    """A rendering: its bytes, its type, and a name for a file."""

    content: bytes
    content_type: str
    file_name: str


def _json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


# By name: what renders a document of a job, its type, and how its file ends.
FORMS: dict[str, tuple[Callable[[dict[str, Any], str], bytes], str, str]] = {
    "json": (lambda document, _: _json(document), "application/json", "results.json"),
    "ctrf": (lambda document, job: _json(exports.ctrf(document, run_id=job)), "application/json", "ctrf.json"),
    "junit": (lambda document, job: exports.junit(document, run_id=job), "application/xml", "junit.xml"),
}


def results_of(*, job: AgentJob, form: str) -> Export:
    """Render the results of a job; raises Invalid for an unknown form, NoResults where there is nothing to render.

    `json` is the stored document, whatever it is; the others need a document of checks.
    """
    if form not in FORMS:
        raise Invalid([Problem("/format", f"One of {', '.join(FORMS)}.")])
    render, content_type, ending = FORMS[form]
    if job.results is None or (form != "json" and results.problems(job.results)):
        raise NoResults
    return Export(content=render(job.results, str(job.pk)), content_type=content_type, file_name=f"{job.pk}-{ending}")


def own_results(*, caller: Caller, job_id: UUID, form: str) -> Export:
    """Render the results of one of the caller's jobs; raises UnknownRow for those of others, else as `results_of`."""
    job = AgentJob.objects.filter(pk=job_id, agent=caller.agent).first()
    if job is None:
        raise UnknownRow
    return results_of(job=job, form=form)
