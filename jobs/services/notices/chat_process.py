"""Hands one message to a chat service through Apprise, in a process that may connect to judged addresses only.

Reads one JSON document from standard input and writes one: nothing secret stands in the arguments or the environment.
Of its own, since Apprise is large, resolves names by itself, and has no bound on its time. The audit hook sees each
address at the moment of the connect, after every resolution and redirect.
"""

import json
import logging
import sys
from ipaddress import ip_network
from typing import Any

from jobs.services.notices.addresses import RefusedAddressError, judge

MAX_REASON = 300


def main() -> None:
    """Check or send what standard input says; answer {"ok", "error"}."""
    asked = json.load(sys.stdin)
    networks = [ip_network(text) for text in asked["networks"]]
    refusals: list[str] = []

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            try:
                if not isinstance(address, tuple):
                    raise RefusedAddressError("Only addresses of the network are reached.")
                judge(str(address[0]), networks, only_networks=asked["only_networks"])
            except RefusedAddressError as error:
                refusals.append(str(error))
                raise
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
            raise RefusedAddressError("No programs are started.")

    sys.addaudithook(guard)
    json.dump(_deliver(asked, refusals), sys.stdout)


def _deliver(asked: dict[str, Any], refusals: list[str]) -> dict[str, Any]:
    import apprise  # noqa: PLC0415  # after the guard stands

    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logging.getLogger("apprise").addHandler(Ear(level=logging.WARNING))
    asset = apprise.AppriseAsset(http_redirects=False, async_mode=False)
    service = apprise.Apprise.instantiate(asked["url"], asset=asset)
    if not isinstance(service, apprise.NotifyBase):
        return {"ok": False, "error": "Apprise does not understand this address."}
    if not asked["send"]:
        return {"ok": True, "error": ""}
    done = service.notify(title=asked["title"], body=asked["body"], notify_type=asked["tone"])
    reason = " ".join(refusals[:1] or heard[:2]) or "The service did not take the message."
    return {"ok": bool(done), "error": "" if done else reason[:MAX_REASON]}


if __name__ == "__main__":
    main()
