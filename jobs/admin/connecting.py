"""What to type on a host so that it works for this server, and the unit that keeps it working."""

import re
import shlex
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

PROGRAM = "/opt/agentstore-runner/bin/agentstore-runner"
TOKEN_FILE = "/etc/agentstore-runner/token"  # noqa: S105  (where it lies)
UNIT = Path(settings.BASE_DIR) / "deploy" / "agentstore-runner.service"


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Commands for root on the host, in order; what is pasted into one is never in it."""

    install: str
    enrol: str
    with_token: str  # the same for a token that was issued by hand
    doctor: str
    run: str
    unit: str  # a file of systemd
    enable: str


def commands(server: str) -> Commands:
    """The commands for a server's public address."""
    reach = f"--server {shlex.quote(server)}" + (" --allow-http" if _needs_leave(server) else "")
    token = f"--token-file {TOKEN_FILE}"
    return Commands(
        install=f"python3 -m venv /opt/agentstore-runner\n/opt/agentstore-runner/bin/pip install agentstore-runner\n"
        f"install -d -m 700 {TOKEN_FILE.rpartition('/')[0]}",
        enrol=f"{PROGRAM} enrol {reach} --code-stdin {token}",
        with_token=f"install -m 600 /dev/stdin {TOKEN_FILE}",
        doctor=f"{PROGRAM} doctor {reach} {token}",
        run=f"{PROGRAM} run {reach} {token}",
        unit=_unit(server),
        enable="systemctl daemon-reload && systemctl enable --now agentstore-runner",
    )


def _unit(server: str) -> str:
    """The unit of the repository with the server's address in it; a percent sign would be a specifier of systemd."""
    told = server.replace("%", "%%")
    text = re.sub(r"(?m)^(Environment=AGENTSTORE_URL=).*$", lambda line: line[1] + told, UNIT.read_text())
    return (
        text.replace("agentstore-runner run ", "agentstore-runner run --allow-http ") if _needs_leave(server) else text
    )


def _needs_leave(server: str) -> bool:
    """Whether a runner asks for --allow-http: the token would travel unencrypted to another machine."""
    parts = urlsplit(server)
    if parts.scheme != "http" or parts.hostname == "localhost":
        return False
    try:
        return str(ip_address(parts.hostname or "")) not in ("127.0.0.1", "::1")
    except ValueError:
        return True
