"""Process settings of a server: descriptors, interpreter, garbage collection."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_INTERVAL_S: Final = 20e-6
"""Interpreter switch interval, in seconds."""

_PR_SET_TIMERSLACK: Final = 29
_TIMER_SLACK_NS: Final = 1

GC_THRESHOLD: Final = (50_000, 20, 50)
"""Collect rarely: long-lived objects are frozen, and reference counts free per-message objects."""


def raise_descriptor_limit() -> None:
    """Raises the limit of open files and sockets to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # Some systems report a hard limit that they do not grant; the soft limit is kept.


def favor_waiting_threads() -> None:
    """Reduce the time that a thread waits for the interpreter while the event loop is busy.

    A thread requests the interpreter after the switch interval. An event loop that releases and reacquires it
    more often is never asked to yield, and readers starve for seconds. The kernel's default timer slack of
    50 us would lengthen the interval. docs/decisions/log-sync.md has measurements.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)


def ask_to_stop() -> None:
    """Request a graceful stop of this process, like an external signal."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def loading() -> Iterator[None]:
    """Load a server's modules without garbage collection, which finds little there and takes a fifth of the
    start.

    Afterwards they are excluded from collections until `freeze_what_is_loaded`.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def freeze_what_is_loaded() -> None:
    """Exclude all existing objects from garbage collection, after the process has started.

    Otherwise each full collection traverses all modules: acknowledgements take 7 to 11 ms at the 99.9th
    percentile, against 0.5 to 2.3 ms with frozen objects.
    """
    gc.unfreeze()  # `loading` has frozen what importing left behind as well
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def freeze_what_was_loaded_later() -> None:
    """Excludes modules that were loaded after the start from garbage collection, if those of the start are.

    The next collection would traverse them on the event loop: 35 ms for the web framework and its routes.
    """
    if gc.get_freeze_count():
        gc.freeze()
