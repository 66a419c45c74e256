"""The handler of `http.probe` against a real site."""

import os
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.contract.grants import Grant
from agentstore_runner.contract.probe import ASKED
from agentstore_runner.contract.results import mismatches, problems
from agentstore_runner.handlers import Report, Work
from agentstore_runner.uat.probe import ProbeHandler
from workbench import Notebook, Site, outcome


def probe(web: Site, tmp_path: Path, **spec: Any) -> Report:
    asked = {"version": 1, "url": web.url + "/health", "expect": {"status": 200, "body_contains": "ok"}, **spec}
    grant = Grant(name="Site", origins=(web.url,), allow_local=True, secrets=("UAT_KEY",)).document()
    work = Work("id", "root", "http.probe", asked, 1, 600, tmp_path, grant)
    return ProbeHandler(environ={**os.environ, "UAT_KEY": "a-long-secret-key"}).run(work, Notebook())


def test_a_probe_sends_one_request_and_is_judged_like_a_check(web: Site, tmp_path: Path) -> None:
    web.routes["/health"] = (200, {}, "all ok")
    key = {"headers": {"X-Key": "${secret:key}"}, "secrets": {"key": {"env": "UAT_KEY"}}}
    report = probe(web, tmp_path, **key)
    assert (report.status, report.verdict) == ("done", "pass"), report.error
    assert report.results
    assert report.results["kind"] == "http.probe"
    assert problems(report.results) == []
    assert mismatches(report.results, ASKED) == []
    assert web.headers_for("/health")["x-key"] == "a-long-secret-key"
    web.routes["/health"] = (500, {}, "broken")
    report = probe(web, tmp_path)
    assert (report.status, report.verdict, outcome(report)[1]) == ("done", "fail", "http_status")


@pytest.mark.parametrize("url", ["ftp://shop.example", "https://shop.example:99999", "https://other.example/"])
def test_a_probe_of_an_address_that_may_not_be_asked_is_refused(web: Site, tmp_path: Path, url: str) -> None:
    report = probe(web, tmp_path, url=url)
    assert (report.status, report.failure_class) == ("failed", "configuration")
    assert web.seen == []
