"""The checks of a spec in their order: sessions, retries, dependencies, screenshots."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Error as PlaywrightError

from agentstore_runner.contract import templates, uat
from agentstore_runner.contract.results import check_result
from agentstore_runner.uat import locators
from agentstore_runner.uat.api_steps import ApiSteps, judge_answer, saved_values
from agentstore_runner.uat.browser import BrowserOwner, Session, first_line
from agentstore_runner.uat.expectations import expect
from agentstore_runner.uat.fence import Fence
from agentstore_runner.uat.outcomes import NotEvaluatedError, StepFailedError
from agentstore_runner.uat.page_steps import PageSteps

DEFAULT_STEP_MS: Final = 10_000
DEFAULT_ARTIFACTS: Final = 50
_SCREENSHOT_MS: Final = 5_000
Emit = Callable[[dict[str, Any]], None]


@dataclass
class Progress:
    """What is known of the checks that are over; it survives the process that executed them."""

    statuses: dict[str, str] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    stopped_by: str | None = None
    artifacts: int = 0


@dataclass
class _Place:
    """Where a check works: its page and cookies, and its API client."""

    browser: Session
    api: ApiSteps

    def close(self) -> None:
        self.browser.close()
        self.api.close()


@dataclass
class _Attempt:
    status: str = "passed"
    code: str | None = None
    message: str | None = None
    step: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    assertions: int = 0
    warnings: list[str] = field(default_factory=list)
    duration_ms: int = 0

    def brief(self) -> dict[str, Any]:
        return {"status": self.status, "duration_ms": self.duration_ms, "code": self.code, "message": self.message}


class CheckRunner:
    """Executes checks and emits one event as each begins, takes a step, makes a file and ends."""

    def __init__(
        self,
        spec: dict[str, Any],
        secrets: dict[str, str],
        progress: Progress,
        owner: BrowserOwner,
        fence: Fence,
        folder: Path,
        emit: Emit,
    ) -> None:
        self._spec = spec
        self._flags: dict[str, Any] = spec.get("flags", {})
        self._limits: dict[str, Any] = spec.get("limits", {})
        self._secrets = secrets
        self._progress = progress
        self._owner = owner
        self._folder = folder
        self._emit = emit
        self._fence = fence
        self._step_ms: int = self._limits.get("step_timeout_ms", DEFAULT_STEP_MS)
        self._values: dict[str, Any] = {**spec.get("vars", {}), **progress.saved}
        if "testMarker" in self._flags:
            self._values[templates.MARKER] = self._flags["testMarker"]
        self._places: dict[str, _Place] = {}
        self._names: set[str] = set()
        self._artifacts: list[str] = []
        self._notes: list[str] = []

    def run(self, first: int) -> None:
        """Execute the checks from this index on."""
        for index, check in enumerate(self._spec["checks"]):
            if index >= first:
                self._one(index, check)
                self._forget_places(index)

    def _one(self, index: int, check: dict[str, Any]) -> None:
        statuses = self._progress.statuses
        missing = [needed for needed in check.get("needs", ()) if statuses.get(needed) != "passed"]
        if self._progress.stopped_by is not None:
            result = check_result(
                check, "skipped", message=f"not run, because “{self._progress.stopped_by}” did not pass"
            )
        elif missing:
            result = check_result(
                check, "skipped", message=f"not run, because it needs “{missing[0]}”, which did not pass"
            )
        else:
            result = self._executed(index, check)
        statuses[check["id"]] = result["status"]
        if result["status"] in ("failed", "error") and check.get("on_fail") == "stop":
            self._progress.stopped_by = check["id"]
        self._emit({"event": "check", "index": index, "result": result, "saved": self._progress.saved})

    def _executed(self, index: int, check: dict[str, Any]) -> dict[str, Any]:
        self._artifacts, self._notes = [], []
        attempts: list[_Attempt] = []
        started = time.monotonic()
        for _ in range(check.get("retries", 0) + 1):
            if attempts and not check.get("needs"):
                self._places.pop(check["id"]).close()
            attempts.append(self._attempt(index, check))
            if attempts[-1].status == "passed":
                break
        last = attempts[-1]
        duration = round((time.monotonic() - started) * 1000)
        mode = self._flags.get("screenshots", "on-failure")
        if mode == "every-check" or (mode == "on-failure" and last.status == "failed"):
            self._final_screenshot(index, check, last)
        if last.status == "failed":
            self._trace(index, check)
        warnings = list(last.warnings)
        if "max_ms" in check and last.duration_ms > check["max_ms"]:
            warnings.append(f"slow: the check took {last.duration_ms} ms of {check['max_ms']} ms")
        return check_result(
            check,
            last.status,
            duration_ms=duration,
            assertions=last.assertions,
            code=last.code,
            message=last.message,
            step=last.step,
            detail=last.detail,
            attempts=[attempt.brief() for attempt in attempts],
            flaky=last.status == "passed" and len(attempts) > 1,
            warnings=warnings,
            notes=self._notes,
            artifacts=self._artifacts,
        )

    def _attempt(self, index: int, check: dict[str, Any]) -> _Attempt:
        attempt = _Attempt()
        started = time.monotonic()
        place: _Place | None = None
        number = 0
        try:
            place = self._place(check)
            if any(uat.needs_page(*next(iter(step.items()))) for step in check["steps"]):
                place.browser.page()
                started = time.monotonic()  # a budget is for the application, not for the start of the browser
            for number, step in enumerate(check["steps"]):
                word, content = next(iter(step.items()))
                self._emit({"event": "step", "index": index, "step": number, "limit_s": self._limit_s(word, content)})
                self._step(index, check, place, word, content, attempt)
                place.browser.check_address()
        except StepFailedError as failure:
            attempt.status, attempt.code, attempt.message = "failed", failure.code, failure.message
            attempt.detail = failure.detail
        except (NotEvaluatedError, templates.UnresolvedError, PlaywrightError) as error:
            attempt.status, attempt.code, attempt.message = "error", "runner_error", _explain(error, place)
        attempt.step = None if attempt.status == "passed" else number
        attempt.duration_ms = round((time.monotonic() - started) * 1000)
        return attempt

    def _place(self, check: dict[str, Any]) -> _Place:
        """Return the place of the latest needed check, or a fresh one: nothing leaks between independent checks."""
        if check["id"] in self._places:
            place = self._places[check["id"]]
        elif needs := check.get("needs"):
            if needs[-1] not in self._places:
                raise NotEvaluatedError(f"the page of “{needs[-1]}” was lost when the browser stopped")
            place = self._places[needs[-1]]
        else:
            session = Session(self._owner, self._fence, self._flags)
            place = _Place(session, ApiSteps(self._fence, self._flags, self._step_ms))
        self._places[check["id"]] = place
        place.browser.console_errors.clear()
        return place

    def _forget_places(self, index: int) -> None:
        """Close what no later check continues on."""
        later = {needed for check in self._spec["checks"][index + 1 :] for needed in check.get("needs", ())}
        kept = {name: place for name, place in self._places.items() if name in later}
        closed = {id(place) for place in kept.values()}
        for place in self._places.values():
            if id(place) not in closed:
                closed.add(id(place))
                place.close()
        self._places = kept

    def _limit_s(self, word: str, content: Any) -> float:
        own = content.get("timeout_ms", 0) if word == "expect" else 0
        return float(max(own, self._step_ms, _SCREENSHOT_MS)) / 1000

    def _render(self, value: Any) -> Any:
        return templates.render_document(value, self._values, self._secrets)

    def _filled(self, word: str, content: Any) -> Any:
        """Return the content of a step with the templates of exactly its template fields filled in."""
        if isinstance(content, str):
            return self._render(content)
        filled = dict(content)
        names = ("url",) if word == "goto" else uat.TEMPLATES.get(word, ())
        for name in names:
            if name in filled:
                filled[name] = self._render(filled[name])
        if word == "request" and "expect" in filled:
            wanted = filled["expect"] = dict(filled["expect"])
            for name in ("headers", "body_contains", "body_not_contains"):
                if name in wanted:
                    wanted[name] = self._render(wanted[name])
            if "json" in wanted:
                wanted["json"] = [
                    {
                        key: self._render(value) if key in ("equals", "contains") else value
                        for key, value in item.items()
                    }
                    for item in wanted["json"]
                ]
        return filled

    def _step(
        self, index: int, check: dict[str, Any], place: _Place, word: str, content: Any, attempt: _Attempt
    ) -> None:
        content = self._filled(word, content)
        browser = place.browser
        page = PageSteps(browser, self._fence, self._step_ms)
        if word == "goto":
            options = {"url": content} if isinstance(content, str) else content
            attempt.assertions += "expect_status" in options
            page.goto(options["url"], options.get("expect_status"), options.get("wait_until", "load"))
        elif word == "wait_for":
            if "url" in content:
                page.wait_for_address(content["url"])
            else:
                page.wait_for_element(content["locator"], content.get("state", "visible"))
        elif word == "expect":
            attempt.assertions += 1
            expect(browser, self._fence, content, self._step_ms)
        elif word == "request":
            self._request(place, content, attempt)
        elif word == "screenshot":
            self._screenshot(index, check, browser, content)
        else:
            page.act(word, content)

    def _request(self, place: _Place, content: dict[str, Any], attempt: _Attempt) -> None:
        answer = place.api.send(content, place.browser)
        if "expect" in content:
            attempt.assertions += 1
            attempt.warnings += judge_answer(answer, content["expect"])
        values = saved_values(answer, content.get("save", {}))
        self._values.update(values)
        self._progress.saved.update(values)

    def _final_screenshot(self, index: int, check: dict[str, Any], last: _Attempt) -> None:
        place = self._places.get(check["id"])
        if place is not None and place.browser.has_page:
            self._screenshot(index, check, place.browser, {"name": "end" if last.status == "passed" else "failure"})

    def _screenshot(self, index: int, check: dict[str, Any], session: Session, content: dict[str, Any]) -> None:
        """Take a picture; one that cannot be taken is a note and never a failed check."""
        if self._progress.artifacts >= self._limits.get("max_artifacts", DEFAULT_ARTIFACTS):
            self._notes.append(f"the screenshot “{content['name']}” was left out: limits.max_artifacts is reached")
            return
        page = session.page()
        name = self._artifact_name(index, check["id"], content["name"])
        path = self._folder / name
        options: dict[str, Any] = {
            "path": path,
            "type": "png",
            "animations": "disabled",
            "timeout": _SCREENSHOT_MS,
            "mask": [
                page.locator("input[type=password]"),
                *(locators.find(page, self._render(masked)) for masked in content.get("mask", ())),
            ],
        }
        try:
            if "locator" in content:
                locators.find(page, content["locator"]).screenshot(**options)
            else:
                page.screenshot(full_page=content.get("full_page", False), **options)
        except PlaywrightError as error:
            if session.lost:
                raise
            self._notes.append(f"the screenshot “{content['name']}” could not be taken: {first_line(error)}")
            return
        self._progress.artifacts += 1
        self._artifacts.append(name)
        self._emit({"event": "artifact", "index": index, "name": name, "content_type": "image/png"})

    def _trace(self, index: int, check: dict[str, Any]) -> None:
        """Keep the trace of a failed check, where the spec wants it; one that cannot be written is a note."""
        place = self._places.get(check["id"])
        if place is None:
            return
        name = self._artifact_name(index, check["id"], "trace", "zip")
        try:
            if not place.browser.save_trace(self._folder / name):
                return
        except PlaywrightError as error:
            self._notes.append(f"the trace could not be written: {first_line(error)}")
            return
        self._progress.artifacts += 1
        self._artifacts.append(name)
        self._emit({"event": "artifact", "index": index, "name": name, "content_type": "application/zip"})

    def _artifact_name(self, index: int, check_id: str, name: str, suffix: str = "png") -> str:
        """Return a name that no other file of the job has: a retry takes the same pictures again."""
        stem = f"{index + 1:03d}-{check_id}-{name}"
        candidate, number = f"{stem}.{suffix}", 1
        while candidate in self._names:
            number += 1
            candidate = f"{stem}-{number}.{suffix}"
        self._names.add(candidate)
        return candidate


def _explain(error: Exception, place: _Place | None) -> str:
    if isinstance(error, templates.UnresolvedError):
        return f"the value of {error} is missing, because the request that saves it did not run"
    if isinstance(error, NotEvaluatedError):
        return str(error)
    if place is not None and place.browser.lost:
        return "the browser stopped while the check was running"
    return f"the browser could not be used: {first_line(error)}"
