"""Forms of the admin and every call of the API against more than they ask for: only what they name is written.

What stands in a form is read from its page; calls are found in the address map.
"""

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.test import Client

from tests.api.runner_client import document
from tests.hostile.forms import Form, form_of
from tests.hostile.site import V1, Subjects, ask, contents, routes
from tests.hostile.test_hostile_authorisation import undone

PASSWORD = "correct horse battery 9"
DIALOGS = [f"admin/jobs/{table}/<path:object_id>/{verb}/" for table in ("agentjob", "agenttask")
           for verb in ("cancel", "force", "retry")]  # fmt: skip
# What a right answer needs beside what the page has filled in. Whoever adds a form says here how it is filled in.
RIGHT: dict[str, dict[str, str]] = {
    "admin/password_change/": {"old_password": "a password", "new_password1": PASSWORD, "new_password2": PASSWORD},
    "admin/jobs/agent/<path:object_id>/token/": {"note": "Actions"},
    "admin/jobs/agent/<path:object_id>/state/": {"state": "paused", "note": "Disk"},
    "admin/jobs/agent/add/": {"key": "fw-7", "title": "Host 7", "presence": "resident"},
    "admin/jobs/agenttoken/<path:object_id>/revoke/": {"reason": "Leaked"},
    "admin/jobs/enrolmentcode/add/": {"title": "Rack 7"},
    "admin/jobs/enrolmentcode/<path:object_id>/revoke/": {"reason": "Leaked"},
    **{route: {"reason": "Because"} for route in DIALOGS},
    "admin/jobs/agentjob/<path:object_id>/hold/": {"reason": "Because"},
    "admin/jobs/agentjob/<path:object_id>/release/": {"reason": "Because"},
    "admin/jobs/agentjob/add/": {"spec": '{"title": "Go"}'},
    "admin/jobs/jobkind/add/": {"name": "report.monthly"},
    "admin/jobs/jobkind/<path:object_id>/change/": {"title": "Echo"},
    "admin/jobs/target/add/": {"name": "shop", "base_urls": "https://shop.example.com"},
    "admin/jobs/target/<path:object_id>/change/": {},
    "admin/jobs/githubtrust/add/": {"repository_id": "74", "repository_owner_id": "65"},
    "admin/jobs/githubtrust/<path:object_id>/change/": {},
    "admin/jobs/githubtrust/token/": {"token": "x.y.z"},
    "admin/auth/user/<id>/password/": {"password1": PASSWORD, "password2": PASSWORD},
    "admin/auth/user/add/": {
        "username": "grace", "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true",
    },
    "admin/auth/user/<path:object_id>/change/": {"first_name": "Ada"},
    "admin/auth/user/<path:object_id>/delete/": {"post": "yes"},
    "admin/auth/group/add/": {"name": "Auditors"},
    "admin/auth/group/<path:object_id>/change/": {"name": "Auditors"},
    "admin/auth/group/<path:object_id>/delete/": {"post": "yes"},
    "admin/axes/accessattempt/<path:object_id>/delete/": {"post": "yes"},
}  # fmt: skip
OPTIONAL = re.compile(r"is_|allow_|groups$|permissions$|user_permissions$")


def send(client: Client, form: Form, fields: dict[str, list[str]]) -> Any:
    """What comes of posting a form, as bytes that a browser might send."""
    pairs = [(name, value) for name, values in fields.items() for value in values if name]
    body = urlencode(pairs, errors="surrogatepass")
    url = form.url if form.url.startswith("/") else f"/{form.route}{form.url}"
    return ask(client, "POST", url, data=body, content_type="application/x-www-form-urlencoded")


def filled(form: Form) -> dict[str, list[str]]:
    """The form with a right answer."""
    chosen = {
        name: [next(filter(None, options), "")]
        for name, options in form.choices.items()
        if name not in form.fields and not OPTIONAL.match(name)
    }
    return chosen | form.fields | {name: [value] for name, value in RIGHT[form.route].items()}


def accepted(answer: Any) -> bool:
    told = answer.context or {}
    return answer.status_code == 302 or (answer.status_code == 200 and ("issued" in told or bool(told.get("found"))))


@pytest.fixture
def operator(superuser: Client) -> Client:
    """Somebody who may do everything, and sees a fault of the server as its answer."""
    superuser.raise_request_exception = False
    return superuser


@pytest.fixture
def form(request: pytest.FixtureRequest, subjects: Subjects, operator: Client) -> Form:
    """The form of the test's route."""
    return form_of(operator, subjects, request.getfixturevalue("route"))


def _form(answer: Any) -> Any:
    context = answer.context or {}
    return context["adminform"].form if "adminform" in context else context["form"]


def _errors(answer: Any) -> dict[str, Any]:
    return dict(_form(answer).errors) if answer.context and ("form" in answer.context) else {}


# The names of all columns and relations of all models, those of tomorrow too.
NAMES = sorted(
    {field.name for model in apps.get_models() for field in model._meta.get_fields()}
    | {getattr(field, "attname", "") for model in apps.get_models() for field in model._meta.get_fields()} - {""}
)
FORGED = dict.fromkeys(NAMES, "1") | {
    "status": "done", "verdict": "pass", "state": "disabled", "is_superuser": "on", "is_staff": "on", "is_active": "on",
    "claim_id": "6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f", "principal_key": "another", "created_by": "forged",
    "actor": "forged", "by": "forged", "digest": "0" * 64, "registered_at": "2020-01-01T00:00:00Z", "pk": "1",
}  # fmt: skip
# What differs between two runs of the same: keys, times, secrets.
CHANGING = (
    (r'"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"', '"uuid"'),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "uuid"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "time"), (r"[0-9a-f]{64}", "hash"), (r"ags_[er]_\w+", "bearer"),
    (r'"(\w*id|object_id)": "?\d+"?', '"key"'), (r'(md5|pbkdf2_sha256|!)\$?[^"]{20,}', "password"),
)  # fmt: skip


def settled(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """All rows without what differs each time."""

    def plain(row: str) -> str:
        for pattern, instead in CHANGING:
            row = re.sub(pattern, instead, row)
        return row

    return {table: sorted(map(plain, rows)) for table, rows in found.items()}


def beyond(right: dict[str, list[str]], forged: dict[str, list[str]]) -> dict[str, set[str]]:
    """The rows that only the forged request wrote so."""
    return {table: set(rows) - set(right[table]) for table, rows in forged.items() if set(rows) - set(right[table])}


@pytest.mark.parametrize("route", RIGHT)
def test_a_form_writes_only_what_it_asks_for(route: str, form: Form, operator: Client) -> None:
    outcomes = []
    mine = {*form.fields, *form.choices}
    forged = {name: [value] for name, value in FORGED.items() if name not in mine and f"{name}_0" not in mine}
    for more in ({}, forged):
        with undone():
            answer = send(operator, form, filled(form) | more)
            assert accepted(answer), _errors(answer)
            outcomes.append(settled(contents()))
    assert beyond(*outcomes) == {}


def _documented(schema: Any) -> set[str]:
    return set(schema.get("properties", {}))


CALLS = [(route, method) for route, _ in routes() if route.startswith(V1) for method in ("POST", "PUT")]


@pytest.mark.parametrize(("route", "method"), CALLS, ids=[f"{method} {route}" for route, method in CALLS])
def test_a_call_of_the_api_writes_only_what_its_document_names(
    route: str, method: str, subjects: Subjects, superuser: Client
) -> None:
    known = set().union(*map(_documented, document()["components"]["schemas"].values()))
    client = Client(headers={"Authorization": f"Bearer {subjects.bearer}"})
    outcomes = []
    for more in ({}, {name: value for name, value in FORGED.items() if name not in known or name == "principal_key"}):
        said = subjects.call(route, method)
        query = f"?{urlencode(more)}" if more else ""
        if said.get("content_type") == "application/json":
            said["data"] = json.dumps(json.loads(said["data"]) | more)
        elif more:
            said["QUERY_STRING"] += f"&{urlencode({key: value for key, value in more.items() if key != 'name'})}"
            query = ""
        with undone():
            answer = ask(client, method, subjects.url(route) + query, **said)
            outcomes.append((answer.status_code, settled(contents())))
    assert beyond(outcomes[0][1], outcomes[1][1]) == {}
    assert outcomes[0][0] == outcomes[1][0] or "uploads" in route
    # An upload needs a bucket, a token needs GitHub; what a right call of them writes is told where they are made.
    assert outcomes[0][0] in (200, 201, 204, 405, 409) or "uploads" in route or "token/" in route
