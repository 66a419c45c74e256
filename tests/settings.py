"""The settings of the tests: development mode, a home folder of their own, cheap passwords."""

import fcntl
import os
from pathlib import Path

# Before agentstore.config reads it: tests never touch the data of an installation.
_home = Path(os.environ.setdefault("AGENTSTORE_HOME", str(Path(__file__).resolve().parent.parent / "var" / "test")))

from agentstore.settings import *  # noqa: E402, F403  (settings are inherited by a star import)
from agentstore.settings import DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True  # nothing was collected
AXES_ENABLED = False  # the tests of the lockout turn it on
REFUSED_BEARERS_PER_MINUTE = 2**31 - 1  # those of the throttle set it: all tests call from one address


def _session_number() -> str:
    """Return a number that no other test session of this work tree has, so that each has databases of its own."""
    if "AGENTSTORE_TEST_SESSION" not in os.environ:
        _home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, 100):
            descriptor = os.open(_home / f"session-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            # Never closed: the lock lasts as long as this process. Workers of xdist inherit the number.
            os.environ["AGENTSTORE_TEST_SESSION"] = str(number)
            break
        else:
            raise RuntimeError("A hundred test sessions run in this work tree already.")
    return os.environ["AGENTSTORE_TEST_SESSION"]


DATABASES["default"]["TEST"] = {"NAME": f"test_agentstore_{_session_number()}"}
