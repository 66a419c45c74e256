"""The steps that act on a page."""

import mimetypes
import re
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Locator
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from agentstore_runner.contract.addresses import OffTargetError, Target
from agentstore_runner.uat import locators
from agentstore_runner.uat.browser import Session, first_line, off_target
from agentstore_runner.uat.matching import status_matches, status_text
from agentstore_runner.uat.outcomes import StepFailedError, quoted

_NETWORK = re.compile(r"net::(ERR_[A-Z_]+)")
_NETWORK_WORDS = {
    "ERR_CONNECTION_REFUSED": "the server refused the connection",
    "ERR_NAME_NOT_RESOLVED": "the name of the host was not found",
    "ERR_CONNECTION_RESET": "the server closed the connection",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer",
    "ERR_CONNECTION_TIMED_OUT": "the server did not answer",
    "ERR_INTERNET_DISCONNECTED": "the runner has no network",
    "ERR_UNSAFE_PORT": "browsers refuse this port",
    "ERR_TOO_MANY_REDIRECTS": "the page redirects in a circle",
}
_POLL_MS = 50


class PageSteps:
    """Executes actions; `timeout_ms` is the limit of one step, texts arrive with their templates filled in."""

    def __init__(self, session: Session, target: Target, timeout_ms: int) -> None:
        self._session = session
        self._target = target
        self._timeout_ms = timeout_ms

    def goto(self, url: str, expected: int | list[int] | str | None, wait_until: str) -> None:
        """Open an address; fails when it cannot be reached, leaves the target, or answers with another status."""
        try:
            address = self._target.resolve(url)
        except OffTargetError as error:
            raise StepFailedError("off_target", str(error)) from error
        session, page = self._session, self._session.page()
        session.begin_navigation()
        try:
            page.goto(address, wait_until=wait_until, timeout=self._timeout_ms)  # type: ignore[arg-type]  # the schema closes the words
        except PlaywrightTimeout as error:
            session.broken = True
            seconds = self._timeout_ms / 1000
            raise StepFailedError("timeout", f"the page {quoted(url)} was not loaded within {seconds:g} s") from error
        except PlaywrightError as error:
            if session.lost:
                raise
            session.broken = True
            raise self._unreachable(url, error) from error
        session.check_address()
        status = session.last_status
        wrong = not status_matches(expected, status) if expected is not None else status is not None and status >= 400
        if wrong:
            wish = f", expected {status_text(expected)}" if expected is not None else ""
            raise StepFailedError(
                "http_status", f"the page {quoted(url)} answered with status {status}{wish}", actual=status
            )

    def act(self, word: str, content: dict[str, Any]) -> None:
        """Execute a click, hover, check, uncheck, fill, select, press or upload."""
        page = self._session.page()
        place = content if word in ("click", "hover", "check", "uncheck") else content.get("locator")
        if place is None:
            try:
                page.keyboard.press(content["key"])
            except PlaywrightError as error:
                if self._session.lost:
                    raise
                raise StepFailedError("action", f"the key {quoted(content['key'])} cannot be pressed") from error
            return
        element = locators.find(page, place)
        action = self._actions(element, content)[word]
        try:
            action()
        except PlaywrightError as error:
            if self._session.lost:
                raise
            raise self._not_done(word, place, element, error) from error

    def wait_for_element(self, place: dict[str, Any], state: str) -> None:
        """Wait until an element is visible, hidden, attached or detached."""
        element = locators.find(self._session.page(), place)
        try:
            element.wait_for(state=state, timeout=self._timeout_ms)  # type: ignore[arg-type]  # the schema closes the words
        except PlaywrightTimeout as error:
            message = f"{locators.describe(place)} did not become {state} within {self._timeout_ms / 1000:g} s"
            raise StepFailedError("timeout", message) from error
        except PlaywrightError as error:
            if self._session.lost:
                raise
            raise self._not_done("wait_for", place, element, error) from error

    def wait_for_address(self, url: str) -> None:
        """Wait until the page stands at an address."""
        try:
            wanted = self._target.resolve(url)
        except OffTargetError as error:
            raise StepFailedError("off_target", str(error)) from error
        page = self._session.page()
        deadline = time.monotonic() + self._timeout_ms / 1000
        while page.url != wanted:
            self._session.check_address()
            if time.monotonic() >= deadline:
                message = f"the page did not reach {quoted(url)} within {self._timeout_ms / 1000:g} s"
                raise StepFailedError("timeout", message, actual=page.url)
            page.wait_for_timeout(_POLL_MS)

    def _actions(self, element: Locator, content: dict[str, Any]) -> dict[str, Callable[[], object]]:
        limit = self._timeout_ms
        return {
            "click": lambda: element.click(timeout=limit),
            "hover": lambda: element.hover(timeout=limit),
            "check": lambda: element.check(timeout=limit),
            "uncheck": lambda: element.uncheck(timeout=limit),
            "fill": lambda: element.fill(content["value"], timeout=limit),
            "select": lambda: element.select_option(content["value"], timeout=limit),
            "press": lambda: element.press(content["key"], timeout=limit),
            "upload": lambda: element.set_input_files(
                {
                    "name": content["name"],
                    "mimeType": mimetypes.guess_type(content["name"])[0] or "text/plain",
                    "buffer": content["content"].encode(),
                },
                timeout=limit,
            ),
        }

    def _unreachable(self, url: str, error: PlaywrightError) -> StepFailedError:
        if host := self._session.navigated_off_target():
            return off_target(host)
        if "Download is starting" in str(error):
            return StepFailedError("action", f"{quoted(url)} is a download and not a page")
        hit = _NETWORK.search(str(error))
        if hit is None:
            return StepFailedError("action", f"the page {quoted(url)} could not be opened: {first_line(error)}")
        word = self._session.network_error() or hit[1]
        reason = _NETWORK_WORDS.get(word, f"the browser says {word}")
        if "CERT" in hit[1] or "SSL" in hit[1]:
            reason = f"its certificate is not accepted ({hit[1]})"
        return StepFailedError("unreachable", f"the page {quoted(url)} cannot be reached: {reason}", reason=word)

    def _not_done(self, word: str, place: dict[str, Any], element: Locator, error: PlaywrightError) -> StepFailedError:
        name = locators.describe(place)
        text = str(error)
        timed_out = isinstance(error, PlaywrightTimeout)
        if "strict mode violation" in text:
            count = element.count()
            return StepFailedError("action", f"{count} elements match {name}; make it precise or add nth", count=count)
        if not timed_out:
            return StepFailedError("action", f"could not {word} {name}: {first_line(error)}")
        if element.count() == 0:
            reason = "it is not on the page"
        elif "intercepts pointer events" in text:
            reason = "another element covers it"
        elif "not visible" in text:
            reason = "it is not visible"
        elif "not enabled" in text:
            reason = "it is disabled"
        elif "not editable" in text:
            reason = "it cannot be edited"
        elif "did not find some options" in text:
            reason = "it has no such option"
        else:
            reason = "it did not come to rest"
        return StepFailedError("timeout", f"could not {word} {name} within {self._timeout_ms / 1000:g} s: {reason}")
