"""The whole server as its address map names it, everybody who could call, and what the database holds."""

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from artifacts.models import JobArtifact
from artifacts.services.evidence import signed_url
from artifacts.services.thumbnails import make_thumbnails
from artifacts.services.uploads import attach
from jobs.models import Agent
from jobs.services.execution import Caller
from tests.admin.conftest import Rows
from tests.api.runner_client import TASKS, Runner
from tests.artifacts.conftest import picture
from tests.factories import AgentFactory, TokenFactory

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PEOPLE = ("nobody", "Viewers", "Operators", "Governors", "superuser")
BEARERS = ("agent", "other agent", "revoked token", "expired token", "disabled agent")
V1 = "api/v1/"
# What notes that a bearer was used and what its runner can do, or that somebody is logged in; no governed row.
VOLATILE_COLUMNS = ["last_used_at", "last_seen_at", "last_login", "capabilities", "engine"]
VOLATILE_TABLES = ("django_session", "django_migrations", "refused_bearers")


def routes(patterns: list[URLPattern | URLResolver] | None = None, before: str = "") -> Iterator[tuple[str, str]]:
    """Every route of the address map with its name, in order."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            yield route, pattern.name or ""


class Subjects:
    """One of everything that an address can be about; the agent of `rows` holds a job and a task."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.bearer: str = rows.token.bearer  # type: ignore[attr-defined]  # only the factory knows it
        self.artifact = self.attach("shot.png", picture())
        make_thumbnails()
        runner = Runner(rows.agent, bearer=self.bearer)
        self.task_claim = runner.claim_body(TASKS, task_id=str(rows.task.pk))
        assert runner.send("POST", "tasks/claim", self.task_claim).status_code == 201
        self.user = User.objects.create_user("somebody", password="a password")
        self.group = Group.objects.create(name="Some group")
        seen = {"user_agent": "x", "ip_address": "192.0.2.1", "username": "x", "http_accept": "x", "path_info": "/"}
        self.access = {
            "accessattempt": AccessAttempt.objects.create(get_data="", post_data="", failures_since_start=1, **seen),
            "accessfailurelog": AccessFailureLog.objects.create(**seen),
            "accesslog": AccessLog.objects.create(**seen),
        }

    def attach(self, name: str, content: bytes) -> JobArtifact:
        """Attach a file to the running job."""
        held = self.rows.running
        assert held.claim_id
        return attach(
            caller=Caller(agent=self.rows.agent, token_id=self.rows.token.pk), job_id=held.pk, claim_id=held.claim_id,
            name=name, length=len(content), sha256=hashlib.sha256(content).hexdigest(), stream=io.BytesIO(content),
        ).artifact  # fmt: skip

    def url(self, route: str, row: str | None = None) -> str:
        """An address of this route, about `row`, else about the row of ours that it fits."""
        if row is None:
            row = self._row(route)
        path = re.sub(r"\^\(\?P<\w+>[a-z|]+\)/\$$", "jobs/", route)  # the list of an app
        path = path.replace(r"(?P<url>.*)$", "nothing/")
        path = re.sub(r"<[^>]*>", lambda _: row, path)
        return "/" + ("api/nothing" if path.startswith("^api") else path)

    def _row(self, route: str) -> str:
        rows = self.rows
        for part, found in {
            "bytes/": None, "artifacts/jobs/": rows.running,
            "artifacts/<": self.artifact, "api/v1/jobs/": rows.running, "tasks/": rows.task,
            "/agentjob/": rows.failed, "/agenttask/": rows.task, "/agent/": rows.agent, "/agenttoken/": rows.token,
            "/enrolmentcode/": rows.code,
            "/target/": rows.target, "/githubtrust/": rows.trust, "/maintenanceduty/": rows.duty,
            "/schedule/": rows.schedule, "/scheduleslot/": rows.slot,
            "/backuprepository/": rows.repository, "/backupjob/": rows.backup_job, "/backupjobrun/": rows.run,
            "/backupsnapshot/": rows.snapshot, "/backupjobsource/": rows.source,
            "/jobkind/": rows.kind, "/auditevent/": rows.event, "/noticechannel/": rows.channel,
            "/noticerule/": rows.rule, "/notice/": rows.notice, "auth/user/": self.user, "auth/group/": self.group,
            **{f"/{name}/": row for name, row in self.access.items()},
        }.items():  # fmt: skip
            if part in route:
                return str(found.pk) if found else signed_url(self.artifact, inline=True).rpartition("/")[2]
        return "1"

    def call(self, route: str, method: str) -> dict[str, Any]:
        """Body and headers of a call that the agent who holds the rows would make."""
        claim_id = str(self.rows.running.claim_id)
        if route.endswith("enrol"):
            members = {"code": self.rows.code.code, "enrolment_id": str(uuid4()), "name": "fw-9"}  # type: ignore[attr-defined]  # only the factory knows it
            runner = {"name": "agentstore-runner", "version": "1.0.0"}
            return {"data": json.dumps(members | {"runner": runner}), "content_type": "application/json"}
        if route.endswith("token/github"):
            return {"data": json.dumps({"token": "x.y.z"}), "content_type": "application/json"}
        if route.endswith("artifacts") and method == "PUT":
            digest = base64.b64encode(hashlib.sha256(b"bytes").digest()).decode()
            headers = {"HTTP_AGENTSTORE_CLAIM_ID": claim_id, "HTTP_CONTENT_DIGEST": f"sha-256=:{digest}:"}
            return {"data": b"bytes", "QUERY_STRING": "name=log.txt", **headers}
        if "tasks/" in route:
            claim_id = self.task_claim["claim_id"]
        body: dict[str, Any] = {"claim_id": claim_id}
        if route.endswith("claim"):
            body = {"claim_id": str(uuid4()), "kinds": ["echo"], "task_types": ["backup"]}
            body["runner"] = {"name": "agentstore-runner", "version": "1.0.0"}
        elif route.endswith("uploads"):
            body |= {"name": "a.bin", "size_bytes": 2**24, "sha256": "0" * 64}
        elif route.endswith("complete"):
            body |= {"upload": "x"}
        elif route.endswith("result"):
            body |= {"status": "failed", "error": "No disk", "failure_class": "configuration"}
        return {"data": json.dumps(body), "content_type": "application/json"}


class Callers(Mapping[str, Client]):
    """A client for everybody: nobody, people of each group, and bearers that work, worked once, or are another's."""

    def __init__(self, subjects: Subjects, login: Callable[[str], Client]) -> None:
        agent = subjects.rows.agent
        yesterday = timezone.now() - timedelta(days=1)
        disabled: Any = TokenFactory(agent=agent)
        self._disabled = disabled.bearer
        tokens: dict[str, Any] = {
            "other agent": TokenFactory(agent=AgentFactory()),
            "revoked token": TokenFactory(agent=agent, revoked_at=yesterday, revoked_by="ada"),
            "expired token": TokenFactory(agent=agent, expires_at=yesterday),
        }
        bearers = {"agent": subjects.bearer, "disabled agent": self._disabled}
        bearers |= {name: token.bearer for name, token in tokens.items()}
        self._clients = {"anonymous": Client()} | {name: login(name) for name in PEOPLE}
        self._clients |= {name: Client(headers={"Authorization": f"Bearer {bearers[name]}"}) for name in BEARERS}
        for client in self._clients.values():
            client.raise_request_exception = False
        self._agent = agent

    def __getitem__(self, name: str) -> Client:
        if name == "disabled agent":
            Agent.objects.filter(pk=self._agent.pk).update(state="disabled", state_note="retired")
        return self._clients[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def ask(client: Client, method: str, url: str, **said: Any) -> Any:
    """The answer, read to its end as a server would."""
    answer: Any = client.generic(method, url, **said)
    answer.body = answer.getvalue() if answer.streaming else answer.content
    return answer


def contents() -> dict[str, list[str]]:
    """Every row of every table, apart from what notes that somebody called."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        tables = [name for (name,) in cursor.fetchall() if name not in VOLATILE_TABLES]
        found = {}
        for table in tables:
            cursor.execute(f'SELECT (to_jsonb(t) - %s::text[])::text FROM "{table}" t ORDER BY 1', [VOLATILE_COLUMNS])
            found[table] = [row for (row,) in cursor.fetchall()]
    return found
