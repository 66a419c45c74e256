"""The browser of one job: launched when first needed, relaunched after a crash, fenced to the target's hosts."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    Response,
    Route,
    WebSocketRoute,
    sync_playwright,
)
from playwright.sync_api import Error as PlaywrightError

from agentstore_runner.contract.addresses import OffTargetError, port_of, split
from agentstore_runner.uat import chromium
from agentstore_runner.uat.fence import DOCUMENT, Fence
from agentstore_runner.uat.gate import Gate
from agentstore_runner.uat.outcomes import NotEvaluatedError, StepFailedError

LAUNCH_MS: Final = 30_000
_MAX_LAUNCHES: Final = 6
_MAX_CONSOLE_ERRORS: Final = 50


class BrowserOwner:
    """Owns Playwright's driver and at most one browser process."""

    def __init__(self, executable: str | None, fence: Fence, flags: dict[str, Any], started: Callable[[str], None]):
        self._executable = executable
        self._fence = fence
        self._flags = flags
        self._started = started
        self._playwright: Playwright | None = None
        self._gate: Gate
        self._browser: Browser | None = None
        self._launches = 0

    def context(self) -> BrowserContext:
        """Open a fresh context with the options of the spec; raises NotEvaluatedError when there is no browser."""
        try:
            browser = self._running()
        except PlaywrightError as error:
            raise NotEvaluatedError(f"the browser could not be started: {first_line(error)}") from error
        try:
            context = browser.new_context(**self._options())
            context.route("**/*", self._guard)
            context.route_web_socket("**/*", self._guard_socket)
        except PlaywrightError as error:
            raise NotEvaluatedError(f"the browser refused to open a window: {first_line(error)}") from error
        return context

    def close(self) -> None:
        """Stop browser and driver."""
        with contextlib.suppress(PlaywrightError):
            if self._browser is not None:
                self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
            self._gate.shutdown()
            self._gate.server_close()

    def network_error(self, url: str) -> str | None:
        """Return Chromium's word for why the host of an address could not be connected to, if that is known."""
        parts = urlsplit(url)
        return self._gate.failures.get((parts.hostname, port_of(parts)))

    def _running(self) -> Browser:
        if self._browser is not None and self._browser.is_connected():
            return self._browser
        if self._launches >= _MAX_LAUNCHES:
            raise NotEvaluatedError("the browser stopped too often")
        self._launches += 1
        if self._playwright is None:
            self._playwright = sync_playwright().start()
            self._gate = Gate(self._fence).open()
        self._browser = self._playwright.chromium.launch(
            executable_path=self._executable,
            args=chromium.flags(),
            proxy={"server": self._gate.url},
            timeout=LAUNCH_MS,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        self._started(f"Chromium {self._browser.version}")
        return self._browser

    def _options(self) -> dict[str, Any]:
        flags = self._flags
        options = {
            "viewport": flags.get("viewport", {"width": 1280, "height": 800}),
            "locale": flags.get("locale"),
            "timezone_id": flags.get("timezone"),
            "color_scheme": flags.get("color_scheme"),
            "ignore_https_errors": flags.get("ignore_https_errors", False),
            "accept_downloads": False,
            "service_workers": "block",  # their requests would bypass the guard
        }
        return {name: value for name, value in options.items() if value is not None}

    def _guard(self, route: Route, request: Request) -> None:
        """Let a request of any page pass only where the fence is open; redirects of it are not seen here."""
        with contextlib.suppress(PlaywrightError):  # the page went away meanwhile
            if self._fence.refusal(request.url, request.resource_type):
                route.abort("blockedbyclient")
            else:
                route.continue_()

    def _guard_socket(self, socket: WebSocketRoute) -> None:
        """Connect a web socket only where the fence is open."""
        with contextlib.suppress(PlaywrightError):
            if self._fence.refusal("http" + socket.url.removeprefix("ws"), "websocket"):
                socket.close()
            else:
                socket.connect_to_server()


class Session:
    """The page, cookies and console of one check and of those that continue on it."""

    def __init__(self, owner: BrowserOwner, fence: Fence, flags: dict[str, Any]) -> None:
        self._owner = owner
        self._fence = fence
        self._marker: str | None = flags.get("testMarker")
        self._traced = flags.get("trace", "never") != "never"
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._navigation: str | None = None
        self._crashed = False
        self.broken = False
        """A navigation failed: the next one on the same page would be interrupted, so it gets a new page."""
        self.last_status: int | None = None
        self.console_errors: list[str] = []

    @property
    def has_page(self) -> bool:
        """Say whether a page was opened that can still be looked at."""
        page = self._page
        return page is not None and not self._crashed and not page.is_closed() and page.url.startswith("http")

    @property
    def lost(self) -> bool:
        """Say whether the browser or the page died."""
        browser = self._context.browser if self._context is not None else None
        return self._crashed or (browser is not None and not browser.is_connected())

    def context(self) -> BrowserContext:
        """Return the context, opened at first use."""
        if self.lost:
            raise NotEvaluatedError("the browser stopped and the page was lost")
        if self._context is None:
            self._context = self._owner.context()
            if self._traced:
                self._context.tracing.start(screenshots=True, snapshots=True)
            self._context.on("console", self._console)
            self._context.on("weberror", lambda error: self._remember(str(error.error)))
        return self._context

    def page(self) -> Page:
        """Return the page; after a failed navigation or when it was closed, a new one with the same cookies."""
        context = self.context()
        if self._page is not None and (self.broken or self._page.is_closed()):
            if not self._page.is_closed():
                self._page.close()
            self._page = None
        if self._page is None:
            page = context.new_page()
            page.on("crash", lambda _: self._crash())
            page.on("request", self._requested)
            page.on("response", self._responded)
            page.on("popup", self._watch)
            self._watch(page)
            self._page, self.broken = page, False
        return self._page

    def begin_navigation(self) -> None:
        """Forget the status of the page before, so that a navigation without a response shows none."""
        self.last_status = None

    def navigated_off_target(self) -> str | None:
        """Return the host of the latest navigation when the spec does not allow it."""
        return self._foreign(self._navigation) if self._navigation is not None else None

    def network_error(self) -> str | None:
        """Return Chromium's word for why the latest navigation got nowhere, if the gate knows it."""
        return self._owner.network_error(self._navigation) if self._navigation is not None else None

    def check_address(self) -> None:
        """Raise StepFailedError when the page stands somewhere the spec does not allow; redirects bypass the guard."""
        if self._page is None or self._page.is_closed():
            return
        url = self._page.url
        if url.startswith("chrome-error:"):
            self.broken = True
            if host := self.navigated_off_target():
                raise off_target(host)
            raise StepFailedError("unreachable", "the page that was opened could not be loaded")
        if not url.startswith("about:") and (host := self._foreign(url)):
            self.broken = True
            raise off_target(host)

    def save_trace(self, path: Path) -> bool:
        """Write what happened since the page was opened or the last trace was written; says whether there is one."""
        if not self._traced or self._context is None or self.lost:
            return False
        self._context.tracing.stop(path=path)
        self._context.tracing.start(screenshots=True, snapshots=True)
        return True

    def close(self) -> None:
        """Close the pages and forget the cookies."""
        if self._context is not None:
            with contextlib.suppress(PlaywrightError):
                self._context.close()
            self._context = self._page = None

    def _foreign(self, url: str) -> str | None:
        try:
            parts = split(url)
        except OffTargetError:
            return url.split(":", 1)[0] + ":"
        return None if self._fence.allows(parts) else parts.netloc

    def _watch(self, page: Page) -> None:
        """See every request of a page before it leaves, each hop of a redirect as well."""
        with contextlib.suppress(PlaywrightError):  # it was closed meanwhile
            watcher = page.context.new_cdp_session(page)
            main_frame: str = watcher.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
            watcher.on("Fetch.requestPaused", lambda event: self._paused(watcher, main_frame, event))
            watcher.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    def _paused(self, watcher: CDPSession, main_frame: str, event: dict[str, Any]) -> None:
        url, kind = event["request"]["url"], event["resourceType"].lower()
        answer: dict[str, Any] = {"requestId": event["requestId"]}
        with contextlib.suppress(PlaywrightError):
            if self._fence.refusal(url, kind):
                if kind == DOCUMENT and event.get("frameId") == main_frame:
                    self._navigation = url
                watcher.send("Fetch.failRequest", {**answer, "errorReason": "BlockedByClient"})
                return
            if self._marker is not None:
                answer["headers"] = self._marked(url, event["request"]["headers"])
            watcher.send("Fetch.continueRequest", answer)

    def _marked(self, url: str, headers: dict[str, str]) -> list[dict[str, str]]:
        """Return the headers with the marker for the target alone; a redirect brings along those of the hop before."""
        kept = {name: value for name, value in headers.items() if name.lower() != "x-test-marker"}
        if self._marker is not None and self._fence.owns(split(url)):
            kept["X-Test-Marker"] = self._marker
        return [{"name": name, "value": value} for name, value in kept.items()]

    def _crash(self) -> None:
        self._crashed = True

    def _main(self, request: Request) -> bool:
        return self._page is not None and request.is_navigation_request() and request.frame == self._page.main_frame

    def _requested(self, request: Request) -> None:
        with contextlib.suppress(PlaywrightError):
            if self._main(request):
                self._navigation = request.url

    def _responded(self, response: Response) -> None:
        with contextlib.suppress(PlaywrightError):
            if self._main(response.request):
                self.last_status = response.status

    def _console(self, message: ConsoleMessage) -> None:
        # What our own guard refused is not an error of the application.
        if message.type == "error" and "ERR_BLOCKED_BY_CLIENT" not in message.text:
            self._remember(message.text)

    def _remember(self, text: str) -> None:
        if len(self.console_errors) < _MAX_CONSOLE_ERRORS:
            self.console_errors.append(text)


def off_target(host: str) -> StepFailedError:
    """Build the failure of a page that left the target."""
    return StepFailedError("off_target", f"the page went to {host}, which neither spec nor target allow", host=host)


def first_line(error: BaseException) -> str:
    """Return the first line of an error without Playwright's call log and method name."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line.split(": ", 1)[1] if line.split(": ", 1)[0].count(".") == 1 and ": " in line else line
