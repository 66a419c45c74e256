"""Jobs of the kind `host.disk-space`: has a file system of the runner's machine enough room?"""

import shutil

from agentstore_runner.handlers import Desk, Report, Work


class DiskSpace:
    """A spec is `{"path": "/var", "free_gb": 10}`; a path that is not there raises, and the job fails as `internal`."""

    kinds = ("host.disk-space",)

    def run(self, work: Work, desk: Desk) -> Report:
        """Compare, and say what was found; `desk` tells why to stop, takes progress and files."""
        path, wanted = work.spec["path"], float(work.spec["free_gb"])
        desk.progress(0, 1, f"Looking at {path}")
        free = shutil.disk_usage(path).free / 1e9
        results = {"path": path, "free_gb": round(free, 1), "wanted_gb": wanted}
        return Report("done", verdict="pass" if free >= wanted else "fail", results=results)
