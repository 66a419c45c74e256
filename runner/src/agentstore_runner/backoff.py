"""How long to wait before asking again, so that a fleet that failed together does not come back together."""

import random

FIRST_S = 0.1
LONGEST_S = 60.0
# A server may ask for a pause, but not park a runner for ever by a wrong header.
LONGEST_PAUSE_S = 3600.0


class Backoff:
    """Delays of 0.1 to 60 seconds that double and jitter; a Retry-After is never undercut."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0

    def next(self, retry_after: float | None) -> float:
        """Return the seconds to wait after one more failure."""
        # 2**10 is past the longest delay: the exponent stays small however long an outage lasts.
        ceiling = min(LONGEST_S, FIRST_S * 2 ** min(self._failures, 10))
        self._failures += 1
        delay = self._rng.uniform(ceiling / 2, ceiling)
        return delay if retry_after is None else max(delay, spread(retry_after, self._rng))

    def reset(self) -> None:
        """Start over after an answer."""
        self._failures = 0


def spread(seconds: float, rng: random.Random) -> float:
    """Return a wait of at least so many seconds, up to half of it (at least one second) later."""
    seconds = min(max(seconds, 0.0), LONGEST_PAUSE_S)
    return seconds + rng.uniform(0.0, max(1.0, seconds / 2))
