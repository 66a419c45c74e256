"""The forms of the admin as a browser finds them on their pages."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from django.test import Client

from tests.hostile.site import Subjects


@dataclass
class Form:
    """One form: where it goes and what stands in its fields."""

    route: str
    url: str
    fields: dict[str, list[str]] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    typed: set[str] = field(default_factory=set)  # those that somebody types into


class _Reader(HTMLParser):
    """Collects the POST forms of a page; what stands outside of any form belongs to none."""

    def __init__(self, route: str, url: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._route, self._url = route, url
        self._form: Form | None = None
        self._name = ""
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            posts = given.get("method", "").lower() == "post" or "hx-post" in given
            self._form = Form(self._route, given.get("action") or given.get("hx-post") or self._url) if posts else None
        elif self._form is not None and ("disabled" not in given or tag == "option"):
            self._read(self._form, tag, given)

    def _read(self, form: Form, tag: str, given: dict[str, str]) -> None:
        name, value = given.get("name", ""), given.get("value", "")
        match tag, given.get("type", "text"):
            case "input", "checkbox" | "radio":
                form.choices.setdefault(name, []).append(given.get("value", "on"))
                if "checked" in given:
                    form.fields.setdefault(name, []).append(given.get("value", "on"))
            case "input", kind if name and kind not in ("submit", "button", "image", "file"):
                form.fields.setdefault(name, []).append(value)
                form.typed |= {name} if kind == "text" else set()
            case "textarea", _:
                self._name = name
                form.typed.add(name)
                form.fields.setdefault(name, []).append("")
            case "select", _:
                self._select = name
                form.choices.setdefault(name, [])
            case "option", _ if self._select:
                form.choices[self._select].append(value)
                if "selected" in given:
                    form.fields.setdefault(self._select, []).append(value)

    def handle_data(self, data: str) -> None:
        if self._form is not None and self._name:
            self._form.fields[self._name][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._form is not None:
            self.found.append(self._form)
            self._form = None
        self._name = "" if tag == "textarea" else self._name
        self._select = "" if tag == "select" else self._select


def forms_of(client: Client, subjects: Subjects, route: str) -> list[Form]:
    """The forms that a page of the admin shows and that go back to it."""
    url = subjects.url(route) + ("?kind=echo" if route == "admin/jobs/agentjob/add/" else "")
    reader = _Reader(route, url)
    answer = client.get(url)
    if answer.status_code == 200 and not answer.streaming and "html" in answer.headers["Content-Type"]:
        reader.feed(answer.content.decode())
    return [form for form in reader.found if form.url.split("?")[0] in ("", url.split("?")[0])]


def form_of(client: Client, subjects: Subjects, route: str) -> Form:
    """The first of them."""
    return forms_of(client, subjects, route)[0]
