"""Ends a benchmark process together with the one that started it.

A killed ``asv run`` otherwise leaves its fork server and the point in flight running, which would
disturb the measurements of the run that resumes it. Linux only; elsewhere nothing happens.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies; forks do not inherit it."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request was made
        os.kill(os.getpid(), signal.SIGKILL)
