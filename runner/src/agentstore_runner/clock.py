"""Time as the runner measures leases with it."""

import time

# CLOCK_MONOTONIC stands still while a machine is suspended, and the lease does not. macOS has no CLOCK_BOOTTIME.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return seconds on a clock that nobody can set and that counts the time a machine sleeps."""
    return time.clock_gettime(_CLOCK)
