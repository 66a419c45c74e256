"""A host trades an enrolment code for the token of an agent."""

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_view as describe
from rest_framework.request import Request

from jobs.services import enrolling, runner_versions, throttle
from jobs.services.errors import EnrolmentRefused

from . import body, replies
from .answer import answer
from .authentication import address_of
from .components import ref
from .fields import Fields
from .limits import MAX_NAME, SMALL_BODY
from .openapi import ENROL, call
from .problem import too_many_refusals
from .views import StrangerView


@describe(
    post=call(
        "enrol", "Trade an enrolment code for a token", body=ref("Enrolment"), problems=ENROL,
        answers={
            201: ("Enrolled.", ref("Enrolled")),
            200: ("The same id again: another token, and the one before is revoked.", ref("Enrolled")),
        },
    )
)  # fmt: skip
class Enrol(StrangerView):
    """Enrol a host."""

    def post(self, request: Request) -> HttpResponse:
        """Give the host a token of its own; why a code is refused stands in the audit trail only."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            code = fields.text("code", longest=MAX_NAME)
            request_id = fields.uuid("enrolment_id")
            name = fields.text("name", longest=MAX_NAME)
            program = fields.inner("runner")
            program.text("name", longest=MAX_NAME)
            version = program.text("version", longest=MAX_NAME)
        runner_versions.check(version)
        address = address_of(request)
        try:
            found = enrolling.enrol(code=code, request_id=request_id, name=name, address=address)
        except EnrolmentRefused as refusal:
            self._note(refusal, name, address)
            raise
        return answer(replies.enrolled(found), status=201 if found.is_new else 200)

    @staticmethod
    def _note(refusal: EnrolmentRefused, name: str, address: str) -> None:
        """Write a refusal down, of codes that nobody made once a minute for each address; raises Problem (429)."""
        count = throttle.count_refusal(address=address)
        if not count:
            raise too_many_refusals("enrolment codes", throttle.WINDOW_SECONDS)
        if refusal.code_id or count == 1:
            enrolling.note_refusal(refusal, name=name, address=address)
