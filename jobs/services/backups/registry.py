"""What people do with backups' definitions: register and change repositories, jobs and sources, retire them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid4

from agentstore_runner.contract import backup as contract
from agentstore_runner.contract import backup_jobs
from agentstore_runner.contract.backup import MOST_SAMPLED
from agentstore_runner.contract.problem import Problem
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.engine.leases import violated
from jobs.models import AgentJob, BackupJob, BackupJobRun, BackupJobSource, BackupRepository
from jobs.models.backup_runs import OPEN
from jobs.models.backups import KEEP_RULES
from jobs.services import governance
from jobs.services.documents import UNSTORABLE, storable_problems
from jobs.services.errors import Invalid, NotFound

from . import maintaining, payloads

MAX_NAME, MAX_LOCATION, MAX_HOST, MAX_PATH = 100, 500, 200, 4096
ATTEMPTS, DEADLINE_SECONDS, RUN_SECONDS = range(1, 11), range(60, 30 * 86400 + 1), range(60, 10 * 86400 + 1)
OVERDUE_SECONDS, AT_ONCE, KEPT = range(60, 365 * 86400 + 1), range(1, 1001), range(1, 10_001)
MAINTENANCE_DAYS, DRILL_DAYS, DRILL_FILES = range(1, 367), range(1, 367), range(1, MOST_SAMPLED + 1)
SETTINGS: Mapping[str, range] = {
    "stall_s": range(60, 86401), "lock_wait_s": range(86401), "limit_upload_kib": range(2**31),
    "shrink_warn_percent": range(101),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RepositoryDefinition:
    """A repository: where it is, and by what name agents know its password.

    With `maintenance_every_days` that agent maintains it by the clock; the check is one of backup_jobs.CHECKS.
    """

    name: str
    location: str
    credential_ref: str
    init_if_missing: bool = False
    concurrent_backups: int | None = None  # None: no limit
    maintenance_every_days: int | None = None  # None: never
    maintenance_agent: str = ""
    maintenance_check: str = "metadata"


@dataclass(frozen=True, kw_only=True)
class JobDefinition:
    """A backup job; times are in seconds. `settings` override payloads.DEFAULTS, `retention` None keeps everything."""

    name: str
    repository: UUID
    settings: Mapping[str, Any] | None = None
    max_attempts: int = 3
    start_deadline_seconds: int = 12 * 3600
    max_run_seconds: int = 24 * 3600
    overdue_after_seconds: int = 36 * 3600
    retention: Mapping[str, int] | None = None
    drill_every_days: int | None = None  # None: restores are never rehearsed
    drill_files: int = 20


@dataclass(frozen=True, kw_only=True)
class SourceDefinition:
    """Folders of one agent; `host` is what its snapshots are filed under, and stays the same for ever."""

    name: str
    paths: Sequence[str]
    host: str
    excludes: Sequence[str] = ()
    hooks_before: Sequence[str] = ()
    hooks_after: Sequence[str] = ()
    allow_empty: bool = False


@transaction.atomic
def register_repository(definition: RepositoryDefinition, *, by: str) -> UUID:
    """Add a repository. Raises Invalid."""
    columns = _repository_columns(definition)
    with _unique_name("backup_repositories_name", "repository"):
        repository = BackupRepository.objects.create(**columns, created_by=by)
    _note(repository, "created", by)
    return repository.pk


@transaction.atomic
def change_repository(definition: RepositoryDefinition, *, repository_id: UUID, by: str) -> None:
    """Change a repository for runs from now on; its pinned id stays. Raises NotFound or Invalid."""
    columns = _repository_columns(definition)
    repository = _live_repository(repository_id)
    if repository.maintenance_from is not None and columns["maintenance_from"] is not None:
        del columns["maintenance_from"]  # another interval counts from the last maintenance, as the old one did
    with _unique_name("backup_repositories_name", "repository"):
        BackupRepository.objects.filter(pk=repository_id).update(**columns)
    _note(repository, "changed", by)


@transaction.atomic
def trust_repository(*, repository_id: UUID, by: str, reason: str, is_new: bool = False) -> None:
    """Say that a damaged repository is good again; `is_new`: another one may take its place.

    Raises NotFound, or Invalid for the reason.
    """
    governance.check_reason(reason)
    repository = BackupRepository.objects.select_for_update(no_key=True).filter(pk=repository_id).first()
    if repository is None:
        raise NotFound
    unpinned = {"engine_repository_id": None} if is_new else {}
    BackupRepository.objects.filter(pk=repository_id).update(damaged_at=None, **unpinned)
    audit.record(audit.Tag.REPOSITORY_TRUSTED, repository, actor=by, reason=reason, details={"is_new": is_new})


@transaction.atomic
def retire_repository(*, repository_id: UUID, by: str, reason: str) -> None:
    """Take a repository out of use for good; what is in it stays, and can be restored.

    Raises NotFound, or Invalid: a backup job uses it, work on it is open, or the reason.
    """
    governance.check_reason(reason)
    repository = _live_repository(repository_id)
    if names := list(repository.jobs.exclude(state=BackupJob.State.RETIRED).values_list("name", flat=True)[:5]):
        said = f"Backup jobs use it: {', '.join(names)}. Retire them, or give them another one."
        raise Invalid([Problem("", said)])
    is_open = (
        repository.runs.filter(status__in=OPEN).exists()
        or AgentJob.objects.unfinished().filter(dedupe_key=maintaining.dedupe_key(repository)).exists()
    )
    if is_open:
        raise Invalid([Problem("", "A run or a maintenance of it is still open.")])
    BackupRepository.objects.filter(pk=repository_id).update(retired_at=Now())
    _note(repository, "retired", by, reason=reason)


@transaction.atomic
def register_job(definition: JobDefinition, *, by: str) -> UUID:
    """Add a backup job, still without sources. Raises Invalid."""
    columns = _job_columns(definition)
    with _unique_name("backup_jobs_name_key", "backup job"):
        job = BackupJob.objects.create(**columns, created_by=by)
    _note(job, "created", by)
    return job.pk


@transaction.atomic
def change_job(definition: JobDefinition, *, job_id: UUID, by: str) -> None:
    """Change a backup job for runs from now on. Raises NotFound or Invalid."""
    columns = _job_columns(definition)
    job = _live_job(job_id)
    with _unique_name("backup_jobs_name_key", "backup job"):
        BackupJob.objects.filter(pk=job_id).update(**columns)
    _note(job, "changed", by)


@transaction.atomic
def set_job_state(*, job_id: UUID, state: BackupJob.State, by: str, note: str) -> None:
    """Pause, resume or retire a backup job, and say why; a retired one stays retired. Raises NotFound or Invalid."""
    governance.check_reason(note)
    job = _live_job(job_id)
    with _unique_name("backup_jobs_name_key", "backup job"):
        BackupJob.objects.filter(pk=job_id).update(state=state, state_note=note)
    _note(job, state, by, reason=note)


@transaction.atomic
def add_source(definition: SourceDefinition, *, job_id: UUID, agent: str, by: str) -> UUID:
    """Add a source to a backup job; its runs take it from the next one on. Raises NotFound or Invalid."""
    job, found = _live_job(job_id), governance.find_agent(agent)
    _refuse([*governance.agent_problems(found), *_source_problems(definition, job)])
    with _unique_name("backup_job_sources_name_key", "source in this job"):
        source = BackupJobSource.objects.create(job=job, agent=found, **_source_columns(definition))
    _note(source, "created", by)
    return source.pk


@transaction.atomic
def change_source(definition: SourceDefinition, *, source_id: UUID, by: str) -> None:
    """Change a source for runs from now on; its host stays, and so do job and agent. Raises NotFound or Invalid."""
    source = _live_source(source_id)
    problems = _source_problems(definition, source.job)
    if definition.host != source.host:
        problems.append(Problem("/host", "The host stays: retire the source, and add another one."))
    _refuse(problems)
    with _unique_name("backup_job_sources_name_key", "source in this job"):
        BackupJobSource.objects.filter(pk=source_id).update(**_source_columns(definition))
    _note(source, "changed", by)


@transaction.atomic
def retire_source(*, source_id: UUID, by: str, reason: str) -> None:
    """Take a source out of its job's runs for good; its snapshots stay. Raises NotFound, or Invalid for the reason."""
    governance.check_reason(reason)
    source = _live_source(source_id)
    BackupJobSource.objects.filter(pk=source_id).update(retired_at=Now())
    _note(source, "retired", by, reason=reason)


def _live_repository(repository_id: UUID) -> BackupRepository:
    repository = BackupRepository.objects.select_for_update(no_key=True).filter(pk=repository_id).first()
    if repository is None:
        raise NotFound
    if repository.retired_at is not None:
        raise Invalid([Problem("", "The repository is retired.")])
    return repository


def _live_job(job_id: UUID) -> BackupJob:
    jobs = BackupJob.objects.select_for_update(no_key=True, of=("self",)).select_related("repository")
    job = jobs.filter(pk=job_id).first()
    if job is None:
        raise NotFound
    if job.state == BackupJob.State.RETIRED:
        raise Invalid([Problem("", "The backup job is retired.")])
    return job


def _live_source(source_id: UUID) -> BackupJobSource:
    sources = BackupJobSource.objects.select_for_update(no_key=True, of=("self",)).select_related("job__repository")
    source = sources.filter(pk=source_id, job__isnull=False).first()
    if source is None:
        raise NotFound
    if source.retired_at is not None:
        raise Invalid([Problem("", "The source is retired.")])
    return source


def _note(subject: BackupRepository | BackupJob | BackupJobSource, act: str, by: str, *, reason: str = "") -> None:
    details = {"act": str(act), "name": subject.name}
    audit.record(audit.Tag.BACKUP_DEFINED, subject, actor=by, reason=reason, details=details)


def _refuse(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise Invalid(found)


@contextmanager
def _unique_name(constraint: str, what: str) -> Iterator[None]:
    """A savepoint in which a name that is taken is told as such."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as conflict:
        if not violated(conflict).startswith(constraint):
            raise
        raise Invalid([Problem("/name", f"There is a {what} of that name already.")]) from None


def _repository_columns(definition: RepositoryDefinition) -> dict[str, Any]:
    """The columns of a definition that holds. Raises Invalid with every problem found."""
    agent = governance.find_agent(definition.maintenance_agent) if definition.maintenance_agent else None
    problems, every = _repository_problems(definition), definition.maintenance_every_days
    if (every is None) != (not definition.maintenance_agent):
        problems.append(Problem("/maintenance_every_days", "Both or neither: after how many days, and on which agent."))
    elif every is not None:
        problems += [Problem("/maintenance_agent", problem.message) for problem in governance.agent_problems(agent)]
        if every not in MAINTENANCE_DAYS:
            allowed = MAINTENANCE_DAYS
            problems.append(Problem("/maintenance_every_days", f"From {allowed[0]} to {allowed[-1]}, or never."))
    if definition.maintenance_check not in backup_jobs.CHECKS:
        problems.append(Problem("/maintenance_check", f"One of {', '.join(backup_jobs.CHECKS)}."))
    _refuse(problems)
    begins = None if every is None else Now()
    return asdict(definition) | {"maintenance_agent": agent, "maintenance_from": begins}


def _repository_problems(definition: RepositoryDefinition) -> list[Problem]:
    problems = _name_problems("name", definition.name, MAX_NAME)
    location = definition.location
    if len(location) > MAX_LOCATION or not re.fullmatch(contract.LOCATION, location) or UNSTORABLE.search(location):
        problems.append(
            Problem("/location", f"At most {MAX_LOCATION} characters; a user may stand in it, a password never.")
        )
    if not re.fullmatch(contract.CREDENTIAL_REF, definition.credential_ref):
        problems.append(Problem("/credential_ref", "A name of small letters, digits, - and _, as agents know it."))
    if definition.concurrent_backups is not None and definition.concurrent_backups not in AT_ONCE:
        problems.append(Problem("/concurrent_backups", f"From {AT_ONCE[0]} to {AT_ONCE[-1]}, or no limit."))
    return problems


def _job_columns(definition: JobDefinition) -> dict[str, Any]:
    """The columns of a definition that holds; until the transaction ends, nobody retires its repository.

    Raises Invalid with every problem found.
    """
    columns = asdict(definition)
    rows = BackupRepository.objects.select_for_update(no_key=True)
    repository = rows.filter(pk=definition.repository, retired_at=None).first()
    settings, retention = definition.settings or {}, definition.retention
    problems = _name_problems("name", definition.name, MAX_NAME)
    if repository is None:
        problems.append(Problem("/repository", "There is no such repository."))
    for field, allowed in {
        "max_attempts": ATTEMPTS, "start_deadline_seconds": DEADLINE_SECONDS, "max_run_seconds": RUN_SECONDS,
        "overdue_after_seconds": OVERDUE_SECONDS, "drill_files": DRILL_FILES,
    }.items():  # fmt: skip
        if columns[field] not in allowed:
            problems.append(Problem(f"/{field}", f"From {allowed[0]} to {allowed[-1]}."))
    if definition.drill_every_days is not None and definition.drill_every_days not in DRILL_DAYS:
        problems.append(Problem("/drill_every_days", f"From {DRILL_DAYS[0]} to {DRILL_DAYS[-1]}, or never."))
    problems += _setting_problems(settings)
    if retention is not None:
        if not retention:
            problems.append(Problem("/retention", "Name at least one rule, or keep everything."))
        problems += [
            Problem(f"/retention/{rule}", f"One of {', '.join(KEEP_RULES)}, from {KEPT[0]} to {KEPT[-1]}.")
            for rule, count in retention.items()
            if rule not in KEEP_RULES or isinstance(count, bool) or count not in KEPT
        ]
    _refuse(problems)
    return columns | {"repository": repository, "settings": dict(settings), "retention": retention}


def _setting_problems(settings: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for name, value in settings.items():
        if name not in payloads.DEFAULTS:
            problems.append(Problem(f"/settings/{name}", f"None of {', '.join(payloads.DEFAULTS)}."))
        elif name not in SETTINGS:
            if not isinstance(value, bool):
                problems.append(Problem(f"/settings/{name}", "True or false."))
        elif isinstance(value, bool) or not isinstance(value, int) or value not in SETTINGS[name]:
            allowed = SETTINGS[name]
            problems.append(Problem(f"/settings/{name}", f"A whole number from {allowed[0]} to {allowed[-1]}."))
    return problems


def _source_columns(definition: SourceDefinition) -> dict[str, Any]:
    lists = ("paths", "excludes", "hooks_before", "hooks_after")
    return asdict(definition) | {name: list(getattr(definition, name)) for name in lists}


def _source_problems(definition: SourceDefinition, job: BackupJob | None) -> list[Problem]:
    """What is wrong with a source, in the words of the runner's own reading where our rules say nothing."""
    problems = _name_problems("name", definition.name, MAX_NAME) + _name_problems("host", definition.host, MAX_HOST)
    problems += storable_problems(_source_columns(definition))
    problems += [
        Problem("/paths", f"“{path[:80]}” is not absolute, or is longer than {MAX_PATH} characters.")
        for path in definition.paths
        if not path.startswith("/") or len(path) > MAX_PATH
    ]
    if not 1 <= len(definition.paths) <= 100:
        problems.append(Problem("/paths", "From 1 to 100 paths."))
    if problems or job is None:
        return problems
    rehearsed = BackupJobSource(pk=uuid4(), job=job, **_source_columns(definition))
    try:
        payloads.backup(task_id=uuid4(), run=BackupJobRun(pk=uuid4()), job=job, source=rehearsed, last_good=())
    except Invalid as refusal:
        problems += refusal.problems
    return problems


def _name_problems(field: str, text: str, longest: int) -> list[Problem]:
    if not text.strip() or text != text.strip() or len(text) > longest or re.search("[\x00-\x1f\ud800-\udfff]", text):
        return [Problem(f"/{field}", f"1 to {longest} characters without control characters or spaces around them.")]
    return []
