"""What tasks require of the runner that does them, and who can do it: a claim hands out nothing else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobs.models import Agent, AgentTask


@dataclass(frozen=True, kw_only=True)
class Able:
    """What a runner says that its machine can do, and the program that does it."""

    names: Sequence[str]
    engine: str = ""


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Why a waiting task is handed to nobody."""

    names: Sequence[str]  # what is required and not reported
    is_known: bool  # whether the task's agent has reported anything yet
    others: bool  # whether another agent could do it


def note(agent: Agent, able: Able) -> None:
    """Keep what an agent's runner reported last, where it is something else than before."""
    names = sorted(set(able.names))
    if agent.capabilities != names or agent.engine != able.engine:
        Agent.objects.filter(pk=agent.pk).update(capabilities=names, engine=able.engine)


def required(payload: Any) -> list[str]:
    """The names in a payload's `requires`; none where a SQL client wrote something else there, as a claim reads it."""
    names = payload.get("requires") if isinstance(payload, dict) else None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return sorted(set(names)) if is_list and names else []


def lacks(tasks: Iterable[AgentTask]) -> dict[UUID, Lack]:
    """What keeps waiting tasks from their agents, by what those reported last; tasks that nothing keeps are left out.

    One question to the database, and none where nothing is lacking.
    """
    missing = {task: _missing(task) for task in tasks if task.status == AgentTask.lifecycle.waiting}
    missing = {task: names for task, names in missing.items() if names}
    agents = Agent.objects.exclude(state=Agent.State.DISABLED).exclude(capabilities=None)
    agents = agents if missing else agents.none()
    able = [(pk, frozenset(found or ())) for pk, found in agents.values_list("pk", "capabilities")]
    return {
        task.pk: Lack(
            names=names, is_known=task.agent.capabilities is not None,
            others=any(pk != task.agent_id and found.issuperset(names) for pk, found in able),
        )
        for task, names in missing.items()
    }  # fmt: skip


def _missing(task: AgentTask) -> list[str]:
    return [name for name in required(task.task_payload) if name not in (task.agent.capabilities or ())]
