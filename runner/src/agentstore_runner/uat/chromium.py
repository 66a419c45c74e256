"""Where the browser is, and the flags that keep it quiet."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

INSTALL_HINT = "apt-get install -y chromium fonts-dejavu-core"
_NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")


def find(environ: Mapping[str, str]) -> str | None:
    """Return the path of a Chromium: AGENTSTORE_CHROMIUM, the search path, or a download of Playwright's own."""
    if chosen := environ.get("AGENTSTORE_CHROMIUM"):
        return shutil.which(chosen, path=environ.get("PATH", os.defpath))
    for name in _NAMES:
        if path := shutil.which(name, path=environ.get("PATH", os.defpath)):
            return path
    root = environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path(environ.get("HOME", "/")) / ".cache" / "ms-playwright"
    downloads = sorted(Path(root).glob("chromium*-*/chrome-*/*"))
    return next((str(path) for path in downloads if path.name in ("chrome", "headless_shell")), None)


def flags() -> list[str]:
    """Return the flags of a browser that calls nobody by itself."""
    return [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-domain-reliability",
        "--disable-sync",
        "--disable-quic",
        "--no-first-run",
        "--no-pings",
        "--dns-prefetch-disable",
    ]
