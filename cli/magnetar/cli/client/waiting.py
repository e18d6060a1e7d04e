"""Reports on standard error what a command waits for, and why, so that no command waits in silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from magnetar.cli.message_output import printable

FIRST_S: Final = 3.0
"""Time in seconds without progress after which a command says what it waits for."""

PAUSE_S_MAX: Final = 60.0
"""Longest pause in seconds between two reports; each pause is twice as long as the one before."""

_LOGGERS: Final = ("magnetar.client.lookup", "magnetar.client.session")
"""Loggers of the client that name the reason of each retry."""


class RetryReason(logging.Handler):
    """The last reason why the client retries, as the broker or the connection gave it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message of a log record."""
        self.text = record.getMessage()

    @contextmanager
    def attached(self) -> Iterator[RetryReason]:
        """Listens to the client's loggers while the context is open."""
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
        try:
            yield self
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(self)
                logger.setLevel(level)


@contextmanager
def reports_waiting(
    describe: Callable[[], str],
    *,
    progress: Callable[[], object] = lambda: None,
    is_stuck: Callable[[], bool] = lambda: True,
    first_s: float | None = None,
    echo: Callable[[str], None] = lambda text: click.echo(text, err=True),
) -> Iterator[RetryReason]:
    """Prints what `describe` says, and the client's reason, whenever `progress` has had the same value for
    too long; yields the reason. Its owner is a coroutine.

    `is_stuck`: whether the client's last reason still applies; without it, only the description is printed.
    """
    loop = asyncio.get_running_loop()
    first_pause_s = FIRST_S if first_s is None else first_s
    pause_s = first_pause_s
    seen, since = progress(), loop.time()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal pause_s, seen, since, timer
        if (now := progress()) != seen:
            seen, since, pause_s, reason.text = now, loop.time(), first_pause_s, ""
        else:
            why = f": {printable(reason.text)}" if reason.text and is_stuck() else ""
            echo(f"{describe()} ({loop.time() - since:.0f} s){why}")
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
        timer = loop.call_later(pause_s, look)

    with RetryReason().attached() as reason:
        timer = loop.call_later(pause_s, look)
        try:
            yield reason
        finally:
            timer.cancel()
