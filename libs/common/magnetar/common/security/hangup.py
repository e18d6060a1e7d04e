"""SIGHUP: a process loads its files of certificates, keys and lists again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_CALLBACKS: Final[list[Callable[[], None]]] = []


def on_hangup(callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` on the running loop at each SIGHUP; returns what ends that.

    Without effect outside of the main thread, which alone gets signals.
    """
    loop = asyncio.get_running_loop()
    if not _CALLBACKS:
        with suppress(ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGHUP, _hang_up)
    _CALLBACKS.append(callback)

    def forget() -> None:
        with suppress(ValueError):
            _CALLBACKS.remove(callback)
        if not _CALLBACKS:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGHUP)

    return forget


def _hang_up() -> None:
    for callback in tuple(_CALLBACKS):
        callback()
