"""The calls of runners. Each reads its body strictly, calls one service and says what came of it."""

import hashlib
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import OpenApiParameter
from drf_spectacular.utils import extend_schema_view as describe
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.views import APIView

from jobs.services import execution, exports

from . import body, replies
from .answer import NO_STORE, answer, nothing, retry_seconds
from .authentication import BearerAuthentication, IsAgent
from .components import FREE, ref
from .fields import Fields
from .limits import MAX_NAME, MAX_WORDS, SMALL_BODY
from .openapi import CLAIM, HEARTBEAT, RESULT, START, call
from .tables import JOBS, TASKS, Table


class RunnerView(APIView):
    """A call of an authenticated agent; it speaks JSON whatever the Accept header says."""

    authentication_classes = [BearerAuthentication]
    permission_classes = [IsAgent]
    versioning_class = None
    allowed: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Name the methods of a class of views once, not in each answer."""
        super().__init_subclass__()
        handlers = {"head": "get"}  # Django makes one of the other
        cls.allowed = ", ".join(
            name.upper() for name in cls.http_method_names if hasattr(cls, handlers.get(name, name))
        )

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Ask who calls, and nothing else: of forms, versions and throttles there are none to choose from.

        Above all Accept is not read: its parsing can be made dear.
        """
        self.perform_authentication(request)
        self.check_permissions(request)

    @property
    def default_response_headers(self) -> dict[str, str]:
        """The methods that the address knows."""
        return {"Allow": self.allowed}

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]  # DRF only knows its own answers
        """Name the methods in Allow and nothing else."""
        return nothing()

    @property
    def caller(self) -> execution.Caller:
        """Who calls; IsAgent has seen to it that it is an agent."""
        caller = self.request.auth
        assert isinstance(caller, execution.Caller)
        return caller


class StrangerView(RunnerView):
    """A call without a bearer: what is shown instead stands in the body."""

    authentication_classes = []
    permission_classes = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Ask nobody who calls."""


class Claim(RunnerView):
    """Claim one row of a table."""

    table: ClassVar[Table]

    def post(self, request: Request) -> HttpResponse:
        """Lease the next row, or repeat what this claim id holds already."""
        members = body.parse(body.read(request, limit=SMALL_BODY))
        with Fields(members) as fields:
            claim_id = fields.uuid("claim_id")
            kinds = fields.texts(self.table.kinds, longest=MAX_NAME, most=MAX_WORDS)
            row_id = fields.optional_uuid(self.table.row_id)
            able = self.table.able(fields)
            program = fields.inner("runner")
            name, version = program.text("name", longest=MAX_NAME), program.text("version", longest=MAX_NAME)
            columns = self.table.columns(fields)
        claimed = execution.claim(
            caller=self.caller, rows=self.table.rows(), claim_id=claim_id, kinds=kinds, request=members,
            runner=execution.Runner(name=name, version=version), row_id=row_id, columns=columns,
            able=able,
        )  # fmt: skip
        if claimed is None:
            return nothing({"Retry-After": str(retry_seconds())})
        return answer(replies.envelope(claimed), status=201 if claimed.is_new else 200)


class Start(RunnerView):
    """Say that the work itself has begun."""

    table: ClassVar[Table]

    def post(self, request: Request, row_id: UUID) -> HttpResponse:
        """Note the start once; repeating it changes nothing."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            claim_id = fields.uuid("claim_id")
        beat = execution.start(caller=self.caller, rows=self.table.rows(), row_id=row_id, claim_id=claim_id)
        return answer(replies.beat(beat))


class Heartbeat(RunnerView):
    """Keep a row."""

    table: ClassVar[Table]

    def post(self, request: Request, row_id: UUID) -> HttpResponse:
        """Prolong the lease, note progress, and learn whether to stop."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            claim_id = fields.uuid("claim_id")
            progress = fields.optional_object("progress")
            counters = self.table.counters(fields)
        beat = execution.heartbeat(
            caller=self.caller, rows=self.table.rows(), row_id=row_id, claim_id=claim_id, progress=progress,
            counters=counters,
        )  # fmt: skip
        return answer(replies.beat(beat))


class Result(RunnerView):
    """End a row."""

    table: ClassVar[Table]

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Look up the work of the row together with who calls: it decides how a result is judged."""
        return [BearerAuthentication(self.table.rows(), self.kwargs.get("row_id"))]

    def put(self, request: Request, row_id: UUID) -> HttpResponse:
        """Store the result; the same bytes again get the same answer."""
        received = body.read(request, limit=settings.JSON_BODY_BYTES)
        with Fields(body.parse(received)) as fields:
            claim_id = fields.uuid("claim_id")
            report = self.table.report(fields, hashlib.sha256(received).hexdigest())
        finished = execution.finish(
            caller=self.caller, rows=self.table.rows(), row_id=row_id, claim_id=claim_id, report=report
        )
        return answer(replies.outcome(finished))


CLAIMED = "The same claim again: what it holds, with the same lease."
NOTHING: tuple[str, None] = ("Nothing waits; the claim id is not used up.", None)
BEAT = ("The lease is prolonged; `desired` says whether to go on.", ref("Beat"))
STORED = "Stored, now or by the same bytes before."


@describe(
    post=call(
        "claimJob", "Claim a job", body=ref("JobClaim"), problems=CLAIM,
        answers={201: ("Claimed.", ref("Job")), 200: (CLAIMED, ref("Job")), 204: NOTHING},
    )
)  # fmt: skip
class ClaimJob(Claim):
    table = JOBS


@describe(post=call("beatJob", "Keep a job", body=ref("JobHeartbeat"), problems=HEARTBEAT, answers={200: BEAT}))
class JobHeartbeat(Heartbeat):
    table = JOBS


@describe(
    put=call(
        "finishJob", "End a job", body=ref("JobResult"), problems=RESULT, answers={200: (STORED, ref("JobOutcome"))}
    )
)
class JobResult(Result):
    table = JOBS


@describe(
    get=call(
        "jobResults", "The results of a job", problems={404: "not_found, no_results", 422: "invalid"},
        parameters=(OpenApiParameter("format", enum=list(exports.FORMS), default="json"),), also=("application/xml",),
        answers={200: ("As stored, as a CTRF report, or as JUnit XML.", FREE)},
    )
)  # fmt: skip
class JobResults(RunnerView):
    """The results of one job."""

    def get(self, request: Request, row_id: UUID) -> HttpResponse:
        """Render them in the form that is asked for."""
        form = request.GET.get("format", "json")
        export = exports.own_results(caller=self.caller, job_id=row_id, form=form)
        return HttpResponse(export.content, content_type=export.content_type, headers=NO_STORE)


@describe(
    post=call(
        "claimTask", "Claim a backup task", body=ref("TaskClaim"), problems=CLAIM,
        answers={201: ("Claimed.", ref("Task")), 200: (CLAIMED, ref("Task")), 204: NOTHING},
    )
)  # fmt: skip
class ClaimTask(Claim):
    table = TASKS


@describe(post=call("startTask", "Start a task's work", body=ref("Start"), problems=START, answers={200: BEAT}))
class StartTask(Start):
    table = TASKS


@describe(post=call("beatTask", "Keep a task", body=ref("TaskHeartbeat"), problems=HEARTBEAT, answers={200: BEAT}))
class TaskHeartbeat(Heartbeat):
    table = TASKS


@describe(
    put=call(
        "finishTask", "End a task", body=ref("TaskResult"), problems=RESULT, answers={200: (STORED, ref("TaskOutcome"))}
    )
)
class TaskResult(Result):
    table = TASKS


@describe(
    get=call(
        "me", "The agent's state and its open claims", problems={},
        answers={200: ("What a restarted runner reconciles with.", ref("Agent"))},
    )
)  # fmt: skip
class Me(RunnerView):
    """The agent that calls."""

    def get(self, request: Request) -> HttpResponse:
        """The agent's state and its open claims: a restarted runner finds what it holds."""
        return answer(replies.standing(execution.standing(caller=self.caller)))
