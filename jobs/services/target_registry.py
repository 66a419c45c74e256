"""What people do with targets: register and change them, and so stop what they no longer allow."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from agentstore_runner.contract.addresses import OffTargetError
from agentstore_runner.contract.grants import HOST, REQUESTS, SECRET, is_local, origin
from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction

from jobs.engine.leases import violated
from jobs.models import Agent, AgentJob, Target, TargetOrigin

from . import governance, targets
from .documents import UNSTORABLE
from .errors import AlreadyEnded, Invalid, NotFound
from .kinds import CONTRACTS

MAX_NAME, MAX_ENVIRONMENT, MAX_LIST = 100, 60, 100


@transaction.atomic
def register_target(*, name: str, base_urls: Iterable[str], **values: Any) -> UUID:
    """Add a target; the values are those of `change_target`. Raises Invalid."""
    origins, found = _checked(name, base_urls, **values)
    if found:
        raise Invalid(found)
    try:
        with transaction.atomic():
            target = Target.objects.create(name=name, **values)
    except IntegrityError:
        raise Invalid([Problem("/name", "There is a target of that name already.")]) from None
    _give(target, origins)
    return target.pk


@transaction.atomic
def change_target(
    *,
    target_id: UUID,
    by: str,
    name: str,
    base_urls: Iterable[str],
    environment: str,
    enabled: bool,
    allowed_hosts: list[str],
    allowed_secrets: list[str],
    allowed_agents: list[str],
    restricted_requests: list[str],
    allow_local: bool,
    allow_traces: bool,
) -> int:
    """Change a target, also for jobs that wait: its rules are read again when a job is claimed.

    Running jobs that it no longer allows are asked to stop; their number is the answer. Raises Invalid or NotFound.
    """
    values = {
        "environment": environment, "enabled": enabled, "allowed_hosts": allowed_hosts,
        "allowed_secrets": allowed_secrets, "allowed_agents": allowed_agents,
        "restricted_requests": restricted_requests, "allow_local": allow_local, "allow_traces": allow_traces,
    }  # fmt: skip
    origins, found = _checked(name, base_urls, **values)
    if found:
        raise Invalid(found)
    target = Target.objects.select_for_update().filter(pk=target_id).first()
    if target is None:
        raise NotFound
    try:
        with transaction.atomic():
            Target.objects.filter(pk=target_id).update(name=name, **values)
    except IntegrityError:
        raise Invalid([Problem("/name", "There is a target of that name already.")]) from None
    before = set(target.origins.values_list("origin", flat=True))
    target.origins.exclude(origin__in=origins).delete()
    _give(target, origins)
    return _stop_what_is_not_allowed(name, before | set(origins), by=by)


def _stop_what_is_not_allowed(name: str, addresses: set[str], *, by: str) -> int:
    """Ask every running job of these addresses to stop whose spec the targets of now refuse."""
    count = 0
    rows = AgentJob.objects.all()
    for job in rows.filter(status__in=rows.life.leased, kind__in=CONTRACTS, cancel_requested_at=None):
        if targets.address(kind=job.kind, spec=job.spec) not in addresses:
            continue
        if found := targets.problems(kind=job.kind, spec=job.spec, agent=job.agent_id):
            reason = f"The target {name} no longer allows it: {found[0].message}"[: governance.MAX_REASON]
            with suppress(AlreadyEnded):
                governance.cancel(rows, job.pk, by=by, reason=reason)
                count += 1
    return count


def _give(target: Target, origins: list[str]) -> None:
    """Add the base URLs that a target lacks; one that is another target's is refused."""
    present = set(target.origins.values_list("origin", flat=True))
    missing = [TargetOrigin(origin=one, target=target) for one in origins if one not in present]
    try:
        with transaction.atomic():
            TargetOrigin.objects.bulk_create(missing)
    except IntegrityError as conflict:
        if violated(conflict) != "target_origins_pkey":
            raise
        taken = TargetOrigin.objects.filter(origin__in=origins).exclude(target=target).select_related("target").first()
        of = f"{taken.origin} belongs to the target {taken.target}." if taken else "One belongs to another target."
        raise Invalid([Problem("/base_urls", of)]) from None


def _checked(name: str, base_urls: Iterable[str], **values: Any) -> tuple[list[str], list[Problem]]:
    """The base URLs in their one spelling, and everything that is wrong with a target."""
    found = []
    for field, text, longest in (("name", name, MAX_NAME), ("environment", values["environment"], MAX_ENVIRONMENT)):
        if len(text) > longest or UNSTORABLE.search(text):
            found.append(Problem(f"/{field}", f"At most {longest} characters, without NUL or half surrogate pairs."))
    if not name.strip():
        found.append(Problem("/name", "Give it a name."))
    origins, wrong = _origins(list(base_urls), allow_local=values["allow_local"])
    found += wrong
    for field, pattern, wish in (
        ("allowed_hosts", HOST, "is not host, host:port or *.domain in small letters"),
        ("allowed_secrets", SECRET, "is not the name of a variable such as UAT_SHOP_PASSWORD"),
    ):
        found += [
            Problem(f"/{field}", f"“{text[:80]}” {wish}.") for text in values[field] if not pattern.fullmatch(text)
        ]
    known = set(
        Agent.objects.filter(principal_key__in=_storable(values["allowed_agents"])).values_list(
            "principal_key", flat=True
        )
    )
    found += [
        Problem("/allowed_agents", f"There is no agent “{key[:80]}”.")
        for key in values["allowed_agents"]
        if key not in known
    ]
    found += [
        Problem("/restricted_requests", f"“{word[:80]}” is none of {', '.join(REQUESTS)}.")
        for word in values["restricted_requests"]
        if word not in REQUESTS
    ]
    for field in ("allowed_hosts", "allowed_secrets", "allowed_agents"):
        if len(values[field]) > MAX_LIST:
            found.append(Problem(f"/{field}", f"At most {MAX_LIST} entries."))
    if not values["allow_local"]:
        found += [
            Problem("/allowed_hosts", f"{text} is a loopback or link-local address; allow those, or leave it out.")
            for text in values["allowed_hosts"]
            if is_local(text.partition(":")[0])
        ]
    return origins, found


def _origins(base_urls: list[str], *, allow_local: bool) -> tuple[list[str], list[Problem]]:
    origins: list[str] = []
    found = []
    for url in base_urls:
        try:
            one = origin(url)
        except OffTargetError as error:
            found.append(Problem("/base_urls", f"“{url[:80]}”: {error}."))
            continue
        rest = urlsplit(url)
        if rest.path not in ("", "/") or rest.query or rest.fragment or len(one) > 300:
            found.append(Problem("/base_urls", f"“{url[:80]}”: only scheme, host and port count, such as {one[:80]}."))
        elif is_local(urlsplit(one).hostname or "") and not allow_local:
            found.append(
                Problem("/base_urls", f"{one} is a loopback or link-local address; allow those, or leave it out.")
            )
        elif one not in origins:
            origins.append(one)
    if not base_urls:
        found.append(Problem("/base_urls", "Give at least one address, such as https://staging.example.org."))
    if len(base_urls) > MAX_LIST:
        found.append(Problem("/base_urls", f"At most {MAX_LIST} entries."))
    return origins, found


def _storable(texts: list[str]) -> list[str]:
    return [text for text in texts if not UNSTORABLE.search(text)]
