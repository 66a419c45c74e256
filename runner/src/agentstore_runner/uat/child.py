"""The process that owns Playwright and the browser: reads one task from standard input, writes one JSON line an event.

It belongs to the supervisor: it dies with it, and the browser's pipe closes with it.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agentstore_runner.contract import grants
from agentstore_runner.uat.browser import BrowserOwner
from agentstore_runner.uat.checks import CheckRunner, Progress
from agentstore_runner.uat.fence import Fence

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux); exit if that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Execute the checks of one task."""
    task: dict[str, Any] = json.load(sys.stdin)
    die_with(task["parent"])
    # Whatever a library prints must not end up between the events.
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    spec = task["spec"]
    target = spec["target"]
    fence = Fence(target["base_url"], tuple(target.get("allow_hosts", ())), grant=grants.read(task["grant"]))
    owner = BrowserOwner(
        task["chromium"],
        fence,
        spec.get("flags", {}),
        lambda version: emit({"event": "browser", "version": version}),
    )
    progress = Progress(**task["progress"])
    try:
        CheckRunner(spec, task["secrets"], progress, owner, fence, Path(task["folder"]), emit).run(task["first"])
        emit({"event": "end"})
    finally:
        owner.close()


if __name__ == "__main__":
    main()
