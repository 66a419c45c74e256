"""GitHub Actions without a stored secret: a token of a workflow run is traded for a bearer."""

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_view as describe
from rest_framework.request import Request

from jobs.services import throttle
from jobs.services.github import exchange
from jobs.services.github.tokens import MAX_TOKEN, Refused

from . import body, replies
from .answer import answer
from .authentication import address_of
from .components import ref
from .fields import Fields
from .limits import SMALL_BODY
from .openapi import BODY, call
from .problem import too_many_refusals
from .views import StrangerView


@describe(
    post=call(
        "exchangeGithubToken", "Trade a token of a workflow run for a bearer", body=ref("GithubToken"),
        problems=BODY | {401: "token_refused", 503: "issuer_unavailable"},
        answers={201: ("A bearer of the one agent that the run may act as, bound to the run.", ref("IssuedToken"))},
    )
)  # fmt: skip
class ExchangeGithubToken(StrangerView):
    """Exchange a token, once."""

    def post(self, request: Request) -> HttpResponse:
        """Give the run a bearer; the whole reason of a refusal stands in the audit trail only."""
        with Fields(body.parse(body.read(request, limit=SMALL_BODY))) as fields:
            token = fields.text("token", longest=MAX_TOKEN)
        try:
            issued = exchange.exchange(token)
        except Refused as refusal:
            if not throttle.count_refusal(address=address_of(request)):
                raise too_many_refusals("tokens", throttle.WINDOW_SECONDS) from None
            raise exchange.note_refusal(refusal) from None
        return answer(replies.issued(issued, lives=exchange.LIFETIME), status=201)
