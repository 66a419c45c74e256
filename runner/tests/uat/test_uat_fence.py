"""The fence around a job: which hosts its browser and requests reach, and what they carry there."""

import socket
from collections.abc import Iterator

import pytest
from agentstore_runner.contract.grants import REQUESTS
from agentstore_runner.uat.fence import leads_here
from workbench import Bench, Site, expect, outcome, request, site, spec

pytestmark = [pytest.mark.lengthy, pytest.mark.usefixtures("browser")]


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    """Another site: the same machine, so the resolver does not stop anyone."""
    with site() as server:
        server.page("/", "<p id=evil>elsewhere</p>")
        server.routes["/x.js"] = (200, {"Content-Type": "text/javascript"}, "document.title = 'taken'")
        yield server


def test_a_redirect_to_another_host_is_off_target(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.routes["/go"] = (302, {"Location": elsewhere.url + "/"}, "")
    web.page("/", "<p>home</p>")
    report = bench.run(spec(web.url, [{"goto": "/go"}], [{"goto": "/"}, expect("p", text="home")]))
    assert outcome(report)[:2] == ("failed", "off_target")
    assert elsewhere.seen == []
    assert elsewhere.url.removeprefix("http://") in outcome(report)[2]
    assert outcome(report, 1)[0] == "passed"


def test_a_redirect_to_a_name_that_is_not_allowed_is_not_even_resolved(web: Site, bench: Bench) -> None:
    web.routes["/go"] = (302, {"Location": "http://localhost:1/"}, "")
    report = bench.run(spec(web.url, [{"goto": "/go"}]))
    assert outcome(report)[:2] == ("failed", "off_target")
    assert "localhost:1" in outcome(report)[2]


def test_a_link_and_a_script_that_leave_are_off_target(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.page("/link", f"<a href={elsewhere.url}/>away</a>")
    web.page("/script", f"<script>setTimeout(() => location = '{elsewhere.url}/', 50)</script><p>here</p>")
    report = bench.run(
        spec(
            web.url,
            [{"goto": "/link"}, {"click": {"text": "away"}}, expect("#evil", visible=True)],
            [{"goto": "/script"}, expect("#evil", visible=True)],
        )
    )
    assert {outcome(report, 0)[:2], outcome(report, 1)[:2]} == {("failed", "off_target")}
    assert elsewhere.seen == []


def test_parts_of_a_page_come_only_from_allowed_hosts(web: Site, elsewhere: Site, bench: Bench) -> None:
    parts = f"<script src={elsewhere.url}/x.js></script><img src={elsewhere.url}/i.png><iframe src={elsewhere.url}/>"
    web.page("/", f"<p>home</p>{parts}")
    steps = [{"goto": "/"}, {"expect": {"title": "/", "no_console_errors": True}}]
    assert outcome(bench.run(spec(web.url, steps)))[0] == "passed"
    assert elsewhere.seen == []
    allowed = {"allow_hosts": [elsewhere.url.removeprefix("http://")]}
    report = bench.run(spec(web.url, [{"goto": "/"}, {"expect": {"title": "taken"}}], target=allowed))
    assert outcome(report)[0] == "passed"


def test_the_marker_goes_to_the_target_alone(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.page("/", f"<script src={elsewhere.url}/x.js></script>")
    web.routes["/api"] = (307, {"Location": elsewhere.url + "/x.js"}, "")
    allowed = {"allow_hosts": [elsewhere.url.removeprefix("http://")]}
    steps = [
        {"goto": "/"},
        {"expect": {"title": "taken"}},
        request(
            "/api", headers={"Authorization": "Bearer ${secret:key}"}, follow_redirects=True, expect={"status": 200}
        ),
    ]
    bench.environ["UAT_KEY"] = "a-long-enough-key"
    flags = {"testMarker": "uat-77"}
    secrets = {"key": {"env": "UAT_KEY"}}
    report = bench.run(spec(web.url, steps, target=allowed, flags=flags, secrets=secrets))
    assert outcome(report)[0] == "passed", outcome(report)
    assert web.headers_for("/")["x-test-marker"] == web.headers_for("/api")["x-test-marker"] == "uat-77"
    assert web.headers_for("/api")["authorization"] == "Bearer a-long-enough-key"
    assert len(elsewhere.seen) == 2
    assert not [headers for _, headers, _ in elsewhere.seen if {"x-test-marker", "authorization"} & headers.keys()]


def test_a_redirect_that_only_passes_through_another_host_never_gets_there(
    web: Site, elsewhere: Site, bench: Bench
) -> None:
    web.routes["/go"] = (302, {"Location": elsewhere.url + "/back"}, "")
    elsewhere.routes["/back"] = (302, {"Location": web.url + "/"}, "")
    web.page("/", "<p>home</p><img src=/go><iframe src=/go></iframe><script>fetch('/go').catch(() => 0)</script>")
    home = [{"goto": "/"}, expect("p", text="home"), {"expect": {"title": "/"}}]
    report = bench.run(spec(web.url, [{"goto": "/go"}], home))
    assert outcome(report, 0)[:2] == ("failed", "off_target")
    assert outcome(report, 1)[0] == "passed"
    assert [path for path, _, _ in web.seen].count("/go") == 4
    assert elsewhere.seen == []


def test_a_window_that_a_page_opens_gets_through_no_redirect_either(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.routes["/go"] = (302, {"Location": elsewhere.url + "/"}, "")
    opened = "window.open('/go'); window.open('/go', '_blank', 'noopener'); document.title = 'opened'"
    web.page("/", f"<p>home</p><script>{opened}</script><a href=/go target=_blank rel=noopener>new</a>")
    steps = [{"goto": "/"}, {"expect": {"title": "opened"}}, {"click": {"text": "new"}}, expect("p", text="home")]
    later = [{"goto": "/later"}, expect("p", text="later")]
    web.page("/later", "<p>later</p>")
    report = bench.run(spec(web.url, [*steps, *later]))
    assert outcome(report)[0] == "passed", outcome(report)
    assert elsewhere.seen == []


def test_a_frame_of_an_allowed_host_in_a_process_of_its_own_gets_through_no_redirect(
    web: Site, elsewhere: Site, bench: Bench
) -> None:
    with site() as framed:
        inside = framed.url.replace("127.0.0.1", "localhost")
        framed.routes["/go"] = (302, {"Location": elsewhere.url + "/x.js"}, "")
        framed.page("/", "<script src=/go></script><img src=/go><script>fetch('/go').catch(() => 0)</script><p>in</p>")
        web.page(
            "/", f"<p>home</p><iframe src={inside}/></iframe><script>onload = () => document.title = 'all'</script>"
        )
        allowed = {"allow_hosts": [inside.removeprefix("http://")]}
        report = bench.run(spec(web.url, [{"goto": "/"}, {"expect": {"title": "all"}}], target=allowed))
        assert outcome(report)[0] == "passed", outcome(report)
        assert "/go" in [path for path, _, _ in framed.seen]
    assert elsewhere.seen == []


def test_a_redirect_takes_the_marker_to_no_other_host(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.routes["/out"] = (302, {"Location": elsewhere.url + "/back"}, "")
    elsewhere.routes["/back"] = (302, {"Location": web.url + "/"}, "")
    web.page("/", "<p>home</p>")
    allowed = {"allow_hosts": [elsewhere.url.removeprefix("http://")]}
    steps = [{"goto": "/out"}, expect("p", text="home")]
    assert outcome(bench.run(spec(web.url, steps, target=allowed, flags={"testMarker": "uat-77"})))[0] == "passed"
    assert web.headers_for("/out")["x-test-marker"] == web.headers_for("/")["x-test-marker"] == "uat-77"
    assert "x-test-marker" not in elsewhere.headers_for("/back")


def test_a_web_socket_opens_only_to_allowed_hosts(web: Site, elsewhere: Site, bench: Bench) -> None:
    def script(site: Site) -> str:
        address = site.url.replace("http", "ws", 1)
        return f"<script>new WebSocket('{address}/ws').onclose = () => document.title = 'closed'</script>"

    web.page("/own", script(web))
    web.page("/foreign", script(elsewhere))
    checks = [[{"goto": path}, {"expect": {"title": "closed"}}] for path in ("/own", "/foreign")]
    report = bench.run(spec(web.url, *checks))
    assert [outcome(report, n)[0] for n in (0, 1)] == ["passed", "passed"], report.results
    assert "/ws" in [path for path, _, _ in web.seen]
    assert elsewhere.seen == []


def test_classes_that_the_target_leaves_open_load_from_anywhere_and_others_do_not(
    web: Site, elsewhere: Site, bench: Bench
) -> None:
    elsewhere.routes["/i.png"] = (200, {"Content-Type": "image/png"}, "")
    web.page(
        "/",
        f"<img src={elsewhere.url}/i.png onerror=\"document.title='image'\">"
        f"<script src={elsewhere.url}/x.js></script><iframe src={elsewhere.url}/></iframe>",
    )
    steps = [{"goto": "/"}, {"expect": {"title": "image"}}]
    open_to = [name for name in REQUESTS if name != "image"]
    assert outcome(bench.run(spec(web.url, steps), restricted=open_to))[0] == "passed"
    assert [path for path, _, _ in elsewhere.seen] == ["/i.png"]


def test_what_the_spec_allows_is_opened_only_where_the_target_allows_it_too(
    web: Site, elsewhere: Site, bench: Bench
) -> None:
    foreign = elsewhere.url.removeprefix("http://")
    asked = spec(web.url, [{"goto": "/"}], target={"allow_hosts": [foreign]})
    report = bench.run(asked, hosts=[])
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert foreign in (report.error or "")
    # A pattern without a port asks for every port of the host; the target gives one.
    loose = {"allow_hosts": ["127.0.0.1"]}
    steps = [[{"goto": elsewhere.url + "/"}], [request(elsewhere.url + "/x.js", expect={"status": 200})]]
    report = bench.run(spec(web.url, *steps, target=loose), hosts=[])
    assert [outcome(report, n)[:2] for n in (0, 1)] == [("failed", "off_target")] * 2
    assert elsewhere.seen == web.seen == []


def test_the_machine_itself_is_out_of_reach_unless_the_target_says_so(web: Site, bench: Bench) -> None:
    web.page("/", "<p>home</p>")
    asked = spec(web.url, [{"goto": "/"}])
    report = bench.run(asked, allow_local=False)
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert "own machine" in (report.error or "")
    assert web.seen == []


@pytest.mark.parametrize("step", [{"goto": "/"}, request("/", expect={"status": 200})])
def test_a_name_that_leads_to_the_machine_itself_is_out_of_reach(web: Site, bench: Bench, step: object) -> None:
    """The name is the machine's own, which every resolver knows without asking."""
    name = socket.gethostname()
    if not leads_here(name):
        pytest.skip(f"{name} does not lead to loopback on this machine")
    web.page("/", "<p>home</p>")
    report = bench.run(spec(f"http://{name}:{web.server_port}", [step]), allow_local=False)
    assert outcome(report)[:2] == ("failed", "off_target")
    assert web.seen == []


def test_a_job_without_a_target_opens_nothing(web: Site, bench: Bench) -> None:
    report = bench.run(spec(web.url, [{"goto": "/"}]), target=None)
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert "no target" in (report.error or "")
    assert web.seen == []


@pytest.mark.parametrize("share", [False, True])
def test_a_request_follows_no_redirect_away(web: Site, elsewhere: Site, bench: Bench, share: bool) -> None:
    web.routes["/go"] = (302, {"Location": elsewhere.url + "/"}, "")
    stays = request("/go", share_browser_cookies=share, expect={"status": 302, "headers": {"Location": "http"}})
    leaves = request("/go", share_browser_cookies=share, follow_redirects=True, expect={"status": 200})
    report = bench.run(spec(web.url, [stays], [leaves]))
    assert outcome(report, 0)[0] == "passed"
    assert outcome(report, 1)[:2] == ("failed", "off_target")
    assert elsewhere.seen == []


def test_a_saved_address_that_leads_away_is_refused(web: Site, elsewhere: Site, bench: Bench) -> None:
    web.routes["/next"] = (200, {}, f'{{"next": "{elsewhere.url}/"}}')
    save = request("/next", save={"next": "/next"})
    report = bench.run(spec(web.url, [save, request("${next}")], [save, {"goto": "${next}"}]))
    assert {outcome(report, 0)[:2], outcome(report, 1)[:2]} == {("failed", "off_target")}
    assert elsewhere.seen == []


def test_a_page_cannot_install_a_service_worker(web: Site, bench: Bench) -> None:
    count = "navigator.serviceWorker.getRegistrations().then(all => document.title = 'workers ' + all.length)"
    web.page("/", f"<script>navigator.serviceWorker.register('/sw.js').catch(() => {{}}).then(() => {count})</script>")
    web.routes["/sw.js"] = (200, {"Content-Type": "text/javascript"}, "")
    report = bench.run(spec(web.url, [{"goto": "/"}, {"expect": {"title": "workers 0"}}]))
    assert outcome(report)[0] == "passed"


def test_checks_share_nothing_unless_one_needs_the_other(web: Site, bench: Bench) -> None:
    web.page("/in", "<p>in</p>", **{"Set-Cookie": "who=jane; Path=/"})
    web.page("/show", "<p></p><script>document.querySelector('p').textContent = document.cookie || 'nobody'</script>")
    report = bench.run(
        spec(
            web.url,
            [{"goto": "/in"}, expect("p", text="in")],
            {"needs": ["c0"], "steps": [expect("p", text="in"), {"goto": "/show"}, expect("p", text="who=jane")]},
            [{"goto": "/show"}, expect("p", text="nobody")],
            {"needs": ["c1"], "steps": [expect("p", text="who=jane")]},
        )
    )
    assert [outcome(report, n)[0] for n in range(4)] == ["passed"] * 4, report.results


def test_a_request_uses_the_browsers_cookies_only_when_told(web: Site, bench: Bench) -> None:
    web.page("/in", "<p>in</p>", **{"Set-Cookie": "who=jane; Path=/"})
    web.routes["/with"] = web.routes["/without"] = (200, {}, "{}")
    steps = [{"goto": "/in"}, request("/without"), request("/with", share_browser_cookies=True)]
    bench.run(spec(web.url, steps))
    assert "cookie" not in web.headers_for("/without")
    assert web.headers_for("/with")["cookie"] == "who=jane"
