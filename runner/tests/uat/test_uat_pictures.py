"""Pictures and traces: when they are made, and what becomes of one that cannot be made."""

import io
import zipfile

import pytest
from workbench import Bench, Notebook, Site, expect, outcome, request, spec


@pytest.fixture
def page(web: Site, browser: None) -> Site:
    web.page("/", "<h1>Orders</h1><p>home</p><p id=hidden style='display:none'>psst</p>")
    web.page("/broken", "<p>sorry</p>", 500)
    return web


@pytest.mark.lengthy
def test_screenshots_follow_the_flag_and_the_limit(page: Site, bench: Bench) -> None:
    checks = [
        [{"goto": "/"}, {"screenshot": {"name": "mine", "full_page": True, "mask": [{"css": "h1"}]}}],
        [{"goto": "/broken"}],
        [request("/")],
    ]

    def names(mode: str, **limits: int) -> list[str]:
        desk = Notebook()
        bench.run(spec(page.url, *checks, flags={"screenshots": mode}, limits=limits), desk)
        return sorted(desk.files)

    assert names("never") == ["001-c0-mine.png"]
    assert names("on-failure") == ["001-c0-mine.png", "002-c1-failure.png"]
    assert names("every-check") == ["001-c0-end.png", "001-c0-mine.png", "002-c1-failure.png"]
    assert names("every-check", max_artifacts=1) == ["001-c0-mine.png"]


def test_a_picture_that_cannot_be_taken_is_a_note(page: Site, bench: Bench) -> None:
    shot = {"screenshot": {"name": "part", "locator": {"css": "#hidden"}}}
    report = bench.run(spec(page.url, [{"goto": "/"}, expect("h1", visible=True), shot]))
    assert (report.verdict, outcome(report)[0]) == ("pass", "passed")
    assert report.results is not None
    assert "could not be taken" in report.results["checks"][0]["notes"][0]


def test_a_trace_is_kept_of_a_failed_check_only_and_only_when_asked_for(page: Site, bench: Bench) -> None:
    checks = [[{"goto": "/"}, expect("h1", visible=True)], [{"goto": "/"}, expect("h1", text="other", timeout_ms=100)]]
    desk = Notebook()
    report = bench.run(spec(page.url, *checks, flags={"trace": "on-failure", "screenshots": "never"}), desk)
    assert list(desk.files) == ["002-c1-trace.zip"]
    assert report.results
    assert report.results["checks"][1]["artifacts"] == ["002-c1-trace.zip"]
    with zipfile.ZipFile(io.BytesIO(desk.files["002-c1-trace.zip"])) as trace:
        assert "trace.trace" in trace.namelist()
    silent = Notebook()
    bench.run(spec(page.url, *checks, flags={"screenshots": "never"}), silent)
    assert silent.files == {}


def test_a_trace_that_the_target_does_not_allow_is_refused(web: Site, bench: Bench) -> None:
    report = bench.run(spec(web.url, [{"goto": "/"}], flags={"trace": "on-failure"}), allow_traces=False)
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert "traces" in (report.error or "")
    assert web.seen == []
