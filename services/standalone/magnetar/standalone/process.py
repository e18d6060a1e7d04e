"""Process settings of a server: descriptors, interpreter, garbage collection."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 20e-6
"""How long one thread may hold the interpreter while another waits for it, seconds."""

_PR_SET_TIMERSLACK: Final = 29
_TIMER_SLACK_NS: Final = 1

GC_THRESHOLD: Final = (50_000, 20, 50)
"""Collect rarely: what lives long is frozen, what is made per message goes by its reference count."""


def raise_descriptor_limit() -> None:
    """Raises the limit of open files and sockets to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # some systems report a hard limit that they do not grant; the soft one stays


def favor_waiting_threads() -> None:
    """Let a thread that has waited for the interpreter get it soon, however busy the event loop is.

    A thread asks for the interpreter when its patience, the switch interval, is over; a loop that lets go of
    it more often than that and takes it back at once is never asked, and readers starve for seconds. Timers
    that the system rounds up by its usual 50 us would make the interval that much longer.
    docs/decisions/log-sync.md has the figures.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)


def ask_to_stop() -> None:
    """Stops this process in good order, like an external request."""
    os.kill(os.getpid(), signal.SIGTERM)


def freeze_what_is_loaded() -> None:
    """Take everything that exists now out of garbage collection, once the process is up.

    Without it full collections walk through all modules again and again: 7 to 11 ms at the 99.9th percentile
    of acknowledgements, against 0.5 to 2.3 ms frozen.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
