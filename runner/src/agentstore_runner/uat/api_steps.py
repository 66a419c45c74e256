"""The step that sends a request and judges the response, with its own client or with the browser's cookies."""

import json
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from agentstore_runner.contract.addresses import OffTargetError
from agentstore_runner.contract.templates import plain
from agentstore_runner.uat.browser import Session, first_line
from agentstore_runner.uat.fence import Fence
from agentstore_runner.uat.matching import at_pointer, json_type, same_json, search, status_matches, status_text
from agentstore_runner.uat.outcomes import StepFailedError, quoted

MAX_BODY: Final = 2 * 1024 * 1024
_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Answer:
    """One response: header names in lower case, at most MAX_BODY bytes of the body as text."""

    status: int
    headers: dict[str, str]
    text: str
    elapsed_ms: int


@dataclass(frozen=True)
class Call:
    """One request with its templates filled in."""

    method: str
    url: str
    headers: dict[str, str]
    json: Any
    has_json: bool
    form: dict[str, str] | None

    def redirected(self, url: str, status: int) -> "Call":
        """Return the call that a redirect asks for: other hosts get no headers, 301 to 303 become GET."""
        same_host = urlsplit(url).netloc == urlsplit(self.url).netloc
        headers = self.headers if same_host else {}
        if status in (307, 308) or self.method in ("GET", "HEAD"):
            return Call(self.method, url, headers, self.json, self.has_json, self.form)
        return Call("GET", url, headers, None, False, None)


class ApiSteps:
    """Sends requests to allowed hosts only; redirects are followed by hand, so that every hop is checked."""

    def __init__(self, fence: Fence, flags: dict[str, Any], timeout_ms: int) -> None:
        self._fence = fence
        self._marker: str | None = flags.get("testMarker")
        self._verify = not flags.get("ignore_https_errors", False)
        self._timeout_s = timeout_ms / 1000
        self._client: httpx2.Client | None = None

    def send(self, content: dict[str, Any], browser: Session) -> Answer:
        """Send the request of a step; fails when the host is foreign, unreachable or too slow."""
        call = Call(
            content["method"],
            self._resolve(content["path"]),
            content.get("headers", {}),
            content.get("json"),
            "json" in content,
            content.get("form"),
        )
        started = time.monotonic()
        for _ in range(_MAX_REDIRECTS + 1):
            if content.get("share_browser_cookies", False):
                answer = self._by_browser(call, browser, started)
            else:
                answer = self._by_client(call, started)
            location = answer.headers.get("location")
            if not content.get("follow_redirects", False) or answer.status not in _REDIRECTS or not location:
                browser.last_status = answer.status
                return answer
            call = call.redirected(self._resolve(urljoin(call.url, location)), answer.status)
        raise StepFailedError("unreachable", f"{quoted(content['path'])} redirects more than {_MAX_REDIRECTS} times")

    def close(self) -> None:
        """Close the connections and forget the cookies."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _resolve(self, address: str) -> str:
        try:
            return self._fence.resolve(address)
        except OffTargetError as error:
            raise StepFailedError("off_target", str(error)) from error

    def _headers(self, call: Call) -> dict[str, str]:
        owned = self._marker is not None and self._fence.owns(urlsplit(call.url))
        return {**call.headers, "X-Test-Marker": self._marker} if owned and self._marker else call.headers

    def _left(self, started: float) -> float:
        left = self._timeout_s - (time.monotonic() - started)
        if left <= 0:
            raise StepFailedError("timeout", f"the request took longer than {self._timeout_s:g} s")
        return left

    def _by_client(self, call: Call, started: float) -> Answer:
        if self._client is None:
            self._client = httpx2.Client(verify=self._verify, follow_redirects=False)
        body: dict[str, Any] = {"json": call.json} if call.has_json else {}
        if call.form is not None:
            body = {"data": call.form}
        try:
            request = self._client.build_request(
                call.method, call.url, headers=self._headers(call), timeout=self._left(started), **body
            )
        except (httpx2.InvalidURL, ValueError, TypeError) as error:
            raise StepFailedError("action", f"the request cannot be built: {error}") from error
        try:
            response = self._client.send(request, stream=True)
            try:
                self._check_peer(call, response)
                received = bytearray()
                for part in response.iter_bytes():
                    received += part
                    self._left(started)
                    if len(received) >= MAX_BODY:
                        break
            finally:
                response.close()
        except httpx2.TimeoutException as error:
            raise StepFailedError(
                "timeout", f"{call.method} {quoted(call.url)} took longer than {self._timeout_s:g} s"
            ) from error
        except httpx2.LocalProtocolError as error:
            raise StepFailedError("action", f"the request cannot be sent: {error}") from error
        except (httpx2.HTTPError, ssl.SSLError, OSError) as error:
            raise StepFailedError(
                "unreachable", f"{call.method} {quoted(call.url)} failed: {_reason(error)}"
            ) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return self._answer(response.status_code, headers, bytes(received[:MAX_BODY]), started)

    def _check_peer(self, call: Call, response: httpx2.Response) -> None:
        """Fail when the name led elsewhere than a moment ago, when it was looked up."""
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        if peer and self._fence.is_local_peer(call.url, peer[0]):
            raise StepFailedError(
                "off_target", f"{quoted(call.url)} leads to {peer[0]}, which the target does not allow"
            )

    def _by_browser(self, call: Call, browser: Session, started: float) -> Answer:
        context = browser.context()
        headers = self._headers(call)
        body: dict[str, Any] = {"form": call.form} if call.form is not None else {}
        if call.has_json:
            headers = {"Content-Type": "application/json", **headers}
            body = {"data": json.dumps(call.json, ensure_ascii=False)}
        try:
            response = context.request.fetch(
                call.url,
                method=call.method,
                headers=headers,
                max_redirects=0,
                fail_on_status_code=False,
                timeout=self._left(started) * 1000,
                **body,
            )
        except PlaywrightTimeout as error:
            raise StepFailedError(
                "timeout", f"{call.method} {quoted(call.url)} took longer than {self._timeout_s:g} s"
            ) from error
        except PlaywrightError as error:
            if browser.lost:
                raise
            raise StepFailedError(
                "unreachable", f"{call.method} {quoted(call.url)} failed: {first_line(error)}"
            ) from error
        return self._answer(response.status, dict(response.headers), response.body()[:MAX_BODY], started)

    @staticmethod
    def _answer(status: int, headers: dict[str, str], body: bytes, started: float) -> Answer:
        charset = headers.get("content-type", "").partition("charset=")[2].split(";")[0].strip(' "') or "utf-8"
        try:
            text = body.decode(charset, "replace")
        except LookupError:
            text = body.decode("utf-8", "replace")
        return Answer(status, headers, text, round((time.monotonic() - started) * 1000))


def judge_answer(answer: Answer, wanted: dict[str, Any]) -> list[str]:
    """Raise StepFailedError for the first assertion that does not hold; returns warnings of the soft time budget."""
    if "status" in wanted and not status_matches(wanted["status"], answer.status):
        expected = status_text(wanted["status"])
        message = f"expected the status {expected}, but it was {answer.status}"
        raise StepFailedError("http_status", message, expected=expected, actual=answer.status)
    for name, text in wanted.get("headers", {}).items():
        actual = answer.headers.get(name.lower())
        if actual is None:
            raise StepFailedError("header", f"the response has no header {name}", expected=text)
        if text not in actual:
            message = f"expected the header {name} to contain {quoted(text)}, but it is {quoted(actual)}"
            raise StepFailedError("header", message, expected=text, actual=actual)
    if "body_contains" in wanted and wanted["body_contains"] not in answer.text:
        text = wanted["body_contains"]
        raise StepFailedError("body", f"the response does not contain {quoted(text)}", expected=text)
    if "body_not_contains" in wanted and wanted["body_not_contains"] in answer.text:
        text = wanted["body_not_contains"]
        raise StepFailedError("body", f"the response contains {quoted(text)}, which it must not", unexpected=text)
    if "json" in wanted:
        document = _document(answer)
        for item in wanted["json"]:
            _judge_json(document, item)
    budget = wanted.get("max_ms")
    slow = budget is not None and answer.elapsed_ms > budget
    return [f"slow: the request took {answer.elapsed_ms} ms of {budget} ms"] if slow else []


def saved_values(answer: Answer, save: dict[str, str]) -> dict[str, str | int | float | bool]:
    """Return the values that a step saves; fails when one is missing or not a plain value."""
    if not save:
        return {}
    document = _document(answer)
    values: dict[str, str | int | float | bool] = {}
    for name, pointer in save.items():
        found, value = at_pointer(document, pointer)
        if not found:
            raise StepFailedError("json", f"the response has nothing at {pointer} to save as {name}")
        if not isinstance(value, str | int | float):
            raise StepFailedError(
                "json", f"the value at {pointer} cannot be saved as {name}: it is of type {json_type(value)}"
            )
        values[name] = value
    return values


def _document(answer: Answer) -> Any:
    try:
        return json.loads(answer.text)
    except (ValueError, RecursionError) as error:
        raise StepFailedError(
            "json", "the response is not JSON", content_type=answer.headers.get("content-type")
        ) from error


def _judge_json(document: Any, item: dict[str, Any]) -> None:
    where = item["pointer"] or "the whole document"
    found, value = at_pointer(document, item["pointer"])
    if item.get("exists") is False:
        if found:
            raise StepFailedError(
                "json", f"expected nothing at {where}, but there is {_shown(value)}", actual=_shown(value)
            )
        return
    if not found:
        raise StepFailedError("json", f"the response has nothing at {where}")
    kind = json_type(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    tests: dict[str, tuple[bool, str]] = {
        "equals": ("equals" not in item or same_json(value, item["equals"]), "equal {}"),
        "contains": (_contains(value, item.get("contains")), "contain {}"),
        "type": (item.get("type") in (kind, "number" if number else kind), "be of type {}"),
        "gt": (number and value > item.get("gt", 0), "be greater than {}"),
        "lt": (number and value < item.get("lt", 0), "be less than {}"),
        "length": (isinstance(value, str | list | dict) and len(value) == item.get("length"), "have the length {}"),
    }
    for word, (holds, phrase) in tests.items():
        if word in item and not holds:
            wish = phrase.format(_shown(item[word]))
            raise StepFailedError(
                "json",
                f"expected {where} to {wish}, but it is {_shown(value)}",
                expected=_shown(item[word]),
                actual=_shown(value),
            )
    if "matches" in item and not search(item["matches"], value if isinstance(value, str) else plain(value)):
        message = f"expected {where} to match {quoted(item['matches'])}, but it is {_shown(value)}"
        raise StepFailedError("json", message, expected=item["matches"], actual=_shown(value))


def _contains(value: Any, text: Any) -> bool:
    if isinstance(value, str):
        return isinstance(text, str) and text in value
    return isinstance(value, list) and any(same_json(item, text) for item in value)


def _shown(value: Any) -> str:
    return quoted(json.dumps(value, ensure_ascii=False)) if not isinstance(value, str) else quoted(value)


def _reason(error: Exception) -> str:
    text = str(error)
    if "CERTIFICATE" in text.upper():
        return "its certificate is not accepted"
    if "refused" in text:
        return "the server refused the connection"
    if "Name or service not known" in text or "getaddrinfo" in text or "No address" in text or "resolution" in text:
        return "the name of the host was not found"
    return text or type(error).__name__
