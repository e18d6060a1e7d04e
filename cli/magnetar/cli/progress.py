"""A progress bar for long operations, drawn on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DRAWN_AFTER_S = 0.5
"""Delay before a bar is shown, in seconds."""


@contextmanager
def progress_bar(
    what: str, total: int | None, *, now: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Yield a function that updates the number of finished items out of `total` (None: unknown). Drawn only
    on a
    terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar = progress.add_task(what, total=total)
    began = now()
    drawn = False

    def advance(done: int) -> None:
        nonlocal drawn
        progress.update(bar, completed=done)
        if not drawn and now() - began > DRAWN_AFTER_S:
            progress.start()
            drawn = True

    try:
        yield advance
    finally:
        if drawn:
            progress.stop()
