"""Assertions about a page: each is read again until all hold or the time is over."""

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Locator, Page

from agentstore_runner.contract.addresses import OffTargetError, Target
from agentstore_runner.uat import locators
from agentstore_runner.uat.browser import Session
from agentstore_runner.uat.matching import search, status_matches, status_text
from agentstore_runner.uat.outcomes import StepFailedError, quoted

_POLL_MS = 50
_READ_MS = 1000
ELEMENT_CONDITIONS = ("visible", "enabled", "checked", "count", "text", "text_contains", "text_matches", "value")


def expect(session: Session, target: Target, wanted: dict[str, Any], timeout_ms: int) -> None:
    """Raise StepFailedError with what was seen last unless every condition holds within the time."""
    page = session.page()
    deadline = time.monotonic() + wanted.get("timeout_ms", timeout_ms) / 1000
    while True:
        session.check_address()
        try:
            failure = _first_failure(session, page, target, wanted)
        except PlaywrightError as error:
            if session.lost:
                raise
            # A page that is just being replaced cannot be read; the next look sees the new one.
            failure = StepFailedError("assertion", f"the page could not be read: {str(error).splitlines()[0]}")
        if failure is None:
            return
        if time.monotonic() >= deadline:
            raise failure
        page.wait_for_timeout(_POLL_MS)


def _first_failure(session: Session, page: Page, target: Target, wanted: dict[str, Any]) -> StepFailedError | None:
    if "locator" in wanted and (failure := _element_failure(page, wanted)):
        return failure
    readers: dict[str, Callable[[Any], StepFailedError | None]] = {
        "url": lambda value: _equal("the address of the page", _absolute(target, value), page.url),
        "url_contains": lambda value: _contains("the address of the page", value, page.url),
        "url_matches": lambda value: _matches("the address of the page", value, page.url),
        "title": lambda value: _equal("the title of the page", value, page.title()),
        "title_contains": lambda value: _contains("the title of the page", value, page.title()),
        "status": lambda value: _status(value, session.last_status),
        "no_console_errors": lambda _: _console(session.console_errors),
    }
    for name, reader in readers.items():
        if name in wanted and (failure := reader(wanted[name])):
            return failure
    return None


def _element_failure(page: Page, wanted: dict[str, Any]) -> StepFailedError | None:
    place = wanted["locator"]
    element, name = locators.find(page, place), locators.describe(place)
    count = element.count()
    if "count" in wanted and count != wanted["count"]:
        message = f"expected {wanted['count']} of {name}, but there are {count}"
        return StepFailedError("assertion", message, expected=wanted["count"], actual=count)
    conditions = [condition for condition in ELEMENT_CONDITIONS if condition in wanted and condition != "count"]
    if conditions in ([], ["visible"]) and count == 0 and not wanted.get("visible", False):
        return None
    if conditions and count == 0:
        return StepFailedError("assertion", f"{name} is not on the page")
    if conditions and count > 1:
        return StepFailedError("assertion", f"{count} elements match {name}; make it precise or add nth", count=count)
    return next((bad for word in conditions if (bad := _condition(element, name, word, wanted[word]))), None)


def _condition(element: Locator, name: str, word: str, value: Any) -> StepFailedError | None:
    if word in ("visible", "enabled", "checked"):
        read: dict[str, Callable[[], bool]] = {
            "visible": element.is_visible,
            "enabled": lambda: element.is_enabled(timeout=_READ_MS),
            "checked": lambda: element.is_checked(timeout=_READ_MS),
        }
        actual = read[word]()
        if actual == value:
            return None
        message = f"{name} is {'' if actual else 'not '}{word}, expected {'' if value else 'not '}{word}"
        return StepFailedError("assertion", message, expected=value, actual=actual)
    if word == "value":
        return _equal(f"the value of {name}", value, element.input_value(timeout=_READ_MS))
    text = " ".join(element.inner_text(timeout=_READ_MS).split())
    compare = {"text": _equal, "text_contains": _contains, "text_matches": _matches}[word]
    return compare(f"the text of {name}", value if word == "text_matches" else " ".join(value.split()), text)


def _absolute(target: Target, address: str) -> str:
    try:
        return target.resolve(address)
    except OffTargetError as error:
        raise StepFailedError("off_target", str(error)) from error


def _equal(what: str, expected: str, actual: str) -> StepFailedError | None:
    if expected == actual:
        return None
    message = f"expected {what} to be {quoted(expected)}, but it is {quoted(actual)}"
    return StepFailedError("assertion", message, expected=expected, actual=actual)


def _contains(what: str, expected: str, actual: str) -> StepFailedError | None:
    if expected in actual:
        return None
    message = f"expected {what} to contain {quoted(expected)}, but it is {quoted(actual)}"
    return StepFailedError("assertion", message, expected=expected, actual=actual)


def _matches(what: str, expression: str, actual: str) -> StepFailedError | None:
    if search(expression, actual):
        return None
    message = f"expected {what} to match {quoted(expression)}, but it is {quoted(actual)}"
    return StepFailedError("assertion", message, expected=expression, actual=actual)


def _status(expected: int | list[int] | str, actual: int | None) -> StepFailedError | None:
    if status_matches(expected, actual):
        return None
    seen = "there was no response" if actual is None else f"it was {actual}"
    message = f"expected the status {status_text(expected)}, but {seen}"
    return StepFailedError("http_status", message, expected=status_text(expected), actual=actual)


def _console(errors: list[str]) -> StepFailedError | None:
    if not errors:
        return None
    message = f"the console shows {len(errors)} error{'s' if len(errors) > 1 else ''}, the first is {quoted(errors[0])}"
    return StepFailedError("console_errors", message, count=len(errors), first=errors[0])
