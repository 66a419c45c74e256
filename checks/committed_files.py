"""`python -m checks.committed_files`: no committed file names a package host or a path of somebody's machine.

Lock files that record hosts fail for whoever reaches packages another way, and a local path works for nobody else.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOSTS = r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com|deb\.debian"
PATTERNS = {
    "address of a package host": re.compile(
        rf"https?://[^\s\"'<>)]*(?:{HOSTS})|registry\.(?:npmjs|yarnpkg)", re.IGNORECASE
    ),
    "index or find-links option": re.compile(r"^\s*--(?:extra-)?(?:index-url|find-links|trusted-host)\b", re.MULTILINE),
    "resolved address in a lock file": re.compile(r'"resolved"\s*:'),
    "local path": re.compile(
        r"(?<![\w.~$}])/(?:home/(?!(?:runner|somebody)\b)[a-z]|Users/[A-Za-z]|root/|work/)[\w./-]*|file:///(?!etc/)[a-z]"
    ),
}
FORBIDDEN_NAMES = frozenset({"uv.lock", "pylock.toml", "poetry.lock", "Pipfile.lock", "yarn.lock", "pnpm-lock.yaml"})


def findings(path: str, text: str) -> Iterator[str]:
    """Yield one line for each thing in the file that no committed file may hold."""
    if Path(path).name in FORBIDDEN_NAMES:
        yield f"{path}: file that records hosts"
    for what, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what}: {match[0].strip()}"


def main() -> int:
    """Look through all files that git knows; return 1 if there is anything to tell."""
    names = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    found: list[str] = []
    for name in filter(None, names):
        path = Path(name)
        if path.is_file() and not path.is_symlink():
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            found += findings(name, text)
    print("\n".join(found) or f"{len(names) - 1} committed files name no package host and no local path.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
