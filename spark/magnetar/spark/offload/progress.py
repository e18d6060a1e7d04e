"""Progress and results of a job: bars on a terminal, lines elsewhere, JSON for scripts."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.offload.job import Totals
from magnetar.spark.offload.outcomes import Outcome, Result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

BAR_COLUMNS: Final = 16
NAME_COLUMNS_MIN: Final = 12

PHASES: Final = {"writing": 0, "verifying": 1}
"""Steps that advance part by part, in order: a bar is full after the last."""


class Shown(Protocol):
    """An `outcomes.Watcher` that is closed in the end."""

    def began(self, ledger: Ledger, parts: int) -> None: ...

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...

    def close(self) -> None: ...


def make_watcher(*, as_json: bool) -> Shown:
    """Show results on stdout and the rest on stderr; bars only on a terminal."""
    say: Callable[[Outcome], str] = as_json_line if as_json else line_of
    if sys.stderr.isatty():
        return BarWatcher(say, sys.stdout)
    return LineWatcher(say, sys.stdout, sys.stderr)


class LineWatcher:
    """A line when a ledger begins, on `err`, and one when it has ended, on `out`."""

    def __init__(self, say: Callable[[Outcome], str], out: TextIO, err: TextIO) -> None:
        self._say = say
        self._out = out
        self._err = err
        self._lock = threading.Lock()

    def began(self, ledger: Ledger, parts: int) -> None:
        self._print(self._err, beginning_of(ledger, parts))

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None:
        """Ignore progress: lines report only finished ledgers."""

    def ended(self, outcome: Outcome) -> None:
        self._print(self._out, self._say(outcome))

    def close(self) -> None:
        """Close everything that is open."""

    def _print(self, file: TextIO, line: str) -> None:
        with self._lock:
            print(line, file=file, flush=True)


class BarWatcher:
    """A bar for each ledger under way; above them, a line for each that has ended."""

    def __init__(self, say: Callable[[Outcome], str], out: TextIO, console: Console | None = None) -> None:
        """Bars go to `console`, or where errors go."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._say = say
        self._out = None if out.isatty() else out
        self._lock = threading.Lock()
        self._bars: dict[tuple[str, int], TaskID] = {}
        # Progress comes first with a fixed width; long names get the rest of the line.
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(BAR_COLUMNS),
            TextColumn("{task.fields[phase]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[name]}", table_column=Column(ratio=1, no_wrap=True), markup=False),
            console=console or _console(),
            transient=True,
            expand=True,
        )
        self._progress.start()

    def began(self, ledger: Ledger, parts: int) -> None:
        self.advanced(ledger, "writing", 0, parts)

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None:
        before = PHASES.get(phase)
        with self._lock:
            about = f"ledger {ledger.ledger_id}"
            told = phase if before is None else f"{done}/{total} {phase}"
            # Names differ at their ends, so the ends are shown.
            others = len(f"{about}  {total}/{total} verifying 0:00:00 ") + BAR_COLUMNS
            room = max(self._progress.console.width - others - 1, NAME_COLUMNS_MIN)
            name = shortened(ledger.topic.removeprefix("persistent://"), room)
            bar = self._bars.get((ledger.topic, ledger.ledger_id))
            if bar is None:
                bar = self._progress.add_task(about, total=None, phase=told, name=name)
                self._bars[ledger.topic, ledger.ledger_id] = bar
            self._progress.update(bar, phase=told, name=name)
            if before is not None:
                # One more than there is to do: a full bar's time stands still, and Complete is still to come.
                self._progress.update(bar, completed=before * total + done, total=len(PHASES) * total + 1)

    def ended(self, outcome: Outcome) -> None:
        with self._lock:
            bar = self._bars.pop((outcome.topic, outcome.ledger_id), None)
            if bar is not None:
                self._progress.remove_task(bar)
            if self._out is None:
                self._progress.console.print(
                    self._say(outcome), highlight=False, markup=False, soft_wrap=True
                )
            else:
                print(self._say(outcome), file=self._out, flush=True)

    def close(self) -> None:
        self._progress.stop()


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def shortened(name: str, columns: int) -> str:
    """Return the last `width` characters of a longer text."""
    return name if len(name) <= columns else "…" + name[len(name) - columns + 1 :]


def beginning_of(ledger: Ledger, parts: int) -> str:
    """A line."""
    return (
        f"ledger {ledger.ledger_id} of {ledger.topic}: {ledger.last_entry_id + 1:,} entries, "
        f"{megabytes(ledger.byte_length)} in {parts} part{'s' if parts != 1 else ''}"
    )


def line_of(outcome: Outcome) -> str:
    """Return a line about a finished ledger."""
    name = f"ledger {outcome.ledger_id} of {outcome.topic}"
    if outcome.result is not Result.OFFLOADED:
        return f"{name}: {outcome.result.value}: {outcome.reason}"
    raw = ""
    if outcome.raw_entries:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in outcome.raw_reasons)
        raw = f", {outcome.raw_entries:,} entries kept raw ({reasons})"
    return (
        f"{name}: offloaded {outcome.rows:,} rows of {outcome.entries:,} entries{raw}, "
        f"{megabytes(outcome.entry_bytes)} as {megabytes(outcome.object_bytes)} in {outcome.seconds:.1f} s"
    )


def as_json_line(outcome: Outcome) -> str:
    """Format an outcome as a line of JSON."""
    return json.dumps(
        {
            "topic": outcome.topic,
            "ledgerId": outcome.ledger_id,
            "result": outcome.result.value,
            "reason": outcome.reason,
            "entries": outcome.entries,
            "entryBytes": outcome.entry_bytes,
            "rows": outcome.rows,
            "rawEntries": outcome.raw_entries,
            "rawReasons": dict(outcome.raw_reasons),
            "objectBytes": outcome.object_bytes,
            "seconds": round(outcome.seconds, 3),
        }
    )


def closing_line(totals: Totals, *, stopped: bool = False) -> str:
    """Return a summary line; that of a `stopped` job does not claim that no ledger is pending."""
    counts = totals.outcomes
    if not any(counts.values()):
        return "stopped before any ledger" if stopped else "no pending ledgers to offload"
    parts = [f"{counts[each]:,} {each.value}" for each in Result if counts[each]]
    return (
        f"ledgers: {', '.join(parts)}; {totals.rows:,} rows, {totals.raw_entries:,} entries kept raw, "
        f"{megabytes(totals.entry_bytes)} as {megabytes(totals.object_bytes)}"
    )


def megabytes(byte_length: int) -> str:
    """Return a size in bytes as readable text."""
    return f"{byte_length / 1e6:,.1f} MB" if byte_length >= 100_000 else f"{byte_length:,} B"
