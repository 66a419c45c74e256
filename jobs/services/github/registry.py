"""What people do with trust rules: register and change them. They are disabled, never deleted."""

import re
from dataclasses import asdict, dataclass
from uuid import UUID

from agentstore_runner.contract.problem import Problem
from django.db import transaction

from jobs.models import GithubTrust
from jobs.services import governance
from jobs.services.documents import storable_problems
from jobs.services.errors import Invalid, NotFound

from .exchange import issuers
from .trust import ENVIRONMENTS, EVENTS, REF, REUSABLE, WORKFLOW

MAX_TEXT = 400
MAX_ID = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class TrustDefinition:
    """A rule as people write it; the fields are those of `trust.Rule`, the agent is named by its key."""

    agent: str
    issuer: str
    repository_id: int
    repository_owner_id: int
    repository: str = ""
    workflow: str = ""
    reusable_workflow: str = ""
    ref: str = ""
    environment: str = ""
    event_name: str = ""
    runner_environment: str = ""
    enabled: bool = True


@transaction.atomic
def register_trust(definition: TrustDefinition) -> UUID:
    """Add a rule. Raises Invalid."""
    agent = governance.find_agent(definition.agent)
    problems = [*governance.agent_problems(agent), *_problems(definition)]
    if problems:
        raise Invalid(problems)
    return GithubTrust.objects.create(**asdict(definition) | {"agent": agent}).pk


@transaction.atomic
def change_trust(definition: TrustDefinition, *, trust_id: UUID) -> None:
    """Change a rule, all but its agent; bearers that it gave live on for their minutes. Raises Invalid or NotFound."""
    if problems := _problems(definition):
        raise Invalid(problems)
    said = asdict(definition)
    del said["agent"]
    if not GithubTrust.objects.filter(pk=trust_id).update(**said):
        raise NotFound


def _problems(definition: TrustDefinition) -> list[Problem]:
    """What keeps a rule from being stored, or from ever holding."""
    said = asdict(definition)
    problems = storable_problems(said)
    ids = {"repository_id": definition.repository_id, "repository_owner_id": definition.repository_owner_id}
    problems += [
        Problem(f"/{name}", "Must be the positive number that GitHub gave it.")
        for name, number in ids.items()
        if not 1 <= number <= MAX_ID
    ]
    problems += [
        Problem(f"/{name}", f"At most {MAX_TEXT} characters.")
        for name, value in said.items()
        if name not in ("agent", "issuer") and len(str(value)) > MAX_TEXT
    ]
    wanted: tuple[tuple[str, bool, str], ...] = (
        ("issuer", definition.issuer in [one.url for one in issuers()], "Must be one of AGENTSTORE_GITHUB_ISSUERS."),
        ("workflow", _fits(WORKFLOW, definition.workflow), "Must be a file below .github/workflows, such as jobs.yml."),
        ("reusable_workflow", _fits(REUSABLE, definition.reusable_workflow), "Must be OWNER/REPOSITORY/FILE.yml."),
        ("ref", _fits(REF, definition.ref), "Must be whole, such as refs/heads/main."),
        ("event_name", definition.event_name in ("", *EVENTS), f"Must be one of {', '.join(EVENTS)}."),
        ("runner_environment", definition.runner_environment in ("", *ENVIRONMENTS), "Must be one of the two."),
    )
    return problems + [Problem(f"/{name}", wish) for name, is_good, wish in wanted if not is_good]


def _fits(pattern: re.Pattern[str], text: str) -> bool:
    return not text or pattern.fullmatch(text) is not None
