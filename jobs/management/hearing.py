"""Whether agents can be heard: their silence counts only while the address that they call answers."""

import logging
import urllib.request
from http.client import HTTPException

import structlog

from jobs.services import maintenance
from jobs.services.maintenance import Reaped

PROBE_SECONDS = 2.0
# No proxy of the environment: it is our own service that is asked, often on this very host.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

log = structlog.get_logger(__name__)


class Hearing:
    """Probes `url` (nothing if it is empty), and reaps only after a probe that was answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._failures = 0

    def reap(self) -> Reaped:
        """Probe; close what fell silent, unless nobody could have been heard.

        One duty, not two: with several loops the probe and the reap would else be done by different ones.
        """
        if fault := self._fault():
            self._failures += 1
            # The first one is nothing but a web server that starts, or a packet that was lost.
            level = {1: logging.INFO, 2: logging.WARNING}.get(self._failures, logging.DEBUG)
            log.log(level, "Agents cannot be heard; nothing is reaped.", url=self._url, error=fault)
            maintenance.note_deafness(fault=fault)
            return Reaped(jobs=0, tasks=0)
        # After a gap their silence counts from now on.
        maintenance.note_uptime()
        if self._failures:
            log.info("Agents can be heard.", url=self._url)
        self._failures = 0
        return maintenance.reap()

    def _fault(self) -> str:
        if not self._url:
            return ""
        try:
            with DIRECT.open(self._url, timeout=PROBE_SECONDS):
                return ""
        except (OSError, HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
