"""A thousand jobs in one process: no browser, no zombie and no folder stays behind, and memory stays flat."""

import os
import tempfile
from pathlib import Path

import pytest
from agentstore_runner.uat.process import short_place
from workbench import Bench, Site, expect, spec

JOBS = int(os.environ.get("SOAK_JOBS", "1000"))
WARM_UP = 20  # jobs, after which everything that is loaded once is loaded
GROWTH = 16 * 1024  # kB; a leak of 16 kB a job would reach it within a thousand


def resident() -> int:
    """The memory of this process, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def below() -> list[str]:
    """The processes that this one has started, zombies too."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{pid}/stat").read_text() for pid in pids]


@pytest.mark.soak
@pytest.mark.usefixtures("browser")
def test_a_thousand_jobs_leave_no_process_no_folder_and_no_memory_behind(
    web: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(tempfile.mkdtemp(prefix="t-", dir=short_place()))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    web.page("/", "<p>home</p>")
    job = spec(web.url, [{"goto": "/"}, expect("p", text="home")], flags={"screenshots": "every-check"})
    before = 0
    for number in range(JOBS):
        report = bench.run(job)
        assert report.verdict == "pass", report.error
        assert below() == []
        web.seen.clear()
        if number == min(WARM_UP, JOBS - 1):
            before = resident()
    assert resident() - before < GROWTH
    place.rmdir()  # which an empty folder allows
