"""Nonsense in every place of an address: each segment, each parameter; never a 500, and looking changes nothing."""

from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from tests.hostile.site import V1, Subjects, ask, contents, routes

# As they stand in an address, percent signs included.
SEGMENTS = (
    "%00", "a%00b", "%ff%fe", "%ed%a0%80", "%0d%0aX:%201", "%1b%5b2J", "..%2f..%2fetc%2fpasswd", "%2e%2e", "zzz", "-1",
    "0", "9" * 30, "9" * 5000, "1e999", "NaN", "null", "%D9%A1%D9%A2", "6B2C5F0E-7C1D-4F44-9D0C-0A4C1F1D2E3F",
    "%7B6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f%7D", "6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f%0a", "'%20OR%201=1--",
    "%25s%25n", "%3Cscript%3Ealert(1)%3C/script%3E", "_3A_2F_00", "_ZZ", "x" * 9000, "%E2%80%AEgnp", "{{7*7}}",
)  # fmt: skip
QUERIES = (
    "%00", "a%00b", "%ff%fe", "%ed%a0%80", "%0d%0aX:1", "%1b[2J", "zzz", "-1", "0", "9" * 30, "9" * 5000, "1e999", "",
    "x" * 9000, "'%20OR%201=1--", "javascript:alert(1)", "//evil.example", "https:evil", "/%5Cevil.example", "[]", "{}",
    "10000-01-01", "0001-01-01", "2026-02-30", "%3Cscript%3E", "%E2%80%AE", "True", "%25", "__class__",
)  # fmt: skip
# Names that Django, its admin, unfold, DRF or a filter of ours reads, and attempts at the ORM.
NAMES = (
    "q", "p", "o", "all", "e", "_facets", "_changelist_filters", "_popup", "_to_field", "next", "s", "page", "kind",
    "again", "id", "name", "format", "_method", "download", "status", "verdict", "agent", "tag", "attention", "latest",
    "queued_from", "queued_to", "ended", "state", "app_label", "model_name", "field_name", "term", "spec__a",
    "_connector", "_negated", "pk__in", "agent__tokens__digest__startswith", "password__startswith", "id__regex",
    "spec__a%22)+OR+1=1--",
)  # fmt: skip
WITH_A_PLACE = [route for route, _ in routes() if "<" in route and not route.startswith("admin/^")]
PLAIN = [
    route
    for route, _ in routes()
    if not set("<^(") & set(route) and route != "admin/logout/"  # GET of that is refused
]


def judged(answer: Any, url: str) -> None:
    """Fail on a fault of the server, and on a redirect to another host."""
    assert answer.status_code < 500, url[:200]
    # Browsers read a backslash as a slash.
    where = urlsplit(urljoin("http://testserver/admin/", answer.get("Location", "").replace("\\", "/")))
    assert (where.scheme, where.netloc) == ("http", "testserver"), url


@pytest.fixture
def everything(superuser: Client, subjects: Subjects) -> Client:
    """A client with a session that may do everything, and with a bearer."""
    superuser.raise_request_exception = False
    superuser.defaults["HTTP_AUTHORIZATION"] = f"Bearer {subjects.bearer}"
    return superuser


@pytest.mark.parametrize("route", WITH_A_PLACE)
def test_nonsense_in_a_segment_is_answered_for_every_method_and_changes_nothing(
    route: str, everything: Client, subjects: Subjects
) -> None:
    before = contents()
    for text in SEGMENTS:
        url = subjects.url(route, text)
        for method in ("GET", "POST", "PUT") if route.startswith(V1) else ("GET", "POST"):
            answer = ask(everything, method, url)
            judged(answer, url)
            if url.startswith("/api/"):
                assert answer.status_code in (400, 404, 405), (method, url[:200], answer.status_code)
                assert answer["Content-Type"] == "application/problem+json"
    assert contents() == before


def crawl(client: Client, route: str, questions: list[tuple[str, str]]) -> None:
    """Ask an address each question; nothing may change."""
    before = contents()
    for name, value in questions:
        url = f"/{route}?{name}={value}"
        judged(ask(client, "GET", url), url)
    assert contents() == before


@pytest.mark.parametrize("route", PLAIN)
def test_nonsense_in_a_query_is_answered_and_looking_changes_nothing(route: str, everything: Client) -> None:
    # Pages are dear: each meets a third of the names here, and every name some value; the soak asks everything.
    place = PLAIN.index(route)
    values = [QUERIES[(7 * at + place) % len(QUERIES)] for at in range(len(NAMES))]
    questions = list(zip(NAMES, values, strict=True))[place % 3 :: 3]
    crawl(everything, route, questions)


@pytest.mark.soak
@pytest.mark.parametrize("route", PLAIN)
def test_every_nonsense_in_every_query_is_answered(route: str, everything: Client) -> None:
    crawl(everything, route, [(name, value) for name in NAMES for value in QUERIES])


@pytest.mark.parametrize("path", ["admin/login/", "admin/password_change/", "admin/jobs/agentjob/add/"])
@pytest.mark.parametrize(
    "where", ["//evil.example", "https:evil.example", "/\\evil.example", "javascript:alert(1)", "%00"]
)
def test_nobody_is_led_to_another_host(path: str, where: str, everything: Client) -> None:
    for client in (Client(), everything):
        judged(client.get(f"/{path}", {"next": where}), where)
        judged(
            client.post(f"/{path}?next={where}", {"next": where, "username": "superuser", "password": "a password"}),
            where,
        )


def test_every_page_that_has_a_list_is_crawled() -> None:
    lists = {reverse(f"admin:{m._meta.app_label}_{m._meta.model_name}_changelist") for m in admin.site._registry}
    assert lists <= {f"/{route}" for route in PLAIN}
