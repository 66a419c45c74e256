"""Every step and assertion of a page: what passes, and what a failure tells a person."""

import json
import socket
from typing import Any

import pytest
from workbench import Bench, Site, expect, outcome, request, spec

PAGE = """
<h1 data-testid=heading>Orders   of
today</h1><p class=item>one</p><p class=item>two</p><p id=hidden style="display:none">psst</p>
<label>Email <input id=email value="a@example.org" title="Your address"></label>
<label>Secret <input id=pw type=password value="typed-secret"></label>
<label><input type=checkbox id=box checked> Agree</label><button id=off disabled>Off</button>
<select id=size><option value=s>Small</option><option value=l>Large</option></select><img alt="A logo" src="data:,">
<input id=file type=file placeholder="Choose">
<button id=under>Under</button><div style="position:fixed;inset:0;pointer-events:auto" id=cover hidden></div>
<p id=log></p><script>
const log = text => document.getElementById('log').textContent += text + ';';
document.getElementById('under').onclick = () => log('clicked');
document.getElementById('under').onmouseenter = () => log('hovered');
document.getElementById('size').onchange = e => log(e.target.value);
document.getElementById('file').onchange = async event => {
  const file = event.target.files[0]; log(file.name + '=' + await file.text()); };
document.onkeydown = e => log('key ' + e.key);
</script>"""


@pytest.fixture
def page(web: Site, browser: None) -> Site:
    web.page("/", PAGE)
    web.page("/broken", "<p>sorry</p>", 500)
    web.page("/errors", "<script>console.error('it broke'); throw new Error('thrown')</script>")
    web.page("/late", "<p></p><script>setTimeout(() => document.querySelector('p').textContent = 'late', 300)</script>")
    web.page("/dialogs", "<button onclick=\"confirm('sure?') || (document.title = 'dismissed')\">Ask</button>")
    web.page("/popup", "<a href=/ target=_blank>open</a>")
    web.routes["/file"] = (200, {"Content-Type": "text/csv", "Content-Disposition": "attachment"}, "a,b")
    web.routes["/slow"] = web.hangs
    return web


def goto(url: str = "/", **more: Any) -> dict[str, Any]:
    return {"goto": {"url": url, **more} if more else url}


PASSES: dict[str, list[dict[str, Any]]] = {
    "every condition of an element": [
        goto(),
        expect("h1", visible=True, text="Orders of today", text_contains="of to", text_matches="^Orders", count=1),
        expect("#email", value="a@example.org", enabled=True),
        expect("#box", checked=True),
        expect("#off", enabled=False),
        expect("#hidden", visible=False),
        expect("#nowhere", visible=False, count=0),
        expect(".item", count=2),
    ],
    "every condition of a page": [
        goto("/?a=1", expect_status=200),
        {
            "expect": {
                "url": "/?a=1",
                "url_contains": "a=1",
                "url_matches": r"\?a=\d$",
                "title": "/",
                "title_contains": "/",
                "status": [200, 201],
                "no_console_errors": True,
            }
        },
    ],
    "every locator": [
        goto(),
        *[
            {"expect": {"locator": locator, "count": 1}}
            for locator in (
                {"role": "heading", "name": "orders of"},
                {"label": "Email"},
                {"text": "one", "exact": True},
                {"placeholder": "Choose"},
                {"alt": "A logo"},
                {"title": "Your address"},
                {"test_id": "heading"},
                {"css": ".item", "nth": 1},
            )
        ],
    ],
    "every action": [
        goto(),
        {"hover": {"css": "#under"}},
        {"click": {"css": "#under"}},
        {"select": {"locator": {"css": "#size"}, "value": "Large"}},
        {"upload": {"locator": {"css": "#file"}, "name": "note.txt", "content": "hello"}},
        expect("#log", text="hovered;clicked;l;note.txt=hello;"),
        {"press": {"key": "Escape"}},
        expect("#log", text_contains="key Escape"),
        {"fill": {"locator": {"label": "Email"}, "value": "b@example.org"}},
        {"press": {"locator": {"label": "Email"}, "key": "End"}},
        expect("#email", value="b@example.org"),
        {"uncheck": {"css": "#box"}},
        expect("#box", checked=False),
        {"check": {"css": "#box"}},
        expect("#box", checked=True),
        {"wait_for": {"locator": {"css": "#hidden"}, "state": "attached"}},
        {"wait_for": {"locator": {"css": "#nowhere"}, "state": "detached"}},
    ],
    "an error page that is expected": [goto("/broken", expect_status="5xx"), {"expect": {"status": 500}}],
    "text that comes later": [goto("/late"), expect("p", text="late")],
    "a dialog that is dismissed": [goto("/dialogs"), {"click": {"role": "button"}}, {"expect": {"title": "dismissed"}}],
    "a popup that stays aside": [goto("/popup"), {"click": {"text": "open"}}, {"expect": {"url": "/popup"}}],
    "a page that need not be complete": [goto("/", wait_until="commit"), expect("h1", visible=True)],
}


def test_every_step_and_assertion_passes_where_it_should(page: Site, bench: Bench) -> None:
    report = bench.run(spec(page.url, *PASSES.values()))
    outcomes = {name: outcome(report, number) for number, name in enumerate(PASSES)}
    assert {name: found for name, found in outcomes.items() if found[0] != "passed"} == {}
    assert report.verdict == "pass"
    assert report.results is not None
    assert "Chromium" in report.results["runner"]["browser"]


FAILS: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "a page with an error status": ([goto("/broken")], "http_status", "answered with status 500"),
    "another status than expected": ([goto("/", expect_status=[201, 204])], "http_status", "200, expected 201 or 204"),
    "a page that never loads": ([goto("/slow")], "timeout", "was not loaded within 3 s"),
    "a download instead of a page": ([goto("/file")], "action", "is a download"),
    "console errors": ([goto("/errors"), {"expect": {"no_console_errors": True}}], "console_errors", "2 errors"),
    "an element that is not there": (
        [goto(), {"click": {"role": "button", "name": "Pay"}}],
        "timeout",
        "could not click the button “Pay” within 3 s: it is not on the page",
    ),
    "several elements": ([goto(), {"click": {"css": ".item"}}], "action", "2 elements match the element .item"),
    "a disabled element": ([goto(), {"click": {"css": "#off"}}], "timeout", "it is disabled"),
    "an invisible element": ([goto(), {"hover": {"css": "#hidden"}}], "timeout", "it is not visible"),
    "a field that cannot be filled": (
        [goto(), {"fill": {"locator": {"css": "h1"}, "value": "x"}}],
        "action",
        "could not fill the element h1",
    ),
    "an option that is not there": (
        [goto(), {"select": {"locator": {"css": "#size"}, "value": "XXL"}}],
        "timeout",
        "it has no such option",
    ),
    "a key that does not exist": ([goto(), {"press": {"key": "Blorb"}}], "action", "cannot be pressed"),
    "a selector that is not CSS": ([goto(), {"click": {"css": "a[["}}], "action", "could not click"),
    "a wait in vain": (
        [goto(), {"wait_for": {"locator": {"css": "#hidden"}}}],
        "timeout",
        "did not become visible within 3 s",
    ),
    "a wait for another address": ([goto(), {"wait_for": {"url": "/x"}}], "timeout", "did not reach “/x”"),
    "another text": (
        [goto(), expect("h1", text="Orders")],
        "assertion",
        "expected the text of the element h1 to be “Orders”, but it is “Orders of today”",
    ),
    "a missing text": ([goto(), expect("h1", text_contains="tomorrow")], "assertion", "to contain “tomorrow”"),
    "a text that does not match": ([goto(), expect("h1", text_matches="^today")], "assertion", "to match “^today”"),
    "another value": ([goto(), expect("#email", value="x")], "assertion", "to be “x”, but it is “a@example.org”"),
    "another count": (
        [goto(), expect(".item", count=3)],
        "assertion",
        "expected 3 of the element .item, but there are 2",
    ),
    "an element that is checked": ([goto(), expect("#box", checked=False)], "assertion", "is checked, expected not"),
    "an element that is hidden": ([goto(), expect("#hidden", visible=True)], "assertion", "is not visible, expected"),
    "an assertion about nothing": ([goto(), expect("#nowhere", text="x")], "assertion", "is not on the page"),
    "another title": ([goto(), {"expect": {"title": "Home"}}], "assertion", "the title of the page to be “Home”"),
    "another address": ([goto(), {"expect": {"url_contains": "/x"}}], "assertion", "the address of the page"),
    "another last status": ([goto(), {"expect": {"status": "4xx"}}], "http_status", "expected the status 4xx"),
    "an expression that backtracks for ever": (
        [goto("/?" + "a" * 40), {"expect": {"url_matches": "(a+)+$x"}}],
        "assertion",
        "takes too long",
    ),
}


@pytest.mark.lengthy
def test_every_failure_has_its_code_and_a_reason_for_people(page: Site, bench: Bench) -> None:
    for steps, _, _ in FAILS.values():
        if "expect" in steps[-1]:
            steps[-1]["expect"].setdefault("timeout_ms", 200)
    report = bench.run(spec(page.url, *(steps for steps, _, _ in FAILS.values()), limits={"step_timeout_ms": 3000}))
    for number, (name, (steps, code, words)) in enumerate(FAILS.items()):
        status, found, message = outcome(report, number)
        assert (status, found) == ("failed", code), (name, message)
        assert words in message, name
        assert report.results is not None
        assert report.results["checks"][number]["step"] == len(steps) - 1, name


def test_a_target_that_is_down_is_a_failure_and_not_an_error(page: Site, bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    report = bench.run(spec(f"http://127.0.0.1:{port}", [goto()], [request("/")]))
    assert [outcome(report, n)[1] for n in (0, 1)] == ["unreachable", "unreachable"]
    assert "the server refused the connection" in outcome(report, 0)[2]
    assert "the server refused the connection" in outcome(report, 1)[2]
    assert (report.status, report.verdict) == ("done", "fail")


def test_after_a_failed_navigation_the_next_one_in_the_same_check_works(page: Site, bench: Bench) -> None:
    flaky = iter([(302, {"Location": "http://127.0.0.1:9/"}, ""), (200, {"Content-Type": "text/html"}, "<p>fine</p>")])
    page.routes["/flaky"] = lambda: next(flaky)
    report = bench.run(spec(page.url, {"retries": 1, "steps": [goto("/flaky"), expect("p", text="fine")]}))
    assert outcome(report)[0] == "passed"
    assert report.verdict == "risk"
    assert report.results is not None
    assert report.results["reasons"] == ["flaky: c0"]
    assert [attempt["status"] for attempt in report.results["checks"][0]["attempts"]] == ["failed", "passed"]


def test_a_soft_budget_is_a_warning_and_stop_skips_the_rest(page: Site, bench: Bench) -> None:
    report = bench.run(
        spec(
            page.url,
            {"max_ms": 1, "steps": [goto("/", expect_status=200)]},
            {"severity": "minor", "on_fail": "stop", "steps": [goto("/broken")]},
            [goto()],
        )
    )
    assert report.results is not None
    assert report.results["reasons"] == ["minor failed: c1", "not verified: c2", "slow: c0"]
    assert "“c1” did not pass" in outcome(report, 2)[2]


@pytest.mark.lengthy
def test_typed_and_saved_secrets_do_not_leave(page: Site, bench: Bench) -> None:
    page.routes["/token"] = (200, {}, '{"token": "saved-token-123"}')
    bench.environ["UAT_PW"] = "typed-by-hand-1"
    report = bench.run(
        spec(
            page.url,
            [
                request("/token", save={"token": "/token"}),
                goto(),
                {"fill": {"locator": {"label": "Email"}, "value": "${secret:pw}"}},
                expect("#email", value="${token}"),
            ],
            secrets={"pw": {"env": "UAT_PW"}},
        )
    )
    assert outcome(report)[1] == "assertion"
    told = json.dumps(report.results)
    assert "typed-by-hand-1" not in told
    assert "saved-token-123" not in told
    assert report.results is not None
    assert report.results["redaction"]["count"] >= 2
