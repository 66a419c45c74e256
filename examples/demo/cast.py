"""What the demo's database holds: a login, two agents, a token, and jobs."""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from agentstore_runner.contract.grants import REQUESTS
from django.contrib.auth import get_user_model

from examples import uat
from jobs.models import Agent, AgentJob, Target
from jobs.services import execution, governance, identities, target_registry
from jobs.services.errors import AlreadyEnded, Unauthenticated

BY = "demo"
ADMIN = "admin"
AGENT = "demo-runner"
AGENTS = {
    AGENT: ("Demo runner", Agent.Presence.RESIDENT),
    "github-actions": ("GitHub Actions", Agent.Presence.ON_DEMAND),
}
KIND = "uat.quick-task"
TARGET = "Demo shop"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One job of the demo, and the verdict that it is meant to get."""

    example: str
    title: str
    root_id: UUID
    expected: str

    def latest(self) -> AgentJob:
        """Return the latest attempt."""
        job = AgentJob.objects.chain(self.root_id).last()
        assert job is not None
        return job


def admin_password(folder: Path) -> str | None:
    """Return the password of the demo's login, made once per home folder; None if a person has set another."""
    path = folder / "admin-password"
    user = get_user_model().objects.filter(username=ADMIN).first()
    if user is None:
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(12))
        password = path.read_text()
        get_user_model().objects.create_superuser(ADMIN, "", password)
        return password
    password = path.read_text() if path.exists() else ""
    return password if user.check_password(password) else None


def register_agents() -> None:
    """Register the agents that are missing."""
    present = set(Agent.objects.filter(principal_key__in=AGENTS).values_list("principal_key", flat=True))
    for key, (title, presence) in AGENTS.items():
        if key not in present:
            identities.create_agent(key=key, title=title, presence=presence, by=BY)


def register_target(shop: str) -> None:
    """Let the demo's agent test the shop, which has a new port each time."""
    rules = {
        "name": TARGET, "base_urls": [shop], "environment": "", "enabled": True, "allowed_hosts": [],
        "allowed_secrets": ["UAT_SHOP_PASSWORD"], "allowed_agents": [AGENT], "restricted_requests": list(REQUESTS),
        "allow_local": True, "allow_traces": False,
    }  # fmt: skip
    present = Target.objects.filter(name=TARGET).first()
    if present is None:
        target_registry.register_target(**rules)
    else:
        target_registry.change_target(target_id=present.pk, by=BY, **rules)


def clear_stage() -> None:
    """Cancel what an interrupted demo left: its jobs address a shop that is gone."""
    left = AgentJob.objects.unfinished().filter(agent__principal_key=AGENT, created_by=BY)
    for job_id in left.values_list("pk", flat=True):
        with suppress(AlreadyEnded):
            governance.cancel(AgentJob.objects.all(), job_id, by=BY, reason="That demo has ended.")


def token_file(folder: Path) -> Path:
    """Return the file with a live token of the demo's agent; a new one is issued only when the old one is dead."""
    path = folder / "runner.token"
    try:
        execution.authenticate(bearer=path.read_text())
    except (FileNotFoundError, Unauthenticated):
        agent = Agent.objects.get(principal_key=AGENT)
        issued = identities.issue_token(agent_id=agent.pk, by=BY, note="the runner of the demo")
        path.unlink(missing_ok=True)
        write_secret(path, issued.bearer)
    return path


def enqueue(example: str, shop: str) -> Part:
    """Queue one of the example specs for the shop at that address."""
    spec = _without_hurry(uat.load(example, shop))
    job = governance.enqueue(by=BY, agent=AGENT, kind=KIND, spec=spec, labels={"example": example})
    return Part(example=example, title=spec["title"], root_id=job.job_id, expected=uat.EXPECTED[example])


def _without_hurry(part: Any) -> Any:
    """Return the spec with a minute for every time limit: a busy machine must not change the demo's verdicts."""
    match part:
        case dict():
            return {key: 60_000 if key == "max_ms" else _without_hurry(value) for key, value in part.items()}
        case list():
            return [_without_hurry(item) for item in part]
    return part


def write_secret(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
