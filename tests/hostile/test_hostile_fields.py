"""Every field of every form of the admin against what nobody should type: a sentence at the field, never a fault.

Pages, their forms and the forms' fields are found, not listed: a new form is covered by being there.
"""

import html
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from django.test import Client

from tests.hostile.forms import Form, forms_of
from tests.hostile.site import Subjects, routes
from tests.hostile.test_hostile_authorisation import undone
from tests.hostile.test_hostile_commands import NEVER, ODD
from tests.hostile.test_hostile_forms import RIGHT, filled, send

DOCUMENTS = (
    "[" * 1_000 + "]" * 1_000, '{"a":' * 70 + "1" + "}" * 70, '{"a": 1e999}', '{"a": NaN}', '{"a": "\\u0000"}',
    '{"a": "\\ud800"}', '{"a": 1, "a": 2}', '{"a": ' + "9" * 5_000 + "}", '{"title": []}', '{"a": 1,}',
    '{"password": "hunter2"}',
)  # fmt: skip
VALUES = (*NEVER, *DOCUMENTS, *ODD)
PAGES = sorted({route for route, name in routes() if route.startswith("admin/") and name != "logout"})
MESSAGE = 600  # characters at most of one error, so that somebody reads it
SECRET = re.compile(r"password")
SAMPLE = 1  # of VALUES for each field in the checks; all of them under soak


def errors_of(answer: Any) -> list[str]:
    """Every error that a page shows at its forms."""
    context = answer.context or {}
    found: list[str] = []
    for name in ("form", "adminform"):
        if name in context and hasattr(getattr(context[name], "form", context[name]), "errors"):
            for errors in getattr(context[name], "form", context[name]).errors.values():
                found.extend(map(str, errors))
    return found


def cells(client: Client, subjects: Subjects, route: str) -> Iterator[tuple[Form, str]]:
    """The forms that a page posts to itself, and each one's fields."""
    for form in forms_of(client, subjects, route):
        for name in dict.fromkeys([*form.fields, *form.choices]):
            if name and name != "csrfmiddlewaretoken":
                yield form, name


def right(form: Form) -> dict[str, list[str]]:
    """The form with a right answer, or as its page has filled it in where none is known."""
    return filled(form) if form.route in RIGHT else dict(form.fields)


def judge(answer: Any, form: Form, name: str, value: str) -> str:
    """What is wrong with an answer; nothing where all is well."""
    if answer.status_code >= 500:
        return f"answered {answer.status_code}"
    if answer.status_code != 200:
        return "" if answer.status_code in (302, 400, 403, 404, 413) else f"answered {answer.status_code}"
    said = errors_of(answer)
    if name not in form.typed:  # Django repeats a choice that nobody could have made
        return ""
    if any(len(message) > MESSAGE for message in said):
        return f"an error of {max(map(len, said))} characters"
    keepable = value.strip() and value.isprintable() and len(value) < 200 and not SECRET.search(name)
    if said and keepable and value not in html.unescape(answer.body.decode()):
        return "what was typed is lost"
    return ""


def wrong(client: Client, subjects: Subjects, route: str, count: int) -> list[str]:
    """The cells of a page that are answered wrongly, with `count` values for each field, others for each next one."""
    found = []
    for turn, (form, name) in enumerate(cells(client, subjects, route)):
        rotated = (VALUES[(turn * count + step) % len(VALUES)] for step in range(len(VALUES)))
        for value in islice(rotated, count):
            with undone():
                fault = judge(send(client, form, right(form) | {name: [value]}), form, name, value)
            if fault:
                found.append(f"{form.url} {name}={value[:40]!r}: {fault}")
    return found


@pytest.fixture
def operator(superuser: Client) -> Client:
    """Somebody who may do everything, and sees a fault of the server as its answer."""
    superuser.raise_request_exception = False
    return superuser


@pytest.mark.parametrize("route", PAGES)
def test_a_field_answers_what_nobody_should_type_with_a_sentence(
    route: str, operator: Client, subjects: Subjects
) -> None:
    assert wrong(operator, subjects, route, SAMPLE) == []


@pytest.mark.soak
@pytest.mark.parametrize("route", PAGES)
def test_a_field_answers_all_that_nobody_should_type_with_a_sentence(
    route: str, operator: Client, subjects: Subjects
) -> None:
    assert wrong(operator, subjects, route, len(VALUES)) == []


def test_the_login_answers_what_nobody_should_type_with_a_sentence(subjects: Subjects) -> None:
    client = Client(raise_request_exception=False)
    assert [form.url for form in forms_of(client, subjects, "admin/login/")] != []
    assert wrong(client, subjects, "admin/login/", len(VALUES)) == []


def test_the_walk_finds_the_forms_that_people_use(operator: Client, subjects: Subjects) -> None:
    found = {form.route for route in RIGHT for form, _ in cells(operator, subjects, route)}
    assert found == set(RIGHT)
