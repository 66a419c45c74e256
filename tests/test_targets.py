"""Targets: no spec is enqueued, retried or claimed with more than the target of its address gives."""

from collections.abc import Callable
from typing import Any

import pytest
from agentstore_runner.contract.grants import REQUESTS, Grant, read
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from jobs.models import Agent, AgentJob, AuditEvent, Target, TargetOrigin
from jobs.services import governance, target_registry
from jobs.services.errors import Invalid
from jobs.services.shipped_kinds import sync_kinds
from tests.api.runner_client import JOBS, Runner
from tests.factories import AgentFactory, AgentJobFactory, TargetFactory

pytestmark = pytest.mark.django_db

KIND = "uat.quick-task"
SHOP = "https://shop.example"
ADD = reverse("admin:jobs_target_add")


@pytest.fixture
def agent() -> Agent:
    """An agent that may be given the shipped kinds."""
    sync_kinds()
    return AgentFactory()


def spec(base_url: str = f"{SHOP}/start", **more: Any) -> dict[str, Any]:
    target = {"base_url": base_url, **more.pop("target", {})}
    return {"version": 1, "target": target, "checks": [{"id": "a", "title": "A", "steps": [{"goto": "/"}]}], **more}


def enqueue(agent: Agent, asked: dict[str, Any]) -> AgentJob:
    done = governance.enqueue(by="ada", agent=agent.principal_key, kind=KIND, spec=asked)
    return AgentJob.objects.get(pk=done.job_id)


def refusals(act: Callable[[], object]) -> set[str]:
    with pytest.raises(Invalid) as refusal:
        act()
    return {problem.pointer for problem in refusal.value.problems}


def values(**other: Any) -> dict[str, Any]:
    """A target that is right, apart from `other`."""
    return {
        "name": "Shop", "base_urls": [SHOP], "environment": "", "enabled": True, "allowed_hosts": [],
        "allowed_secrets": [], "allowed_agents": [], "restricted_requests": list(REQUESTS), "allow_local": False,
        "allow_traces": False,
    } | other  # fmt: skip


def test_a_spec_is_enqueued_only_for_an_address_that_has_a_target(agent: Agent) -> None:
    assert refusals(lambda: enqueue(agent, spec())) == {"/spec/target/base_url"}
    TargetFactory(base_url="https://other.example")
    TargetFactory(base_url=f"{SHOP}:8443")
    assert refusals(lambda: enqueue(agent, spec())) == {"/spec/target/base_url"}
    TargetFactory(base_url=SHOP)
    assert enqueue(agent, spec()).status == "queued"


@pytest.mark.parametrize("rules", [{"enabled": False}, {"allowed_agents": ["somebody-else"]}])
def test_a_target_that_is_not_for_this_job_is_none(agent: Agent, rules: dict[str, Any]) -> None:
    TargetFactory(base_url=SHOP, **rules)
    assert refusals(lambda: enqueue(agent, spec())) == {"/spec/target/base_url"}
    Target.objects.update(enabled=True, allowed_agents=[agent.principal_key])
    assert enqueue(agent, spec()).status == "queued"


def test_hosts_secrets_environment_and_traces_beyond_the_target_are_refused_at_their_places(agent: Agent) -> None:
    TargetFactory(base_url=SHOP, allowed_hosts=["cdn.example"], allowed_secrets=["UAT_PW"], environment="staging")
    asked = spec(
        target={"allow_hosts": ["cdn.example", "evil.example"], "environment": "production"},
        secrets={"pw": {"env": "UAT_PW"}, "other": {"env": "UAT_OTHER"}},
        flags={"trace": "on-failure"},
    )
    assert refusals(lambda: enqueue(agent, asked)) == {
        "/spec/target/allow_hosts/1", "/spec/target/environment", "/spec/secrets/other/env", "/spec/flags/trace",
    }  # fmt: skip


def test_a_probe_needs_a_target_as_a_check_run_does(agent: Agent) -> None:
    asked = {"version": 1, "url": f"{SHOP}/health", "expect": {"status": 200}, "secrets": {"k": {"env": "UAT_K"}}}

    def probe() -> governance.Enqueued:
        return governance.enqueue(by="ada", agent=agent.principal_key, kind="http.probe", spec=asked)

    assert refusals(probe) == {"/spec/url"}
    TargetFactory(base_url=SHOP)
    assert refusals(probe) == {"/spec/secrets/k/env"}
    Target.objects.update(allowed_secrets=["UAT_K"])
    assert probe().kind == "http.probe"


def test_loopback_is_refused_unless_the_target_says_so(agent: Agent) -> None:
    TargetFactory(base_url="http://127.0.0.1:8999")
    local = spec("http://127.0.0.1:8999")
    assert refusals(lambda: enqueue(agent, local)) == {"/spec/target/base_url"}
    Target.objects.update(allow_local=True)
    assert enqueue(agent, local).status == "queued"


def test_a_person_cannot_retry_what_the_target_allows_no_longer(agent: Agent) -> None:
    TargetFactory(base_url=SHOP)
    job = enqueue(agent, spec())
    rows = AgentJob.objects.all()
    rows.filter(pk=job.pk).update(status="running", started_at=job.created_at)
    rows.filter(pk=job.pk).update(status="failed", error="x", failure_class="internal", finished_at=job.created_at)
    Target.objects.update(enabled=False)
    assert refusals(lambda: governance.retry(rows, job.pk, by="ada", reason="again")) == {"/spec/target/base_url"}
    Target.objects.update(enabled=True)
    assert governance.retry(rows, job.pk, by="ada", reason="again")


def test_a_claimed_job_carries_what_its_target_gives_at_that_moment(agent: Agent) -> None:
    runner = Runner(agent)
    TargetFactory(name="Shop", base_url=SHOP, allowed_secrets=["UAT_PW"])
    enqueue(agent, spec())
    Target.objects.update(restricted_requests=["script"])
    body = runner.claim_body(JOBS, kinds=[KIND])
    given = runner.send("POST", "jobs/claim", body).json()["target"]
    assert read(given) == Grant(name="Shop", origins=(SHOP,), secrets=("UAT_PW",), restricted=("script",))
    Target.objects.update(enabled=False)
    assert runner.send("POST", "jobs/claim", body).json()["target"] is None


@pytest.mark.parametrize(
    "stored",
    [{}, {"target": None}, {"target": []}, {"target": {"base_url": 7}}, {"target": {"base_url": "//x"}},
     {"target": {"base_url": "https://[::"}}, {"target": {"base_url": "https://\ufffd\u2100"}}, spec()],
)  # fmt: skip
def test_what_plain_sql_enqueued_is_claimed_without_a_target(agent: Agent, stored: dict[str, Any]) -> None:
    AgentJobFactory(agent=agent, kind=KIND, spec=stored)
    runner = Runner(agent)
    answer = runner.send("POST", "jobs/claim", runner.claim_body(JOBS, kinds=[KIND]))
    assert (answer.status_code, answer.json()["target"]) == (201, None)


def test_an_address_has_one_target(db: None) -> None:
    target_registry.register_target(**values())
    again = values(name="Other", base_urls=["https://new.example", f"{SHOP}:443/"])
    assert refusals(lambda: target_registry.register_target(**again)) == {"/base_urls"}
    assert not Target.objects.filter(name="Other").exists()
    assert not TargetOrigin.objects.filter(origin="https://new.example").exists()
    assert refusals(lambda: target_registry.register_target(**values(base_urls=["https://new.example"]))) == {"/name"}


def test_a_change_replaces_base_urls_and_is_in_the_history_with_its_author(agent: Agent) -> None:
    user = User.objects.create_superuser("ada", "", "a password")
    client = Client()
    client.force_login(user)
    assert client.post(ADD, form()).status_code == 302
    target = Target.objects.get()
    url = reverse("admin:jobs_target_change", args=[target.pk])
    answer = client.post(
        url, form(base_urls="https://new.example\nhttps://shop.example", allowed_agents=agent.principal_key)
    )
    assert answer.status_code == 302, answer.context["form"].errors
    assert client.post(url, form(base_urls="https://new.example", enabled="")).status_code == 302
    assert [found.origin for found in target.origins.all()] == ["https://new.example"]
    events = list(apps.get_model("jobs", "TargetEvent").objects.order_by("pgh_id"))
    assert [(event.pgh_label, event.enabled) for event in events] == [
        ("insert", True),
        ("update", True),
        ("update", False),
    ]
    assert {event.pgh_context.metadata["user"] for event in events} == {user.pk}
    origins = apps.get_model("jobs", "TargetOriginEvent").objects.order_by("pgh_id")
    assert [(event.pgh_label, event.origin) for event in origins] == [
        ("insert", SHOP), ("insert", "https://new.example"), ("delete", SHOP),
    ]  # fmt: skip


def form(**other: Any) -> dict[str, Any]:
    """A form that is right, apart from `other`."""
    right = {"name": "Shop", "base_urls": SHOP, "enabled": "on", "restricted_requests": ["script", "image"]}
    return right | other


@pytest.mark.parametrize(("field", "value"), [
    ("name", ""), ("name", "\x00"), ("name", "x" * 101), ("environment", "\x00"), ("environment", "x" * 61),
    ("base_urls", ""), ("base_urls", "shop.example"), ("base_urls", "ftp://shop.example"), ("base_urls", f"{SHOP}/a"),
    ("base_urls", f"{SHOP}?a"), ("base_urls", "https://a:b@shop.example"), ("base_urls", "https://shop.example:0"),
    ("base_urls", "https://shop.example:99999"), ("base_urls", "http://localhost"), ("base_urls", "http://[::1]:80"),
    ("base_urls", "https://a\\b"), ("base_urls", "https://\x00"), ("base_urls", "https://[::"),
    ("base_urls", " ".join(f"https://h{n}.example" for n in range(101))), ("base_urls", "x" * 5_000_000),
    ("allowed_hosts", "https://cdn.example"), ("allowed_hosts", "*"), ("allowed_hosts", "a/b"),
    ("allowed_hosts", "CDN.example"), ("allowed_hosts", "169.254.169.254"), ("allowed_hosts", "\x00"),
    ("allowed_secrets", "PATH"), ("allowed_secrets", "UAT_a"), ("allowed_secrets", "UAT_A=b"),
    ("allowed_agents", "nobody"), ("allowed_agents", "\x00"), ("restricted_requests", ["everything"]),
], ids=lambda text: str(text)[:24].encode("unicode_escape").decode())  # fmt: skip
def test_a_target_that_cannot_be_is_refused_at_the_field(field: str, value: Any, superuser: Client) -> None:
    answer = superuser.post(ADD, form(**{field: value}))
    assert list(answer.context["form"].errors) == [field]
    assert not Target.objects.exists()


@pytest.fixture
def superuser() -> Client:
    """A client of somebody who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", "", "a password"))
    return client


def test_the_form_shows_what_is_stored_and_saves_it_unchanged(superuser: Client) -> None:
    rules = values(allowed_hosts=["*.img.example", "api.example:8443"], restricted_requests=["font"], environment="x")
    target_id = target_registry.register_target(**rules)
    url = reverse("admin:jobs_target_change", args=[target_id])
    shown = superuser.get(url).context["form"]
    sent = {name: shown[name].value() or "" for name in shown.fields}
    assert superuser.post(url, sent).status_code == 302
    target = Target.objects.get()
    assert {name: getattr(target, name) for name in rules if name != "base_urls"} == {
        name: value for name, value in rules.items() if name != "base_urls"
    }
    assert [found.origin for found in target.origins.all()] == [SHOP]


RUNNING = {
    "it is disabled": {"enabled": False},
    "its agents are others": {"allowed_agents": ["another"]},
    "a secret is no longer its": {"allowed_secrets": []},
    "its address is another": {"base_urls": ["https://moved.example"]},
}


@pytest.mark.parametrize("change", RUNNING.values(), ids=RUNNING)
def test_what_runs_is_asked_to_stop_when_its_target_no_longer_allows_it(
    change: dict[str, Any], agent: Agent, superuser: Client
) -> None:
    AgentFactory(principal_key="another")
    rules = values(allowed_secrets=["UAT_KEY"])
    target_id = target_registry.register_target(**rules)
    target_registry.register_target(**values(name="other", base_urls=["https://other.example"]))
    asked = spec(secrets={"key": {"env": "UAT_KEY"}})
    asked["checks"][0]["steps"] = [{"goto": "/"}, {"fill": {"locator": {"css": "#key"}, "value": "${secret:key}"}}]
    mine, waiting = enqueue(agent, asked), enqueue(agent, asked)
    others = enqueue(agent, spec("https://other.example"))
    runner = Runner(agent)
    for job in (mine, others):
        assert runner.claim(JOBS, job_id=str(job.pk), kinds=[KIND]).status_code == 201

    with_change = {**rules, **change}
    sent = {name: "\n".join(value) if isinstance(value, list) and name != "restricted_requests" else value
            for name, value in with_change.items() if value is not False}  # fmt: skip
    answer = superuser.post(reverse("admin:jobs_target_change", args=[target_id]), sent, follow=True)

    assert "1 running job that it no longer allows was asked to stop." in answer.content.decode()
    rows = {job.pk: job for job in AgentJob.objects.all()}
    assert rows[mine.pk].cancel_requested_by == "root"
    assert (rows[mine.pk].cancel_reason or "").startswith("The target Shop no longer allows it: ")
    assert rows[others.pk].cancel_requested_at is None
    assert (rows[waiting.pk].status, rows[waiting.pk].cancel_requested_at) == ("queued", None)
    assert AuditEvent.objects.get(tag="cancel_requested").subject_id == mine.pk


def test_a_change_that_takes_nothing_away_stops_nothing(agent: Agent) -> None:
    rules = values()
    target_id = target_registry.register_target(**rules)
    job = enqueue(agent, spec())
    assert Runner(agent).claim(JOBS, job_id=str(job.pk), kinds=[KIND]).status_code == 201
    more = {**rules, "allowed_hosts": ["cdn.example"], "environment": ""}
    assert target_registry.change_target(target_id=target_id, by="ada", **more) == 0
    assert AgentJob.objects.get().cancel_requested_at is None


def test_a_target_shows_who_changed_what(superuser: Client) -> None:
    assert superuser.post(ADD, form()).status_code == 302
    target = Target.objects.get()
    url = reverse("admin:jobs_target_change", args=[target.pk])
    assert superuser.post(url, form(environment="staging", base_urls="https://b.example")).status_code == 302
    lines = [(line.what, line.who, line.why) for line in superuser.get(url).context["timeline"]]
    assert ("changed", "root", "Environment: staging") in lines
    assert ("base URL added", "root", "https://b.example") in lines
    assert ("base URL removed", "root", SHOP) in lines
    assert lines[-1][0] in ("registered", "base URL added")
