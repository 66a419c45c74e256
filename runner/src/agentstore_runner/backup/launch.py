"""Becomes another program that is signalled when the runner dies; run as a script, without site packages.

The signal is set here and not between fork and exec of the runner, because the runner has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run as: parent's process id, number of the signal, program, its arguments."""
    parent, signum, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit("the runner has ended before its program could start")
    # A runner that was started in the background ignores SIGINT, and Python ignores SIGPIPE: both would be inherited.
    for reset in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(reset, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(program, [program, *arguments])


if __name__ == "__main__":
    main()
