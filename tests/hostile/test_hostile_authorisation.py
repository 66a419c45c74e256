"""Who may call what: everybody with every method on every address, each cell judged by a rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest
from django.db import transaction
from django.urls import get_resolver

from tests.admin.test_permissions import EVERYBODY, MAY_OPEN, NOBODY, OPERATORS, VIEWERS
from tests.api.test_api_foreign_rows import endpoints
from tests.hostile.site import METHODS, PEOPLE, V1, Callers, Subjects, ask, contents, routes

SAFE = ("GET", "HEAD", "OPTIONS")
SUPERUSER = frozenset({"superuser"})
NAMES = dict(routes())
SERVED = dict(endpoints(get_resolver().url_patterns))
# Addresses beside those of our own tables. Whoever adds one says here who may open it.
MAY_USE = MAY_OPEN | {
    **dict.fromkeys(("index", "search", "password_change", "password_change_done", "jsi18n"), EVERYBODY),
    "autocomplete": NOBODY,
    **{
        f"{table}_{page}": SUPERUSER
        for table in ("auth_user", "auth_group", "axes_accessattempt", "axes_accesslog", "axes_accessfailurelog")
        for page in ("changelist", "change", "history", "delete", "add")
    },
    **{f"axes_{table}_add": NOBODY for table in ("accessattempt", "accesslog", "accessfailurelog")},
    **{f"axes_{table}_delete": NOBODY for table in ("accesslog", "accessfailurelog")},
    "auth_user_password_change": SUPERUSER,
    "open": OPERATORS,
    "export": OPERATORS,
    "thumbnail": VIEWERS,
}  # fmt: skip
# They lead to a page that has its own rule, or say that there is none.
LEADS_ON = {route for route, name in NAMES.items() if name == "app_list" or (not name and route.startswith("admin/"))}
FOR_ALL = {"", "metrics", "admin/login/", "admin/logout/", "artifacts/bytes/<str:token>", r"^api(?:/|\Z)"}
# What those who may look may not post to.
ONLY_READ = {
    "jobs_auditevent_change": NOBODY, "jobs_maintenanceduty_change": NOBODY,
    "jobs_jobkind_change": MAY_OPEN["jobs_jobkind_add"],
    **{f"axes_{table}_change": NOBODY for table in ("accessattempt", "accesslog", "accessfailurelog")},
    "jobs_target_change": MAY_OPEN["jobs_target_add"],
    "jobs_githubtrust_change": MAY_OPEN["jobs_githubtrust_add"],
}  # fmt: skip
# What the body shows counts: a code that is good, and a token that GitHub did not sign.
STRANGERS = {"enrol": {201}, "token/github": {401}}
BEARS = ("agent", "other agent", "disabled agent")
# Dear pages: that those who may open them can, is tested with the pages.
LEFT_OUT = {(who, method) for who in PEOPLE for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS")}
LEFT_OUT |= {(who, "HEAD") for who in PEOPLE[:-1]}


def by_table(route: str) -> str:
    """Which addresses are judged together."""
    return "/".join(route.partition("<")[0].split("/")[:3])


TABLES = {table: list(found) for table, found in groupby(sorted(NAMES), key=by_table)}


@contextmanager
def undone() -> Iterator[None]:
    """Let the next cell begin with the same rows."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def expected(route: str, who: str, method: str) -> set[Any]:
    """The statuses that one cell of the matrix may have; "login" is the way to the login."""
    if route in FOR_ALL:
        return {404} if route.startswith("^api") or route == "metrics" else {200, 302, 405}
    if route.startswith(V1):
        return of_a_runner(route, who, method)
    name = NAMES[route]
    if name == "export" and method != "GET":
        return {405}
    if name in ("open", "thumbnail") and method not in ("GET", "HEAD"):
        return {405}
    if who not in PEOPLE:
        return {"login"}
    if route in LEADS_ON:
        return {200, 302, 404, 405}
    if who not in MAY_USE[name]:
        return {200, 403, 405} if name == "autocomplete" and method not in ("GET", "HEAD") else {403}
    if method == "POST" and who not in ONLY_READ.get(name, EVERYBODY):
        return {403}
    return {200, 302, 405}


def of_a_runner(route: str, who: str, method: str) -> set[Any]:
    """The same for the API, where only a bearer counts."""
    address = route.removeprefix(V1)
    served = SERVED[address.replace("<uuid:row_id>", "{id}").replace("<uuid:job_id>", "{id}")]
    if who not in BEARS and address not in STRANGERS:
        return {401}
    if method == "OPTIONS":
        return {204}
    if (method if method != "HEAD" else "GET") not in served:
        return {405}
    if address in STRANGERS:
        return STRANGERS[address]
    if "<" in address and who == "other agent":
        return {404}
    if address.endswith("/claim"):
        # The agent holds a task, and one at a time is all it gets.
        held = address.startswith("tasks")
        return {"agent": {409} if held else {201}, "other agent": {204}, "disabled agent": {403}}[who]
    # A folder takes no direct uploads, and therefore none can be completed; a job that runs has no results yet.
    special = {"uploads": {409}, "complete": {400}, "results": {404}}.get(address.rpartition("/")[2])
    return special or ({201} if address.endswith("artifacts") and method == "PUT" else {200})


def test_every_address_is_placed() -> None:
    placed = FOR_ALL | LEADS_ON | {route for route, name in NAMES.items() if name in MAY_USE}
    assert {route for route in NAMES if not route.startswith(V1)} == placed


def test_the_matrix_is_as_large_as_the_server() -> None:
    assert len(NAMES) * len(METHODS) * (len(PEOPLE) + 6) > 7_000


@pytest.mark.parametrize("table", TABLES)
def test_everybody_gets_on_every_address_what_is_theirs_and_nothing_else(
    table: str, subjects: Subjects, callers: Callers
) -> None:
    wrong, before = [], contents()
    for route in TABLES[table]:
        url = subjects.url(route)
        for who in callers:
            for method in METHODS:
                may = expected(route, who, method)
                if {200, 302} & may and route.startswith("admin/") and (who, method) in LEFT_OUT:
                    continue
                said: dict[str, Any] = subjects.call(route, method) if route.startswith(V1) else {}
                writes = method not in SAFE or route.endswith(("/open", "/evidence.zip"))
                # A token that is refused stands in the audit trail.
                if (may & {200, 201} and writes) or who == "disabled agent" or route == f"{V1}token/github":
                    with undone():
                        answer = ask(callers[who], method, url, **said)
                else:
                    answer = ask(callers[who], method, url, **said)
                status = "login" if answer.get("Location", "").startswith("/admin/login/") else answer.status_code
                if status not in may:
                    wrong.append((route, who, method, status, may))
    assert wrong == []
    assert contents() == before
