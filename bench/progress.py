"""Progress of a run: a bar on a terminal, a line a step when the output goes elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    """Counts steps and says what the current one is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._bar: Progress | None = None
        if sys.stdout.isatty():
            # Drawn rarely: what draws needs the cores that are being measured.
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(),
                refresh_per_second=1,
            )
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Steps:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> None:
        """The next step begins; those before it are done."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=self._done)
        else:
            elapsed = time.monotonic() - self._began
            print(f"[{elapsed:5.0f} s] {self._done + 1:>3}/{self._total}  {what}", flush=True)
        self._done += 1

    def say(self, what: str) -> None:
        """Something worth keeping."""
        if self._bar is not None:
            self._bar.console.print(what, highlight=False, markup=False)
        else:
            print(what, flush=True)
