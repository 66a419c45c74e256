"""What a target gives to a spec. Every way to enqueue passes here, and every claim."""

from agentstore_runner.contract.addresses import OffTargetError
from agentstore_runner.contract.grants import Grant, origin
from agentstore_runner.contract.problem import Problem

from jobs.models import Target

from .kinds import CONTRACTS


def problems(*, kind: str, spec: object, agent: str) -> list[Problem]:
    """What a valid spec asks for that no target gives to the agent of that key; pointers lead into the spec."""
    contract = CONTRACTS.get(kind)
    if contract is None or contract.address is None or not isinstance(spec, dict):
        return []
    given = grant(kind=kind, spec=spec, agent=agent)
    if given is None:
        message = "There is no target for this address that this agent may test; a governor adds one under Targets."
        return [Problem(contract.address_pointer, message)]
    return list(contract.grant_problems(spec, given))


def grant(*, kind: str, spec: object, agent: str) -> Grant | None:
    """What the target of a spec's address gives to the agent of that key; None where there is none.

    The spec may be anything: plain SQL may enqueue what no service has seen.
    """
    asked = address(kind=kind, spec=spec)
    if asked is None:
        return None
    target = Target.objects.filter(origins=asked, enabled=True).prefetch_related("origins").first()
    if target is None or (target.allowed_agents and agent not in target.allowed_agents):
        return None
    return Grant(
        name=target.name,
        origins=tuple(found.origin for found in target.origins.all()),
        hosts=tuple(target.allowed_hosts),
        secrets=tuple(target.allowed_secrets),
        environment=target.environment,
        restricted=tuple(target.restricted_requests),
        allow_local=target.allow_local,
        allow_traces=target.allow_traces,
    )


def address(*, kind: str, spec: object) -> str | None:
    """The scheme, host and port that a spec is about; None where it names none, or where its kind opens nothing."""
    contract = CONTRACTS.get(kind)
    if contract is None or contract.address is None or not isinstance(spec, dict):
        return None
    try:
        return origin(contract.address(spec))
    except (OffTargetError, KeyError, TypeError, AttributeError):
        return None
