"""No answer that is made for somebody may lie in a cache, whatever became of the request."""

from typing import Any

import pytest

from tests.hostile.site import V1, Callers, Subjects, ask, routes
from tests.hostile.test_hostile_authorisation import undone

# The small picture of a screenshot, for the browser of the one person who may see it, for five minutes.
PRIVATE = {"artifacts/<uuid:artifact_id>/thumbnail"}
WHO = ("anonymous", "nobody", "superuser", "agent", "revoked token")
ROUTES = [route for route, _ in routes()]


@pytest.mark.parametrize("part", ["admin/a", "admin/jobs", "admin/", "artifacts/", V1, "", "^api"])
def test_every_answer_of_every_address_says_no_store(part: str, subjects: Subjects, callers: Callers) -> None:
    parts = ("admin/a", "admin/jobs", "admin/", "artifacts/", V1, "^api", "")
    mine = [route for route in ROUTES if next(one for one in parts if route.startswith(one)) == part]
    assert mine
    wrong = []
    for route in mine:
        for who in WHO:
            for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS") if who == "superuser" else ("GET", "POST"):
                said: dict[str, Any] = subjects.call(route, method) if route.startswith(V1) else {}
                with undone():
                    answer = ask(callers[who], method, subjects.url(route), **said)
                control = answer.get("Cache-Control", "")
                if "no-store" not in control and not (route in PRIVATE and control.startswith("private")):
                    wrong.append((route, who, method, answer.status_code, control))
    assert wrong == []


@pytest.mark.parametrize(
    "path", ["/nothing", "/admin/nothing/", "/api/nothing", "/artifacts/nothing", "/healthz", "/readyz"]
)
@pytest.mark.parametrize("host", ["testserver", "evil.example", "a b", "\x00"])
def test_what_is_not_there_and_what_is_refused_says_no_store_too(
    path: str, host: str, subjects: Subjects, callers: Callers
) -> None:
    for who in WHO:
        answer = ask(callers[who], "GET", path, HTTP_HOST=host)
        assert answer.status_code < 500
        assert "no-store" in answer["Cache-Control"], (who, answer.status_code)


def test_pages_of_people_differ_by_cookie_for_any_cache_that_keeps_them_all_the_same(
    subjects: Subjects, callers: Callers
) -> None:
    for who in ("anonymous", "superuser"):
        assert "Cookie" in callers[who].get("/admin/jobs/agentjob/")["Vary"]
