"""Rows for tests, as the services would leave them."""

from datetime import UTC, datetime
from typing import Any

import factory
from factory.django import DjangoModelFactory

from jobs.models import (
    Agent,
    AgentJob,
    AgentTask,
    AgentToken,
    BackupJob,
    BackupJobRun,
    BackupJobSource,
    BackupRepository,
    BackupSnapshot,
    EnrolmentCode,
    GithubTrust,
    JobKind,
    Notice,
    NoticeChannel,
    NoticeRule,
    Schedule,
    ScheduleSlot,
    Target,
    TargetOrigin,
)
from jobs.services import token_format
from jobs.services.notices import sealing, webhooks


class AgentFactory(DjangoModelFactory[Agent]):
    """A registered, active agent."""

    class Meta:
        model = Agent

    principal_key = factory.Sequence("agent-{}".format)
    title = factory.LazyAttribute(lambda agent: agent.principal_key.capitalize())
    registered_at = datetime(2026, 1, 1, tzinfo=UTC)


class TokenFactory(DjangoModelFactory[AgentToken]):
    """A live token; its `bearer` attribute is what a runner sends."""

    class Meta:
        model = AgentToken

    class Params:
        bearer = factory.LazyFunction(token_format.mint)

    agent = factory.SubFactory(AgentFactory)
    digest = factory.LazyAttribute(lambda token: token_format.digest(token.bearer))
    prefix = factory.LazyAttribute(lambda token: token.bearer[: token_format.SHOWN])
    created_by = "ada"

    @classmethod
    def _generate(cls, strategy: Any, params: dict[str, Any]) -> AgentToken:
        bearer = params.setdefault("bearer", token_format.mint())
        token = super()._generate(strategy, params)
        token.bearer = bearer
        return token


class EnrolmentCodeFactory(DjangoModelFactory[EnrolmentCode]):
    """A code for one new agent of any name; its `code` attribute is what a host sends."""

    class Meta:
        model = EnrolmentCode

    title = "The new hosts"
    expires_at = datetime(2999, 1, 1, tzinfo=UTC)
    created_by = "ada"

    @classmethod
    def _generate(cls, strategy: Any, params: dict[str, Any]) -> EnrolmentCode:
        code = params.pop("code", None) or token_format.mint(token_format.CODE_PREFIX)
        shown = {"digest": token_format.digest(code), "prefix": code[: token_format.SHOWN]}
        made = super()._generate(strategy, shown | {"uses_left": params.get("uses", 1)} | params)
        made.code = code
        return made


class JobKindFactory(DjangoModelFactory[JobKind]):
    """A kind that accepts any object."""

    class Meta:
        model = JobKind

    name = factory.Sequence("kind-{}".format)
    schema = {"type": "object"}


class TargetFactory(DjangoModelFactory[Target]):
    """A target with one base URL."""

    class Meta:
        model = Target
        skip_postgeneration_save = True

    name = factory.Sequence("Target {}".format)

    @factory.post_generation
    def base_url(target: Target, create: bool, url: str | None, **_: Any) -> None:  # noqa: N805  (factory_boy's form)
        """Give it an address, by default one of its own."""
        TargetOrigin.objects.create(origin=url or f"https://{target.pk}.example.org", target=target)


class GithubTrustFactory(DjangoModelFactory[GithubTrust]):
    """A rule for one repository of github.com."""

    class Meta:
        model = GithubTrust

    agent = factory.SubFactory(AgentFactory)
    issuer = "https://token.actions.githubusercontent.com"
    repository_id = factory.Sequence(lambda number: number + 1)
    repository_owner_id = 65
    repository = factory.Sequence("octo/shop-{}".format)


class ScheduleFactory(DjangoModelFactory[Schedule]):
    """An hourly schedule that is due in a while."""

    class Meta:
        model = Schedule

    name = factory.Sequence("schedule-{}".format)
    agent = factory.SubFactory(AgentFactory)
    kind = "echo"
    expression = "0 * * * *"
    zone = "Europe/Berlin"
    next_due_at = datetime(2999, 1, 1, tzinfo=UTC)
    created_by = "ada"


class ScheduleSlotFactory(DjangoModelFactory[ScheduleSlot]):
    """A time that was skipped in a pause."""

    class Meta:
        model = ScheduleSlot

    schedule = factory.SubFactory(ScheduleFactory)
    due_at = datetime(2026, 1, 1, tzinfo=UTC)
    outcome = "skipped"
    reason = "paused"


class _LeasedFactory(DjangoModelFactory):
    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Any:
        row = super()._create(model_class, *args, **kwargs)
        row.refresh_from_db()  # what triggers wrote
        return row


class AgentJobFactory(_LeasedFactory):
    """A queued job; `kind` is free text."""

    class Meta:
        model = AgentJob

    agent = factory.SubFactory(AgentFactory)
    kind = "echo"
    spec = factory.LazyFunction(dict)
    created_by = "ada"


class BackupRepositoryFactory(DjangoModelFactory[BackupRepository]):
    """A repository that nobody checked yet."""

    class Meta:
        model = BackupRepository

    name = factory.Sequence("vault-{}".format)
    location = "rest:https://backup.example/vault"
    credential_ref = "vault"
    created_by = "ada"


class BackupJobFactory(DjangoModelFactory[BackupJob]):
    """An active backup job without sources."""

    class Meta:
        model = BackupJob

    name = factory.Sequence("nightly-{}".format)
    repository = factory.SubFactory(BackupRepositoryFactory)
    created_by = "ada"


class BackupSnapshotFactory(DjangoModelFactory[BackupSnapshot]):
    """A complete snapshot that was taken just now."""

    class Meta:
        model = BackupSnapshot

    engine_id = factory.Sequence("{:064x}".format)
    complete = True


class BackupJobRunFactory(DjangoModelFactory[BackupJobRun]):
    """A run."""

    class Meta:
        model = BackupJobRun


class BackupJobSourceFactory(DjangoModelFactory[BackupJobSource]):
    """A source."""

    class Meta:
        model = BackupJobSource


class AgentTaskFactory(_LeasedFactory):
    """A pending backup."""

    class Meta:
        model = AgentTask

    agent = factory.SubFactory(AgentFactory)
    job_run = factory.SubFactory(BackupJobRunFactory)
    job_source = factory.SubFactory(BackupJobSourceFactory)
    task_payload = factory.LazyFunction(dict)


class NoticeChannelFactory(DjangoModelFactory[NoticeChannel]):
    """A webhook that leads nowhere: its address is refused before anything is sent."""

    class Meta:
        model = NoticeChannel

    name = factory.Sequence("channel-{}".format)
    transport = "webhook"
    address = "https://127.0.0.1:9/"
    secret = factory.LazyFunction(lambda: sealing.seal(webhooks.new_secret()))


class NoticeRuleFactory(DjangoModelFactory[NoticeRule]):
    """A rule for failures and recoveries."""

    class Meta:
        model = NoticeRule

    name = factory.Sequence("rule-{}".format)
    channel = factory.SubFactory(NoticeChannelFactory)
    listens_to = factory.LazyFunction(lambda: ["failed", "recovered"])


class NoticeFactory(DjangoModelFactory[Notice]):
    """A notice that was given up."""

    class Meta:
        model = Notice

    channel = factory.SubFactory(NoticeChannelFactory)
    event = "failed"
    title = "Failed: echo on ci"
    status = "dead"
    last_error = "The receiver answered 500."
